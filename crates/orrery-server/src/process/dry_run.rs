//! Dry runs: the changes that a stored version would make. They run beside the engine and persist
//! only their results.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_base::error_chain::error_chain;
use orrery_executor::{
    ChangeCause, DesiredState, EngineSetup, PlanEntry, Risk, StoredContents, StoredStates,
    declared_addresses, plan,
};
use orrery_model::{
    ChangeKind, DriftPolicies, DryRunId, LogLevel, Outcome, OutcomeStatus, Resource, ResourceState,
    VersionNumber,
};
use orrery_scheduler::{DryRunSkip, Interval, Settings};
use orrery_store::{
    DryRunResult, EnvironmentRecord, Lease, RequestClaim, RequestKind, RequestRecord,
    RequestResult, Store, StoreError,
};
use serde_json::{Value, json};

use crate::cluster::ClusterRuntime;
use crate::placement::DeclaredAgents;
use crate::settings::EnvironmentSettings;
use crate::state::ServerState;

use super::ProcessOptions;
use super::agent_routing::AgentRouter;
use super::handlers::{DRY_RUN_PATIENCE, HandlerInputs, Handlers};
use super::own_machine::{OwnMachine, determine_rights};
use super::runner::{RunnerError, read_desired};
use super::secrets::EnvironmentSecrets;
use super::ssh_machines::EnvironmentMachines;

/// Results per transaction.
const BATCH: usize = 1_000;

/// A requested dry run.
pub(super) struct DryRun {
    pub(super) app: ServerState,
    pub(super) options: Arc<ProcessOptions>,
    pub(super) environment: EnvironmentRecord,
    pub(super) request: RequestRecord,
    /// Claim on the request, which another process may take over.
    pub(super) claim: RequestClaim,
    /// Lease of the engine, if it runs here.
    pub(super) lease: Option<Lease>,
    pub(super) paused: BTreeSet<String>,
    /// Connections of the engine, if it runs here.
    pub(super) machines: Option<Arc<EnvironmentMachines>>,
    pub(super) clusters: Arc<ClusterRuntime>,
}

impl DryRun {
    /// Executes the dry run and records its end.
    pub(super) fn run(self) {
        let ended = match self.request.kind {
            RequestKind::DryRun { dry_run, version } => match self.execute(dry_run, version) {
                Err(RunnerError::Store(error @ StoreError::StaleEpoch { .. })) => Err(error),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a dry run failed");
                    self.fail_remaining(dry_run, version, &error_chain(&error))
                }
                Ok(()) => Ok(()),
            },
            ref other => {
                let error = match other {
                    RequestKind::Unreadable { reason, .. } => reason.clone(),
                    other => format!("not a dry run: {}", other.name()),
                };
                let failed = RequestResult::Failed { error };
                self.leased().requests().finish(&self.request, &failed, self.app.now())
            }
        };
        match ended {
            Ok(()) => {}
            Err(error @ StoreError::StaleEpoch { .. }) => {
                tracing::info!(%error, "another process carries out a dry run");
            }
            Err(error) => {
                tracing::warn!(%error, "the end of a dry run could not be recorded; it is run again");
            }
        }
        self.app.wake_up();
    }

    /// Records, fenced by the lease if there is one.
    fn leased(&self) -> Store {
        let store = self.app.store();
        match &self.lease {
            Some(lease) => store.under_lease(lease),
            None => store.clone(),
        }
    }

    fn execute(&self, id: DryRunId, number: VersionNumber) -> Result<(), RunnerError> {
        let store = self.app.store().clone();
        let key = self.environment.key;
        let desired = read_desired(&store, key, number)?;
        let versions = store.versions().list(key)?;
        let Some(version) = versions.iter().find(|version| version.number == number) else {
            return Err(StoreError::NoVersion(number).into());
        };
        let inputs = HandlerInputs {
            app: &self.app,
            options: &self.options,
            environment: &self.environment,
            lease: None,
            rights: determine_rights(&self.app, &store, self.options.own_machine.policy)?,
            patience: DRY_RUN_PATIENCE,
            on_change: Arc::new(|| ()),
            clusters: &self.clusters,
        };
        let addresses = declared_addresses(&desired.resources);
        let declared = DeclaredAgents::of_version(&store, addresses, &version.info)?;
        let handlers = Handlers::load(&inputs, version)
            .map_err(|source| RunnerError::Handlers { version: number, source })?;
        let (asked, down): (Vec<_>, Vec<_>) = desired
            .resources
            .into_iter()
            .zip(desired.keys)
            .partition(|(resource, _)| !self.paused.contains(resource.id.agent()));
        let down: Vec<DryRunResult> = down
            .iter()
            .map(|(resource, _)| unasked_result(resource, DryRunSkip::AgentDown))
            .collect();
        self.persist(id, &down)?;
        let (resources, keys): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        let states = StoredStates::read(&store, key)?;
        let states: Vec<Option<ResourceState>> =
            keys.iter().map(|key| states.get(*key).cloned()).collect();
        let names: Vec<Resource> = resources.clone();
        let setup = self.setup(&handlers, declared)?;
        let desired = DesiredState { version: number, resources, keys };
        let planned = plan(setup, desired, states.clone(), &mut |_| true);
        handlers.close();
        let planned = planned?;
        let results: Vec<DryRunResult> = names
            .iter()
            .zip(&states)
            .zip(planned)
            .map(|((resource, state), planned)| to_result(resource, state.as_ref(), planned))
            .collect();
        self.persist(id, &results)?;
        self.leased().dry_runs().finish(
            &self.claim,
            id,
            &RequestResult::Done(None),
            self.app.now(),
        )?;
        Ok(())
    }

    /// Fails all resources without a result.
    fn fail_remaining(
        &self,
        id: DryRunId,
        number: VersionNumber,
        reason: &str,
    ) -> Result<(), StoreError> {
        let store = self.app.store().clone();
        match read_desired(&store, self.environment.key, number) {
            Ok(desired) => {
                // Existing results stay.
                let rest: Vec<DryRunResult> = desired
                    .resources
                    .iter()
                    .map(|resource| failed_result(resource, reason))
                    .collect();
                self.persist(id, &rest)?;
            }
            Err(error) => tracing::debug!(%error, "the version of a dry run cannot be read"),
        }
        let failed = RequestResult::Failed { error: reason.to_owned() };
        self.leased().dry_runs().finish(&self.claim, id, &failed, self.app.now())?;
        Ok(())
    }

    fn setup(
        &self,
        handlers: &Handlers,
        declared: DeclaredAgents,
    ) -> Result<EngineSetup, StoreError> {
        let store = self.app.store();
        let environment = &self.environment;
        let settings = EnvironmentSettings::from_map(&store.settings().values(environment.key)?);
        let own = &self.options.own_machine;
        let own = Arc::new(OwnMachine::read(&self.app, store, own, environment, None, None)?);
        let machine = Arc::clone(&own);
        let data = &self.options.data;
        let router = AgentRouter::read(
            &self.app,
            store,
            environment,
            &settings,
            declared,
            own,
            (data, None),
        )?
        .sharing(self.machines.clone());
        Ok(EngineSetup {
            registry: handlers.registry(),
            targets: Arc::new(router),
            contents: Arc::new(StoredContents {
                store: self.app.store().clone(),
                environment: self.environment.key,
            }),
            secrets: Arc::new(EnvironmentSecrets::new(&self.app, self.environment.key, machine)),
            settings: Settings {
                deploy_interval: Interval::Off,
                repair_interval: Interval::Off,
                ..Settings::default()
            },
            drift_policies: DriftPolicies::default(),
            workers: self.options.workers,
            log_level: LogLevel::Warning,
            store_handle: None,
            listener: None,
        })
    }

    fn persist(&self, id: DryRunId, results: &[DryRunResult]) -> Result<(), StoreError> {
        for batch in results.chunks(BATCH) {
            self.leased().dry_runs().add_results(&self.claim, id, batch, self.app.now())?;
            self.app.wake_up();
        }
        Ok(())
    }
}

