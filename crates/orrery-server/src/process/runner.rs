//! One environment in the hands of this process: its lease, its engine, and what it was last told.

mod engine;
mod intent;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use orrery_executor::{EngineError, HostingError};
use orrery_handlers::Moment;
use orrery_model::{Timestamp, VersionNumber};
use orrery_scheduler::Event;
use orrery_store::{
    EnvironmentKey, EnvironmentRecord, Holder, Lease, LeaseRequest, NewNotification, RequestKey,
    RequestRecord, Store, StoreError,
};

use crate::app::App;
use crate::compiling::facts_became_known;
use crate::settings::EnvironmentSettings;

use super::dry_run::DryRun;
use super::held::HeldLease;
use super::life::clearing;
use super::own_machine::{Rights, announce_sandbox};
use super::parked;
use super::renewal;
use super::supervisor::micros;
use super::work::{PROGRESS_EVERY, Work};
use super::{Message, ProcessOptions};
use intent::Intent;
pub(super) use intent::read_desired;

/// The kind of request that needs no engine.
pub(super) const DRY_RUN: &str = "dry_run";
/// After something went wrong, or while somebody else has the lease.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(3);
/// A dry run that another process took so long ago is taken over.
const LEFT_ALONE_AFTER: Duration = Duration::from_secs(600);
/// How long handlers may take to end when they are cancelled: less than what is left of a lease that is not renewed any more.
pub(super) const STOP_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether they have.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the supervisor does next for an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// Something is due then.
    At(Timestamp),
    /// There is no such environment any more.
    Gone,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RunnerError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the handlers of version {version} cannot be run")]
    Handlers { version: VersionNumber, source: HostingError },
    /// The environment is begun anew, and all others go on: nobody would answer for it otherwise.
    #[error("this is a fault in Orrery; the message of the panic is in the log")]
    Panicked,
}

pub(super) struct Runner {
    pub(super) app: App,
    pub(super) options: Arc<ProcessOptions>,
    messages: Sender<Message>,
    pub(super) key: EnvironmentKey,
    /// What the environment is called in logs and traces.
    name: String,
    held: Arc<HeldLease>,
    work: Option<Work>,
    /// Dry runs that were begun here.
    dry_runs: BTreeSet<RequestKey>,
    pub(super) settings: EnvironmentSettings,
    /// What people were last told about why it does not go on.
    trouble: String,
    /// The store was to be read, and could not be.
    looks_again: bool,
}

impl Runner {
    pub(super) fn new(
        app: App,
        options: Arc<ProcessOptions>,
        messages: Sender<Message>,
        key: EnvironmentKey,
    ) -> Self {
        Runner {
            app,
            options,
            messages,
            key,
            name: format!("{key:?}"),
            held: Arc::default(),
            work: None,
            dry_runs: BTreeSet::new(),
            settings: EnvironmentSettings::from_map(&BTreeMap::new()),
            trouble: String::new(),
            looks_again: false,
        }
    }

    /// What has to be renewed as long as this runner has it.
    pub(super) fn held(&self) -> Arc<HeldLease> {
        Arc::clone(&self.held)
    }

    pub(super) fn is_at_work(&self) -> bool {
        self.work.is_some()
    }

    /// Does what there is to do. With `look`, the store is read first.
    pub(super) fn attend(&mut self, look: bool) -> Next {
        let look = look || std::mem::take(&mut self.looks_again);
        let attend = AssertUnwindSafe(|| self.try_attend(look));
        let done = std::panic::catch_unwind(attend).unwrap_or(Err(RunnerError::Panicked));
        match done {
            Ok(next) => next,
            // What runs and what has ended stays as it is: all that is known of it is here, and the store takes it later.
            Err(RunnerError::Store(error))
                if error.is_temporary() && self.work.is_some() && !self.held.is_lost() =>
            {
                tracing::warn!(
                    environment = %self.name,
                    error = &error as &dyn std::error::Error,
                    "the store cannot be used now; work goes on, and it is tried again"
                );
                self.looks_again |= look;
                self.later(TRY_AGAIN_AFTER)
            }
            Err(error) => {
                match &error {
                    RunnerError::Store(StoreError::Leased { holder }) => {
                        tracing::debug!(environment = %self.name, %holder, "somebody else has it");
                    }
                    _ => tracing::error!(
                        environment = %self.name,
                        error = &error as &dyn std::error::Error,
                        "the environment cannot be worked on now"
                    ),
                }
                self.app.metrics().troubles.inc();
                self.stop();
                if !matches!(error, RunnerError::Store(_)) {
                    // A store that does not answer cannot be told so, and says so itself.
                    self.tell_trouble(&described(&error));
                }
                self.later(TRY_AGAIN_AFTER)
            }
        }
    }

