//! State of the engine under its lock: the scheduler and the parts that execute its commands.
//!
//! Every event goes through `apply`, which executes the scheduler's commands without blocking. Each
//! part has its own file; this module has the transitions that concern several of them.

mod finish_task;
mod requests;
mod start_task;
mod updates;

use std::sync::Arc;
use std::time::Duration;

use orrery_handlers::clock::now;
use orrery_handlers::{Permit, Registry};
use orrery_model::{
    Blocked, ChangeKind, DriftPolicies, OutcomeStatus, Resource, ResourceId, ResourceState,
    Timestamp,
};
use orrery_scheduler::{
    ChangedFields, Event, Recovery, ResourceIndex, Scheduler, SchedulerCommand, TaskNumber,
};
use orrery_store::ResourceKey;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::agent_sites::AgentSites;
use crate::concurrency::{Concurrency, MonitorState, SLOW_RUN};
use crate::dry_run::{DryRun, DryRunEntry};
use crate::engine_clock::EngineClock;
use crate::fact_watch::FactWatch;
use crate::job_queue::JobQueue;
use crate::lifecycle::Lifecycle;
use crate::placement::TargetResolver;
use crate::progress::{Progress, RunningResource};
use crate::progress_recorder::ProgressRecorder;
use crate::recovery::DesiredState;
use crate::request_tracker::{RequestTracker, RunEnd};
use crate::resource_table::{ResourceEntry, ResourceTable};
use crate::running_tasks::RunningTasks;
use crate::unknown_effects::UnknownEffects;
use crate::write_queue::{ResourceRecord, Write, WriteQueue};

/// Number of pending runs, and of threads allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerDemand {
    pub(crate) pending_runs: usize,
    pub(crate) limit: usize,
}

pub(crate) struct EngineState {
    pub(crate) scheduler: Scheduler,
    pub(crate) resources: ResourceTable,
    /// A new version may bring other handlers.
    pub(crate) registry: Arc<Registry>,
    pub(crate) sites: AgentSites,
    pub(crate) queue: JobQueue,
    pub(crate) running: RunningTasks,
    pub(crate) requests: RequestTracker,
    pub(crate) writes: WriteQueue,
    pub(crate) effects: UnknownEffects,
    pub(crate) progress: ProgressRecorder,
    pub(crate) dry_run: DryRun,
    /// Facts to refresh once their resource is deployed.
    pub(crate) fact_watch: FactWatch,
    pub(crate) concurrency: Concurrency,
    pub(crate) monitor: MonitorState,
    pub(crate) clock: EngineClock,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) drift_policies: DriftPolicies,
    /// Space for commands of the scheduler, empty between two events.
    commands: Vec<SchedulerCommand>,
}

impl EngineState {
    pub(crate) fn new(
        scheduler: Scheduler,
        desired: DesiredState,
        registry: Arc<Registry>,
        targets: Arc<dyn TargetResolver>,
        concurrency: Concurrency,
        permit: Option<Permit>,
    ) -> Self {
        EngineState {
            scheduler,
            resources: ResourceTable::new(desired),
            registry,
            sites: AgentSites::new(targets),
            queue: JobQueue::new(concurrency.local_max()),
            running: RunningTasks::new(),
            requests: RequestTracker::default(),
            writes: WriteQueue::new(permit.is_none()),
            effects: UnknownEffects::default(),
            progress: ProgressRecorder::default(),
            dry_run: DryRun::default(),
            fact_watch: FactWatch::default(),
            concurrency,
            monitor: MonitorState::default(),
            clock: EngineClock::new(now),
            lifecycle: Lifecycle::new(permit),
            drift_policies: DriftPolicies::default(),
            commands: Vec::new(),
        }
    }

    /// Handles the first event, then fills the tables: every resource has its index now.
    pub(crate) fn recover(
        &mut self,
        start: Recovery,
        former: &[(Resource, ResourceKey)],
        states: &FxHashMap<ResourceKey, ResourceState>,
        unknown: FxHashSet<ResourceKey>,
    ) {
        self.effects = UnknownEffects::new(unknown);
        let now = self.clock.now();
        let mut commands = Vec::new();
        self.scheduler.handle(Event::Recover(Box::new(start)), now, &mut commands);
        for position in (0u32..).take(self.resources.resources().len()) {
            let (resource, key) = self.resources.desired(position);
            let Some(index) = self.scheduler.index_of(resource.id.as_str()) else { continue };
            let state = key.and_then(|key| states.get(&key));
            let entry = ResourceEntry {
                position: Some(position),
                key,
                stored: state.is_some(),
                changed_at: state.and_then(|state| state.last_produced_events),
            };
            self.resources.manage(index, entry);
        }
        let former = former.iter().map(|(resource, key)| (resource.id.as_str(), *key)).collect();
        self.execute_commands(commands, &former, now);
    }

