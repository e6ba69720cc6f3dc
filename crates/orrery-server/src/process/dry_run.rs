//! Dry runs: what would a stored version change? They run beside the engine and leave nothing behind but their results.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_executor::{
    Cause, Desired, KnownStates, Planned, Risk, Setup, StoredContents, declared_addresses, plan,
};
use orrery_model::{
    ChangeKind, LogLevel, Outcome, OutcomeStatus, Resource, ResourceState, VersionNumber,
};
use orrery_scheduler::{DryRunAnswer, Interval, Settings};
use orrery_store::{
    Claim, DryRunResult, EnvironmentRecord, Lease, Records, RequestRecord, StoreError, local_agents,
};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::app::App;
use crate::placement::Declared;
use crate::settings::EnvironmentSettings;

use super::ProcessOptions;
use super::handlers::{Handlers, Place};
use super::own_machine::{OwnMachine, find_rights};
use super::places::AgentPlaces;
use super::runner::{RunnerError, described, read_desired};
use super::secrets::EnvironmentSecrets;

/// Results that are kept at once.
const BATCH: usize = 1_000;

#[derive(Debug, Deserialize)]
struct Payload {
    dry_run: Uuid,
    version: u32,
}

/// A dry run that was asked for.
pub(super) struct DryRun {
    pub(super) app: App,
    pub(super) options: Arc<ProcessOptions>,
    pub(super) environment: EnvironmentRecord,
    pub(super) request: RequestRecord,
    /// The right to carry it out, which another process may take over.
    pub(super) claim: Claim,
    /// That of the engine, if there is one here.
    pub(super) lease: Option<Lease>,
    pub(super) paused: BTreeSet<String>,
}

impl DryRun {
    /// Carries it out, and says so.
    pub(super) fn run(self) {
        let payload: Result<Payload, _> = serde_json::from_value(self.request.payload.clone());
        let ended = match payload {
            Ok(payload) => match self.find_out(&payload) {
                Err(RunnerError::Store(error @ StoreError::StaleEpoch { .. })) => Err(error),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a dry run failed");
                    self.give_up(&payload, &described(&error))
                }
                Ok(()) => Ok(()),
            },
            Err(error) => {
                let outcome = json!({"error": error.to_string()});
                self.records().finish_request(&self.request, &outcome, self.app.now())
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
        self.app.nudge();
    }

    /// Records, for changes that only the holder of the environment may make.
    fn records(&self) -> Records<'_> {
        let records = self.app.store().records();
        match &self.lease {
            Some(lease) => records.under(lease),
            None => records,
        }
    }

    fn find_out(&self, payload: &Payload) -> Result<(), RunnerError> {
        let store = Arc::clone(self.app.store());
        let key = self.environment.key;
        let number = VersionNumber(payload.version);
        let id = payload.dry_run.into_bytes();
        let desired = read_desired(&*store, key, number)?;
        let versions = store.versions(key)?;
        let Some(version) = versions.iter().find(|version| version.number == number) else {
            return Err(StoreError::NoVersion(number).into());
        };
        let place = Place {
            app: &self.app,
            options: &self.options,
            environment: &self.environment,
            lease: None,
            rights: find_rights(&self.app, &*store, self.options.own_machine.policy)?,
        };
        let declared = Declared {
            addresses: declared_addresses(&desired.resources),
            patterns: local_agents(&version.info),
        };
        let handlers = Handlers::of(&place, version)
            .map_err(|source| RunnerError::Handlers { version: number, source })?;
        let (asked, down): (Vec<_>, Vec<_>) = desired
            .resources
            .into_iter()
            .zip(desired.keys)
            .partition(|(resource, _)| !self.paused.contains(resource.id.agent()));
        let down: Vec<DryRunResult> =
            down.iter().map(|(resource, _)| answered(resource, DryRunAnswer::AgentDown)).collect();
        self.keep(&id, &down)?;
        let (resources, keys): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        let states = KnownStates::read(&*store, key)?;
        let states: Vec<Option<ResourceState>> =
            keys.iter().map(|key| states.get(*key).cloned()).collect();
        let names: Vec<Resource> = resources.clone();
        let setup = self.setup(&handlers, declared)?;
        let desired = Desired { version: number, resources, keys };
        let planned = plan(setup, desired, states.clone(), &mut |_| true);
        handlers.close();
        let planned = planned?;
        let results: Vec<DryRunResult> = names
            .iter()
            .zip(&states)
            .zip(planned)
            .map(|((resource, state), planned)| result(resource, state.as_ref(), planned))
            .collect();
        self.keep(&id, &results)?;
        let outcome = json!({"done": true});
        self.records().finish_dry_run(&self.claim, &id, &outcome, self.app.now())?;
        Ok(())
    }