    /// Tells people why the environment does not go on, or that it does. That this cannot be kept is no further trouble.
    fn tell_trouble(&mut self, trouble: &str) {
        if self.trouble == trouble {
            return;
        }
        let store = Arc::clone(self.app.store());
        let told = match self.work.as_ref().map(|work| work.lease) {
            Some(lease) => self.keep_trouble(&*store, &lease, trouble),
            // Another process that is at work has no use for what this one cannot do.
            None => self.acquire(&*store).and_then(|lease| {
                let told = self.keep_trouble(&*store, &lease, trouble);
                self.release(&*store, &lease);
                told
            }),
        };
        match told {
            Ok(()) => {
                self.trouble = trouble.to_owned();
                self.app.nudge();
            }
            // Who has the lease tells of its own trouble.
            Err(StoreError::Leased { .. }) => self.trouble = trouble.to_owned(),
            Err(error) => tracing::warn!(%error, "the trouble of an environment is not kept"),
        }
    }

    fn keep_trouble(
        &self,
        store: &dyn Store,
        lease: &Lease,
        trouble: &str,
    ) -> Result<(), StoreError> {
        let (records, now) = (store.records().under(lease), self.app.now());
        records.set_trouble(self.key, trouble, now)?;
        if !trouble.is_empty() {
            let new = NewNotification {
                uuid: uuid::Uuid::new_v4().into_bytes(),
                title: "The environment cannot be worked on",
                message: trouble,
                severity: "error",
                uri: "",
                compile: None,
            };
            records.add_notification(self.key, &new, now)?;
        }
        Ok(())
    }

    fn later(&self, after: Duration) -> Next {
        Next::At(Timestamp(self.app.now().0.saturating_add(micros(after))))
    }

