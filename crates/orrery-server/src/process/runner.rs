//! The runner of one environment: its lease, its engine, and the state that was last reported.

mod engine;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::error_chain::error_chain;
use orrery_base::thread::spawn_named;
use orrery_compile_service::request_for_facts;
use orrery_executor::{EngineError, HostSetupError};
use orrery_handlers::Moment;
use orrery_model::{Timestamp, VersionNumber};
use orrery_scheduler::Event;
use orrery_store::{
    EnvironmentKey, EnvironmentRecord, Holder, Lease, LeaseRequest, NewNotification, RequestKey,
    Store, StoreError,
};
use snapshot::EnvironmentSnapshot;

use super::active_environment::{ActiveEnvironment, PROGRESS_INTERVAL};
use super::clusters::ActiveCluster;
use super::connection_reports::ConnectionReports;
use super::dry_run::DryRun;
use super::environment_lifecycle::pending_clear_request;
use super::lease_cell::LeaseCell;
use super::lease_renewal;
use super::notifications;
use super::own_machine::{Rights, notify_sandboxed};
use super::supervisor::micros;
use super::{Message, ProcessOptions};
use crate::cluster::ClusterRuntime;
use crate::settings::EnvironmentSettings;
use crate::state::ServerState;
pub(super) use snapshot::read_desired;

/// Delay after an error, or while another process holds the lease.
const RETRY_AFTER: Duration = Duration::from_secs(3);
/// Age at which a dry run claimed by another process is taken over.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(600);
/// Time for cancelled handlers to end: less than the rest of a lease that is no longer renewed.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Poll interval while waiting for them.
pub(super) const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Next step of the supervisor for an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// Run a step at this time.
    At(Timestamp),
    /// The environment no longer exists.
    Gone,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RunnerError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("cannot start the handlers of version {version}")]
    Handlers { version: VersionNumber, source: HostSetupError },
    /// The runner restarts this environment; all others continue.
    #[error("internal error; the log has the panic message")]
    Panicked,
}

pub(super) struct Runner {
    pub(super) app: ServerState,
    pub(super) options: Arc<ProcessOptions>,
    messages: Sender<Message>,
    pub(super) key: EnvironmentKey,
    /// Name of the environment in logs and traces.
    name: String,
    lease_cell: Arc<LeaseCell>,
    reports: Arc<ConnectionReports>,
    pub(super) active: Option<ActiveEnvironment>,
    /// Dry runs started by this process.
    dry_runs: BTreeSet<RequestKey>,
    pub(super) settings: EnvironmentSettings,
    /// Error that was last reported for the environment.
    problem: String,
    /// A reload failed and must be repeated.
    reload_pending: bool,
    /// The cluster that the environment belongs to.
    pub(super) cluster: Option<ActiveCluster>,
    pub(super) cluster_runtime: Arc<ClusterRuntime>,
}

impl Runner {
    pub(super) fn new(
        app: ServerState,
        options: Arc<ProcessOptions>,
        messages: Sender<Message>,
        key: EnvironmentKey,
        reports: Arc<ConnectionReports>,
        cluster_runtime: Arc<ClusterRuntime>,
    ) -> Self {
        Runner {
            app,
            options,
            messages,
            key,
            name: format!("{key:?}"),
            lease_cell: Arc::default(),
            reports,
            active: None,
            dry_runs: BTreeSet::new(),
            settings: EnvironmentSettings::from_map(&BTreeMap::new()),
            problem: String::new(),
            reload_pending: false,
            cluster: None,
            cluster_runtime,
        }
    }

    /// The lease cell shared with the renewal thread.
    pub(super) fn lease_cell(&self) -> Arc<LeaseCell> {
        Arc::clone(&self.lease_cell)
    }

    pub(super) fn has_engine(&self) -> bool {
        self.active.is_some()
    }