    pub(crate) fn apply(&mut self, event: Event) {
        let now = self.clock.now();
        let mut commands = std::mem::take(&mut self.commands);
        debug_assert!(commands.is_empty(), "commands of an event are executed with it");
        let takes_back = matches!(event, Event::Cancel(_));
        self.scheduler.handle(event, now, &mut commands);
        self.execute_commands(commands, &FxHashMap::default(), now);
        if takes_back {
            self.drop_withdrawn();
        }
    }

    /// Handles an event from outside the engine.
    pub(crate) fn handle_external_event(&mut self, mut event: Event) {
        if matches!(
            event,
            Event::Verify(_) | Event::Drift(_) | Event::DeployDirty(_) | Event::DryRun(_)
        ) {
            self.sites.invalidate_caches();
        }
        if let Event::DeployDirty(filter) = &event {
            self.running.request_again(filter);
        }
        if let Event::SettingsChanged(settings) = &mut event {
            settings.running_max = self.concurrency.limit();
        }
        self.apply(event);
    }

    fn execute_commands(
        &mut self,
        mut commands: Vec<SchedulerCommand>,
        former: &FxHashMap<&str, ResourceKey>,
        now: Timestamp,
    ) {
        let mut processed = None;
        let mut states = Vec::new();
        for command in commands.drain(..) {
            match command {
                SchedulerCommand::Processed(version) => processed = Some(version),
                SchedulerCommand::Orphan { id, .. } => {
                    if let Some(&key) = former.get(id.as_str()) {
                        states.push((key, orphan_state()));
                    }
                }
                // A store without a processed version has no states; see `recovery`.
                SchedulerCommand::OrphanOthers => {}
                SchedulerCommand::Persist(changes) => {
                    for (index, parts) in changes {
                        self.persist_state(index, parts, processed.is_some(), &mut states);
                    }
                }
                SchedulerCommand::Start(start) => self.start_task(start, now),
                SchedulerCommand::Cancel { task, .. } => self.running.cancel(task),
                SchedulerCommand::GaveUp { task } => self.abandon_task(task, now),
                SchedulerCommand::Ignored { .. } => {}
                SchedulerCommand::DryRunSkipped { entry, reason: answer, .. } => {
                    self.dry_run.record(entry, DryRunEntry::Answer(answer));
                }
                SchedulerCommand::DryRunFinished { .. } => {}
                SchedulerCommand::Parked { id, attempts } => self.progress.park(id, attempts),
                SchedulerCommand::Warn(warning) => self.progress.warn(warning.to_string()),
                SchedulerCommand::WakeAt(at) => self.clock.set_wake_at(at),
            }
        }
        if let Some(version) = processed {
            self.writes.push(Write::Processed { version, states });
        }
        self.commands = commands;
    }

    fn abandon_task(&mut self, task: TaskNumber, now: Timestamp) {
        let Some(running_task) = self.running.abandon(task) else { return };
        self.queue.release(task);
        self.progress.count(OutcomeStatus::Failed, ChangeKind::NoChange);
        self.report_abandoned(&running_task, now);
        if running_task.noted {
            self.clear_long_run(&running_task.id);
        }
        if running_task.effect_started.get() {
            self.record_unknown_effect(&running_task.id);
        }
        if let Some(resource) = self.scheduler.index_of(running_task.id.as_str()) {
            let result = Some((OutcomeStatus::Failed, ChangeKind::NoChange));
            self.record_run_end(RunEnd { resource, task, facts: running_task.facts, result });
        }
    }

    /// Drops the pending runs.
    pub(crate) fn drop_pending_runs(&mut self) {
        for task in self.queue.clear() {
            self.running.drop_pending(task);
        }
    }