    fn try_attend(&mut self, look: bool) -> Result<Next, RunnerError> {
        let span = tracing::info_span!("attend", environment = tracing::field::Empty, look);
        // A look may find another name.
        if !look {
            span.record("environment", &self.name);
        }
        let _entered = span.clone().entered();
        if self.work.as_ref().is_some_and(|work| work.engine.has_failed()) {
            // What could not be kept is not known to anybody: begin again from what the store knows.
            tracing::warn!(environment = %self.name, "results could not be kept; starting over");
            self.stop();
            return Ok(self.later(TRY_AGAIN_AFTER));
        }
        let is_unauthorized = self.work.as_ref().is_some_and(|work| work.engine.is_unauthorized());
        if is_unauthorized || self.held.is_lost() {
            // Whatever is still written here is refused, and somebody else may be at work.
            self.stop();
            self.held.let_go();
            return Ok(self.later(TRY_AGAIN_AFTER));
        }
        if look {
            let store = Arc::clone(self.app.store());
            match store.records().environment_of(self.key) {
                Ok(record) if record.deleting => return self.delete(&*store, &record),
                Ok(record) => {
                    self.name.clone_from(&record.name);
                    span.record("environment", &record.name);
                    // What a former process told is known from here on.
                    self.trouble.clone_from(&record.trouble);
                    self.look(&*store, &record)?;
                    self.tell_trouble("");
                }
                Err(StoreError::NotFound { .. }) => {
                    self.stop();
                    return Ok(Next::Gone);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let Some(work) = &mut self.work else { return Ok(Next::Nothing) };
        work.engine.tick();
        work.finish_requests(&self.app)?;
        work.parked.extend(work.engine.take_parked());
        if !work.parked.is_empty() {
            let records = self.app.store().records().under(&work.lease);
            parked::announce(records, self.key, &work.parked, self.app.now())?;
            work.parked.clear();
            self.app.nudge();
        }
        work.unknown.extend(work.engine.take_unknown_effects());
        if !work.unknown.is_empty() {
            let records = self.app.store().records().under(&work.lease);
            parked::announce_unknown(records, self.key, &work.unknown, self.app.now())?;
            work.unknown.clear();
            self.app.nudge();
        }
        work.has_resolved |= work.engine.take_resolved() > 0;
        if work.has_resolved {
            let lease = work.lease;
            self.unknowns_became_known(&lease)?;
        }
        let Some(work) = &mut self.work else { return Ok(Next::Nothing) };
        work.has_resolved = false;
        let (store, now) = (self.app.store(), self.app.now());
        work.unknown_facts.ask_again(&**store, self.key, &work.engine, now)?;
        let progress_at = match work.requests.is_empty() {
            true => None,
            false => Some(Timestamp(now.0.saturating_add(micros(PROGRESS_EVERY)))),
        };
        let due = [work.engine.wake_at(), work.unknown_facts.again_at(), progress_at];
        Ok(due.into_iter().flatten().min().map_or(Next::Nothing, Next::At))
    }

    /// Compares what the store says with what the engine was told.
    fn look(&mut self, store: &dyn Store, record: &EnvironmentRecord) -> Result<(), RunnerError> {
        if let Some(request) = clearing(store, self.key)? {
            return self.clear(store, record, &request);
        }
        if record.halted {
            self.stop();
            return Ok(());
        }
        let Intent { released, open } = Intent::read(store, self.key)?;
        let Some(newest) = released.last() else {
            return self.begin_dry_runs(store, record, &BTreeSet::new());
        };
        self.settings = EnvironmentSettings::from_map(&store.settings(self.key)?);
        let settings = self.settings.scheduling();
        let agents = store.agents(self.key)?;
        let paused: BTreeSet<String> =
            agents.iter().filter(|agent| agent.paused).map(|agent| agent.name.clone()).collect();
        let pausing = paused.clone();
        match &mut self.work {
            None => self.load(store, record, newest, settings, paused, open)?,
            Some(work) => {
                // First: what a version brings for an agent that was paused before must wait.
                work.set(settings, paused);
                work.move_agents(store.records().served_names(self.key)?);
                // Before what a version brings: whoever pushed it may be the first who is no administrator.
                let has_changed = work.places.own_machine().refresh(&self.app, store)?;
                if has_changed {
                    work.engine.forget_places();
                    if work.places.own_machine().rights() == Rights::Sandbox {
                        announce_sandbox(store.records(), self.key, self.app.now())?;
                    }
                }
                let patterns = &self.settings.local_agents;
                let names = agents.into_iter().map(|agent| agent.name);
                work.declare_agents(names, |known| {
                    known.environment_patterns.clone_from(patterns);
                });
                if has_changed {
                    self.exchange_handlers(record, newest)?;
                }
                self.follow(store, record, &released, open)?;
            }
        }
        self.begin_dry_runs(store, record, &pausing)
    }

    /// Starts what was asked for and leaves nothing behind: each on a thread of its own, beside the engine.
    fn begin_dry_runs(
        &mut self,
        store: &dyn Store,
        record: &EnvironmentRecord,
        paused: &BTreeSet<String>,
    ) -> Result<(), RunnerError> {
        let open = store.records().open_requests(self.key)?;
        let asked: Vec<RequestRecord> =
            open.into_iter().filter(|request| request.kind == DRY_RUN).collect();
        self.dry_runs.retain(|known| asked.iter().any(|request| request.key == *known));
        for request in asked {
            if self.dry_runs.contains(&request.key) {
                continue;
            }
            let now = self.app.now();
            // Without a lease, another process may have taken it, and may be gone.
            let is_left = request.taken.is_none_or(|at| now.since(at) > LEFT_ALONE_AFTER);
            let is_mine = self.work.is_some() || self.options.lease.is_none() || is_left;
            let claim = match is_mine {
                true => store.records().claim_request(&request, now)?,
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
                lease: self.work.as_ref().map(|work| work.lease),
                paused: paused.clone(),
            };
            let thread = std::thread::Builder::new().name("dry-run".to_owned());
            thread.spawn(move || run.run()).map_err(EngineError::Thread)?;
        }
        Ok(())
    }

    pub(super) fn acquire(&self, store: &dyn Store) -> Result<Lease, StoreError> {
        let now = self.app.now();
        // Before the request: the store counts from some moment after it.
        let asked = Moment::now();
        let holder = Holder::this_process("orrery server", now);
        let expires =
            self.options.lease.map(|lease| Timestamp(now.0.saturating_add(micros(lease))));
        let lease = store.acquire_lease(self.key, &LeaseRequest { holder, now, expires })?;
        self.held.hold(lease, renewal::permit(asked, self.options.lease));
        Ok(lease)
    }

    pub(super) fn release(&self, store: &dyn Store, lease: &Lease) {
        // First: it must not be renewed any more.
        self.held.let_go();
        if let Err(error) = store.release_lease(lease) {
            tracing::debug!(%error, "the lease is not given back; it runs out by itself");
        }
    }

    /// Unknowns of the released version became known: a compile may know more now.
    fn unknowns_became_known(&self, lease: &Lease) -> Result<(), RunnerError> {
        let records = self.app.store().records().under(lease);
        facts_became_known(records, self.key, self.app.now())?;
        self.app.nudge();
        Ok(())
    }

    /// Asks what runs to end, and begins nothing more.
    pub(super) fn cancel(&self) {
        if let Some(work) = &self.work {
            work.engine.tell(Event::Halt);
        }
    }

    /// Whether a handler runs.
    pub(super) fn is_running(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.engine.is_running())
    }

    /// Stops what runs and gives the environment back, also when this process may not act for it any more. What is known is
    /// kept. Handlers are waited for: whoever comes next would run them beside those that were left.
    pub(super) fn stop(&mut self) {
        self.cancel();
        self.stop_until(Instant::now() + STOP_WITHIN);
    }

    /// The same for what was cancelled before, with a limit of its own.
    pub(super) fn stop_until(&mut self, until: Instant) {
        while self.is_running() && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
        let Some(Work { engine, lease, handlers, places, .. }) = self.work.take() else { return };
        self.app.metrics().environments.dec();
        if engine.is_running() {
            tracing::warn!(environment = %self.name, "handlers that do not end are left behind");
        }
        // First: the store may not answer, and nothing may run meanwhile.
        handlers.close();
        places.own_machine().close();
        if let Err(error) = engine.finish() {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the last results are not kept"
            );
        }
        self.release(&**self.app.store(), &lease);
    }
}

/// An error with what it comes from.
pub(super) fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}