    /// Runs one step. With `reload`, reads the store first.
    pub(super) fn step(&mut self, reload: bool) -> Next {
        let reload = reload || std::mem::take(&mut self.reload_pending);
        let step = AssertUnwindSafe(|| self.try_step(reload));
        let done = std::panic::catch_unwind(step).unwrap_or(Err(RunnerError::Panicked));
        match done {
            Ok(next) => next,
            // Keeps the engine: its state exists only here, and the store takes the results later.
            Err(RunnerError::Store(error))
                if error.is_temporary() && self.active.is_some() && !self.lease_cell.is_lost() =>
            {
                tracing::warn!(
                    environment = %self.name,
                    error = &error as &dyn std::error::Error,
                    "store unavailable; the engine continues and the step is retried"
                );
                self.reload_pending |= reload;
                self.next_after(RETRY_AFTER)
            }
            Err(error) => {
                match &error {
                    RunnerError::Store(StoreError::Leased { holder }) => {
                        tracing::debug!(environment = %self.name, %holder, "another process holds the lease");
                    }
                    _ => tracing::error!(
                        environment = %self.name,
                        error = &error as &dyn std::error::Error,
                        "the environment cannot run; retrying"
                    ),
                }
                self.app.metrics().environment_errors.inc();
                self.stop();
                if !matches!(error, RunnerError::Store(_)) {
                    // Store errors cannot be stored, and show in the health of the store.
                    self.report_problem(&error_chain(&error));
                }
                self.next_after(RETRY_AFTER)
            }
        }
    }

    /// Records why the environment does not run, or clears the record. A failure to do so is only
    /// logged.
    fn report_problem(&mut self, problem: &str) {
        if self.problem == problem {
            return;
        }
        let store = self.app.store().clone();
        let reported = match self.active.as_ref().map(|active| active.lease) {
            Some(lease) => self.persist_problem(&store, &lease, problem),
            // While another process runs the environment, this error is irrelevant.
            None => self.acquire(&store).and_then(|lease| {
                let reported = self.persist_problem(&store, &lease, problem);
                self.release(&store, &lease);
                reported
            }),
        };
        match reported {
            Ok(()) => {
                self.problem = problem.to_owned();
                self.app.wake_up();
            }
            // The holder of the lease reports its own errors.
            Err(StoreError::Leased { .. }) => self.problem = problem.to_owned(),
            Err(error) => tracing::warn!(%error, "the problem of an environment was not recorded"),
        }
    }

    fn persist_problem(
        &self,
        store: &Store,
        lease: &Lease,
        problem: &str,
    ) -> Result<(), StoreError> {
        let (records, now) = (store.under_lease(lease), self.app.now());
        records.environments().set_problem(self.key, problem, now)?;
        if !problem.is_empty() {
            let new = NewNotification {
                uuid: uuid::Uuid::new_v4().into(),
                title: "The environment cannot run",
                message: problem,
                severity: "error",
                uri: "",
                compile: None,
            };
            records.notifications().add(self.key, &new, now)?;
        }
        Ok(())
    }

    fn next_after(&self, after: Duration) -> Next {
        Next::At(Timestamp(self.app.now().0.saturating_add(micros(after))))
    }