/// Builds a result: a list of attribute changes, and one unnamed element about the resource as a
/// whole.
fn build_result(
    resource: &Resource,
    status: &str,
    attributes: Vec<Value>,
    more: Value,
) -> DryRunResult {
    let mut whole = more;
    if let Some(source) = &resource.source {
        let (file, line, column) = (&source.file, source.line, source.column);
        whole["source"] = json!({"file": file, "line": line, "column": column});
    }
    let mut changes = attributes;
    changes.push(whole);
    DryRunResult {
        resource: resource.id.to_string(),
        status: status.to_owned(),
        changes: Value::Array(changes),
    }
}

fn to_result(
    resource: &Resource,
    state: Option<&ResourceState>,
    planned: PlanEntry,
) -> DryRunResult {
    match planned {
        PlanEntry::Evaluated(outcome) => outcome_result(resource, state, &outcome),
        PlanEntry::NotEvaluated(answer) => unasked_result(resource, answer),
        PlanEntry::Cancelled => failed_result(resource, "the handler did not answer"),
    }
}

fn unasked_result(resource: &Resource, answer: DryRunSkip) -> DryRunResult {
    let status = match answer {
        DryRunSkip::Undefined => "undefined",
        DryRunSkip::SkippedForUndefined => "skipped_for_undefined",
        DryRunSkip::AgentDown => "agent_down",
    };
    build_result(resource, status, Vec::new(), json!({}))
}

fn failed_result(resource: &Resource, reason: &str) -> DryRunResult {
    let handler = json!({"name": "handler", "current": "FAILED", "desired": reason});
    build_result(resource, "failed", vec![handler], json!({}))
}

fn outcome_result(
    resource: &Resource,
    state: Option<&ResourceState>,
    outcome: &Outcome,
) -> DryRunResult {
    if matches!(outcome.status, OutcomeStatus::Failed | OutcomeStatus::Unavailable) {
        let line = outcome.log.last();
        return failed_result(resource, line.map_or("the handler failed", |line| &line.message));
    }
    let change = &outcome.change;
    let status = match change.kind {
        ChangeKind::NoChange => return build_result(resource, "unmodified", Vec::new(), json!({})),
        ChangeKind::Created => "added",
        ChangeKind::Updated => "modified",
        ChangeKind::Purged => "deleted",
    };
    let attribute = |one: &orrery_model::AttributeDiff| json!({"name": one.name, "current": one.current, "desired": one.desired});
    let attributes = change.attributes.iter().map(attribute).collect();
    let cause = ChangeCause::for_change(resource, state, change);
    let reasons = json!({
        "cause": cause.as_str(),
        "risk": Risk::for_change(resource, change, cause).as_str(),
    });
    build_result(resource, status, attributes, reasons)
}