    /// Queues a changed state for the store. The mark of a running handler is not persisted:
    /// everything is verified after a start.
    fn persist_state(
        &mut self,
        index: ResourceIndex,
        parts: ChangedFields,
        with_version: bool,
        states: &mut Vec<(ResourceKey, ResourceState)>,
    ) {
        if parts == ChangedFields::DEPLOYING || self.writes.discards() {
            return;
        }
        let ResourceEntry { key: Some(key), stored, changed_at, .. } = self.resources.entry(index)
        else {
            return;
        };
        let Some(mut state) = self.scheduler.state(index) else { return };
        // The scheduler counts every run as an event for dependents; only a change makes them
        // reload.
        state.last_produced_events = changed_at;
        if with_version {
            // A resource without a stored state is new; the absence says so.
            if stored || state.blocked != Blocked::NotBlocked {
                self.resources.mark_stored(index);
                states.push((key, state));
            }
            return;
        }
        self.resources.mark_stored(index);
        self.writes.push(Write::Result(ResourceRecord {
            resource: key,
            state: Some(state),
            action: None,
            facts: Vec::new(),
            effect: None,
        }));
    }

    pub(crate) fn worker_demand(&self) -> WorkerDemand {
        // Threads stuck in an abandoned handler do not count.
        WorkerDemand {
            pending_runs: self.queue.len(),
            limit: self.concurrency.slots() + self.running.abandoned(),
        }
    }

    /// Returns true if a task could start with more slots.
    pub(crate) fn is_at_capacity(&self) -> bool {
        self.scheduler.is_limited()
    }

    /// Adjusts the slots to the number of slow runs.
    pub(crate) fn adjust_concurrency(&mut self) {
        let now = self.clock.now();
        let old = self.running.count_older_than(SLOW_RUN, now);
        // A pending run without a thread is not slow.
        let held = self.queue.held();
        let slow = old.saturating_sub(self.queue.len() + held);
        if self.concurrency.adjust(slow, held) {
            let limit = self.concurrency.limit();
            self.apply(Event::RunningMax(limit));
        }
    }

    /// Records the runs that have become long, and returns the time until the next check.
    pub(crate) fn record_long_runs(&mut self) -> Option<Duration> {
        let now = self.clock.now();
        let (long, next) = self.running.take_long(now);
        long.into_iter().for_each(|started| self.writes.push(Write::Began(started)));
        next
    }

    /// Returns true if a running task is not recorded yet.
    pub(crate) fn has_unrecorded_runs(&self) -> bool {
        !self.writes.discards() && self.running.has_unrecorded()
    }

    /// Clears the record of a long run that was abandoned.
    fn clear_long_run(&mut self, id: &ResourceId) {
        let Some(index) = self.scheduler.index_of(id.as_str()) else { return };
        let ResourceEntry { key: Some(resource), changed_at, .. } = self.resources.entry(index)
        else {
            return;
        };
        let Some(mut state) = self.scheduler.state(index) else { return };
        state.last_produced_events = changed_at;
        state.deploying = false;
        let (state, action, facts, effect) = (Some(state), None, Vec::new(), None);
        self.writes.push(Write::Result(ResourceRecord { resource, state, action, facts, effect }));
    }

    /// Handles a tick if one is due.
    pub(crate) fn tick_if_due(&mut self) {
        if self.clock.take_due() {
            self.apply(Event::Tick);
        }
    }

    /// Returns true if the owner should look: the engine is idle, or there is news.
    pub(crate) fn wants_attention(&self) -> bool {
        self.scheduler.is_idle()
            || self.clock.has_moved()
            || self.progress.has_parked()
            || self.progress.has_drifted()
            || self.effects.has_unreported()
            || self.requests.has_finished(self.writes.persisted())
    }

    pub(crate) fn must_wake_writer(&self) -> bool {
        self.writes.must_wake_writer(self.scheduler.is_idle())
    }

    pub(crate) fn take_progress(&mut self) -> Progress {
        let now = self.clock.now();
        let counts = self.scheduler.counts();
        let slowest = self
            .running
            .longest()
            .into_iter()
            .map(|running_task| RunningResource {
                id: running_task.id.clone(),
                elapsed: now.since(running_task.started),
            })
            .collect();
        let idle = self.scheduler.is_idle();
        let (finished, warnings) = self.progress.take_report();
        Progress {
            tally: self.progress.tally(),
            queued: counts.queued,
            waiting: counts.waiting,
            running: counts.running,
            slowest,
            finished,
            warnings,
            idle,
            stalled: !idle && counts.running == 0 && self.queue.is_empty(),
        }
    }
}

/// State of a resource that left the desired state.
fn orphan_state() -> ResourceState {
    let mut state = ResourceState::new(orrery_model::AttributeHash([0; 16]), false);
    state.intent = None;
    state
}