    fn try_step(&mut self, reload: bool) -> Result<Next, RunnerError> {
        let span =
            tracing::info_span!("environment_step", environment = tracing::field::Empty, reload);
        // A reload may change the name.
        if !reload {
            span.record("environment", &self.name);
        }
        let _entered = span.clone().entered();
        if self.active.as_ref().is_some_and(|active| active.engine.has_failed()) {
            // Results were lost: restart from the stored state.
            tracing::warn!(environment = %self.name, "results were not persisted; restarting the engine");
            self.stop();
            return Ok(self.next_after(RETRY_AFTER));
        }
        let is_unauthorized =
            self.active.as_ref().is_some_and(|active| active.engine.is_unauthorized());
        if is_unauthorized || self.lease_cell.is_lost() {
            // Further writes are refused, and another process may run the environment.
            self.stop();
            self.lease_cell.clear_lease();
            return Ok(self.next_after(RETRY_AFTER));
        }
        if reload {
            let store = self.app.store().clone();
            match store.environments().by_key(self.key) {
                Ok(record) if record.deleting => return self.delete(&store, &record),
                Ok(record) => {
                    self.name.clone_from(&record.name);
                    span.record("environment", &record.name);
                    // Starts from the error that a former process recorded.
                    self.problem.clone_from(&record.problem);
                    self.update_cluster(&store, record.cluster.as_ref());
                    self.reconcile(&store, &record)?;
                    self.report_problem("");
                }
                Err(StoreError::NotFound { .. }) => {
                    self.stop();
                    return Ok(Next::Gone);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let Some(active) = &mut self.active else { return Ok(Next::Nothing) };
        for drift in active.drift.take(&active.router) {
            active.engine.submit(drift);
        }
        if let Some(entities) = active.handlers.take_changed() {
            active.engine.deploy_unavailable(entities);
        }
        active.engine.tick();
        active.finish_requests(&self.app)?;
        active.parked.extend(active.engine.take_parked());
        if !active.parked.is_empty() {
            let records = self.app.store().under_lease(&active.lease);
            notifications::notify_parked(&records, self.key, &active.parked, self.app.now())?;
            active.parked.clear();
            self.app.wake_up();
        }
        active.unknown.extend(active.engine.take_unknown_effects());
        if !active.unknown.is_empty() {
            let records = self.app.store().under_lease(&active.lease);
            notifications::notify_unknown_effects(
                &records,
                self.key,
                &active.unknown,
                self.app.now(),
            )?;
            active.unknown.clear();
            self.app.wake_up();
        }
        active.drifted.extend(active.engine.take_drifted());
        if !active.drifted.is_empty() {
            let records = self.app.store().under_lease(&active.lease);
            notifications::notify_drifted(&records, self.key, &active.drifted, self.app.now())?;
            active.drifted.clear();
            self.app.wake_up();
        }
        active.has_resolved |= active.engine.take_resolved() > 0;
        if active.has_resolved {
            let lease = active.lease;
            self.request_compile_for_facts(&lease)?;
        }
        let Some(active) = &mut self.active else { return Ok(Next::Nothing) };
        active.has_resolved = false;
        let (store, now) = (self.app.store(), self.app.now());
        active.unknown_facts.retry(store, self.key, &active.engine, now)?;
        let progress_at = match active.requests.is_empty() {
            true => None,
            false => Some(Timestamp(now.0.saturating_add(micros(PROGRESS_INTERVAL)))),
        };
        let due = [active.engine.wake_at(), active.unknown_facts.retry_at(), progress_at];
        let due = due.into_iter().chain([self.roll_up_cluster()]);
        Ok(due.flatten().min().map_or(Next::Nothing, Next::At))
    }

    /// Compares the stored state with the engine's, and updates the engine.
    fn reconcile(&mut self, store: &Store, record: &EnvironmentRecord) -> Result<(), RunnerError> {
        if let Some(request) = pending_clear_request(store, self.key)? {
            return self.clear(store, record, &request);
        }
        if record.halted {
            self.stop();
            return Ok(());
        }
        let EnvironmentSnapshot { released, open } = EnvironmentSnapshot::read(store, self.key)?;
        let Some(newest) = released.last() else {
            return self.start_dry_runs(store, record, &BTreeSet::new());
        };
        self.settings = EnvironmentSettings::from_map(&store.settings().values(self.key)?);
        let settings = self.settings.scheduling();
        let agents = store.agents().states(self.key)?;
        let paused: BTreeSet<String> =
            agents.iter().filter(|agent| agent.paused).map(|agent| agent.name.clone()).collect();
        let pausing = paused.clone();
        match &mut self.active {
            None => self.take_over(store, record, newest, settings, paused, open)?,
            Some(active) => {
                // First: new tasks of an agent that was paused before must wait.
                active.apply_settings(settings, paused);
                active.engine.set_drift_policies(self.settings.drift_policies.clone());
                active.update_remote_agents(store.remote_agents().served_names(self.key)?);
                // Before the version is applied: its author may be the first account without
                // administrator rights.
                let has_changed = active.router.own_machine().refresh(&self.app, store)?;
                if has_changed {
                    active.engine.invalidate_sites();
                    if active.router.own_machine().rights() == Rights::Sandbox {
                        notify_sandboxed(store, self.key, self.app.now())?;
                    }
                }
                let (patterns, addresses) =
                    (&self.settings.local_agents, &self.settings.agent_placements);
                let names = agents.into_iter().map(|agent| agent.name);
                active.update_declared_agents(names, |known| {
                    known.environment_patterns.clone_from(patterns);
                    known.environment_addresses.clone_from(addresses);
                });
                if has_changed {
                    self.replace_handlers(record, newest)?;
                }
                self.apply_versions(store, record, &released, open)?;
            }
        }
        self.start_dry_runs(store, record, &pausing)
    }

    /// Starts requested dry runs, each on its own thread beside the engine.
    fn start_dry_runs(
        &mut self,
        store: &Store,
        record: &EnvironmentRecord,
        paused: &BTreeSet<String>,
    ) -> Result<(), RunnerError> {
        let requested = store.requests().open_dry_runs(self.key)?;
        self.dry_runs.retain(|known| requested.iter().any(|request| request.key == *known));
        for request in requested {
            if self.dry_runs.contains(&request.key) {
                continue;
            }
            let now = self.app.now();
            // Without a lease, another process may have claimed it and ended.
            let is_left = request.taken.is_none_or(|at| now.since(at) > TAKE_OVER_AFTER);
            let is_mine = self.active.is_some() || self.options.lease.is_none() || is_left;
            let claim = match is_mine {
                true => store.requests().claim(&request, now)?,
                false => None,
            };
            let Some(claim) = claim else { continue };
            self.dry_runs.insert(request.key);
            let run = DryRun {
                app: self.app.clone(),
                options: Arc::clone(&self.options),
                environment: record.clone(),
                request,
                claim,
                lease: self.active.as_ref().map(|active| active.lease),
                paused: paused.clone(),
                machines: self.active.as_ref().map(|active| active.router.machines()),
                clusters: Arc::clone(&self.cluster_runtime),
            };
            spawn_named("dry-run", move || run.run()).map_err(EngineError::Thread)?;
        }
        Ok(())
    }

    pub(super) fn acquire(&self, store: &Store) -> Result<Lease, StoreError> {
        let now = self.app.now();
        // Before the request: the store counts from some moment after it.
        let requested_at = Moment::now();
        let holder = Holder::this_process("orrery server", now);
        let expires =
            self.options.lease.map(|lease| Timestamp(now.0.saturating_add(micros(lease))));
        let lease = store.leases().acquire(self.key, &LeaseRequest { holder, now, expires })?;
        self.lease_cell.hold(lease, lease_renewal::permit(requested_at, self.options.lease));
        Ok(lease)
    }

    pub(super) fn release(&self, store: &Store, lease: &Lease) {
        // First: stops the renewal.
        self.lease_cell.clear_lease();
        if let Err(error) = store.leases().release(lease) {
            tracing::debug!(%error, "lease not released; it expires");
        }
    }

    /// Requests a compile because unknowns of the released version were resolved.
    fn request_compile_for_facts(&self, lease: &Lease) -> Result<(), RunnerError> {
        let records = self.app.store().under_lease(lease);
        request_for_facts(&records, self.key, self.app.now())?;
        self.app.wake_up();
        Ok(())
    }

    /// Cancels current runs and starts no more.
    pub(super) fn cancel(&self) {
        if let Some(active) = &self.active {
            active.engine.handle_event(Event::Halt);
        }
    }

    /// True while a handler runs.
    pub(super) fn is_running(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.engine.is_running())
    }

    /// Stops the engine and releases the environment, even after the lease was lost. Results are
    /// persisted. Waits for handlers: the next owner would otherwise run them concurrently.
    pub(super) fn stop(&mut self) {
        self.cancel();
        self.stop_until(monotonic() + STOP_TIMEOUT);
    }

    /// Like `stop`, after `cancel`, with a deadline.
    pub(super) fn stop_until(&mut self, until: Instant) {
        while self.is_running() && monotonic() < until {
            std::thread::sleep(STOP_POLL_INTERVAL);
        }
        let Some(ActiveEnvironment { engine, lease, handlers, router, .. }) = self.active.take()
        else {
            return;
        };
        self.app.metrics().environments.dec();
        if engine.is_running() {
            tracing::warn!(environment = %self.name, "handlers did not end in time; abandoned");
        }
        // First: the store may not answer, and no handler may run meanwhile.
        handlers.close();
        router.own_machine().close();
        if let Err(error) = engine.finish() {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the last results were not persisted"
            );
        }
        self.release(self.app.store(), &lease);
    }
}