    /// Nothing more will be found out: what is not known yet has failed.
    fn give_up(&self, payload: &Payload, reason: &str) -> Result<(), StoreError> {
        let store = Arc::clone(self.app.store());
        let id = payload.dry_run.into_bytes();
        let number = VersionNumber(payload.version);
        match read_desired(&*store, self.environment.key, number) {
            Ok(desired) => {
                // Results that are there already stay.
                let rest: Vec<DryRunResult> =
                    desired.resources.iter().map(|resource| failed(resource, reason)).collect();
                self.keep(&id, &rest)?;
            }
            Err(error) => tracing::debug!(%error, "the version of a dry run cannot be read"),
        }
        let outcome = json!({"error": reason});
        self.records().finish_dry_run(&self.claim, &id, &outcome, self.app.now())?;
        Ok(())
    }

    fn setup(&self, handlers: &Handlers, declared: Declared) -> Result<Setup, StoreError> {
        let store = self.app.store();
        let environment = &self.environment;
        let settings = EnvironmentSettings::from_map(&store.settings(environment.key)?);
        let own = &self.options.own_machine;
        let own = Arc::new(OwnMachine::read(&self.app, &**store, own, environment, None)?);
        let machine = Arc::clone(&own);
        let places = AgentPlaces::read(&self.app, &**store, environment, &settings, declared, own)?;
        Ok(Setup {
            registry: handlers.registry(),
            targets: Arc::new(places),
            contents: Arc::new(StoredContents {
                store: Arc::clone(self.app.store()),
                environment: self.environment.key,
            }),
            secrets: Arc::new(EnvironmentSecrets::new(&self.app, self.environment.key, machine)),
            settings: Settings {
                deploy_interval: Interval::Off,
                repair_interval: Interval::Off,
                ..Settings::default()
            },
            workers: self.options.workers,
            log_level: LogLevel::Warning,
            keeper: None,
            listener: None,
        })
    }

    fn keep(&self, id: &[u8; 16], results: &[DryRunResult]) -> Result<(), StoreError> {
        for batch in results.chunks(BATCH) {
            self.records().add_dry_run_results(&self.claim, id, batch, self.app.now())?;
            self.app.nudge();
        }
        Ok(())
    }
}

/// What is kept of an answer: a list of attributes, and one element without a name that tells of the resource as a whole.
fn kept(resource: &Resource, status: &str, attributes: Vec<Value>, more: Value) -> DryRunResult {
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

fn result(resource: &Resource, state: Option<&ResourceState>, planned: Planned) -> DryRunResult {
    match planned {
        Planned::Asked(outcome) => asked(resource, state, &outcome),
        Planned::NotAsked(answer) => answered(resource, answer),
        Planned::Unanswered => failed(resource, "the handler did not answer"),
    }
}

fn answered(resource: &Resource, answer: DryRunAnswer) -> DryRunResult {
    let status = match answer {
        DryRunAnswer::Undefined => "undefined",
        DryRunAnswer::SkippedForUndefined => "skipped_for_undefined",
        DryRunAnswer::AgentDown => "agent_down",
    };
    kept(resource, status, Vec::new(), json!({}))
}

fn failed(resource: &Resource, reason: &str) -> DryRunResult {
    let handler = json!({"name": "handler", "current": "FAILED", "desired": reason});
    kept(resource, "failed", vec![handler], json!({}))
}

fn asked(resource: &Resource, state: Option<&ResourceState>, outcome: &Outcome) -> DryRunResult {
    if matches!(outcome.status, OutcomeStatus::Failed | OutcomeStatus::Unavailable) {
        let line = outcome.log.last();
        return failed(resource, line.map_or("the handler failed", |line| &line.message));
    }
    let change = &outcome.change;
    let status = match change.kind {
        ChangeKind::NoChange => return kept(resource, "unmodified", Vec::new(), json!({})),
        ChangeKind::Created => "added",
        ChangeKind::Updated => "modified",
        ChangeKind::Purged => "deleted",
    };
    let attribute = |one: &orrery_model::AttributeChange| json!({"name": one.name, "current": one.current, "desired": one.desired});
    let attributes = change.attributes.iter().map(attribute).collect();
    let cause = Cause::of(resource, state, change);
    let reasons = json!({
        "cause": cause.as_str(),
        "risk": Risk::of(resource, change, cause).as_str(),
    });
    kept(resource, status, attributes, reasons)
}
