//! State of the engine under its lock: scheduler, tables, pending runs and queued writes.
//!
//! Every event goes through `apply`, which executes the scheduler's commands without blocking.

mod finish_task;
mod start_task;

use std::collections::VecDeque;
use std::sync::Arc;

use orrery_handlers::clock::now;
use orrery_handlers::{CancelToken, Permit, Registry, TargetCache};
use orrery_model::{
    Blocked, ChangeKind, OutcomeStatus, Resource, ResourceId, ResourceState, Timestamp,
};
use orrery_scheduler::{
    ChangedFields, Event, ResourceIndex, Scheduler, SchedulerCommand, TaskNumber,
};
use orrery_store::{ResourceKey, StartedAction, StoreError};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::concurrency::Concurrency;
use crate::dry_run::{DryRun, DryRunEntry};
use crate::fact_watch::FactWatch;
use crate::pending_run::{EffectStarted, PendingRun};
use crate::placement::{AgentContext, TargetResolver};
use crate::progress::{FinishedRun, Progress, RunningResource, Tally};
use crate::recovery::DesiredState;
use crate::requests::Requests;
use crate::writer::{BATCH_SIZE, ResourceRecord, Write, WriterState};

/// Number of running tasks that a progress report names.
const SLOWEST: usize = 3;

/// Data of a managed resource beside the scheduler's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceEntry {
    /// Position among the desired resources; `None` for one that is being removed.
    pub(crate) position: Option<u32>,
    pub(crate) key: Option<ResourceKey>,
    /// True if the store has a state of it.
    pub(crate) stored: bool,
    /// Time of the last run that changed it.
    pub(crate) changed_at: Option<Timestamp>,
}

pub(crate) const NO_ENTRY: ResourceEntry =
    ResourceEntry { position: None, key: None, stored: false, changed_at: None };

/// A task that a worker runs or is about to get.
#[derive(Debug)]
pub(crate) struct RunningTask {
    stop: CancelToken,
    pub(crate) id: ResourceId,
    pub(crate) started: Timestamp,
    /// Record to write if the run takes long; `None` once written, and for runs that are not
    /// recorded.
    pub(crate) long: Option<StartedAction>,
    /// A long-run record was written.
    pub(crate) noted: bool,
    /// Reads facts and deploys nothing.
    facts: bool,
    /// Set when an effect starts that must not be repeated.
    effect_started: Arc<EffectStarted>,
}

pub(crate) struct EngineState {
    pub(crate) scheduler: Scheduler,
    pub(crate) desired: DesiredState,
    /// A new version may bring other handlers.
    pub(crate) registry: Arc<Registry>,
    targets: Arc<dyn TargetResolver>,
    /// Unused positions among the desired resources.
    pub(crate) free_positions: Vec<u32>,
    entries: Vec<ResourceEntry>,
    /// Each with the cache generation of its last use.
    agent_contexts: Vec<Option<(u64, Arc<AgentContext>)>>,
    /// Grows whenever cached data about targets may be outdated.
    cache_generation: u64,
    pub(crate) pending_runs: VecDeque<PendingRun>,
    pub(crate) running_tasks: FxHashMap<TaskNumber, RunningTask>,
    /// The task that was started last.
    pub(crate) latest_task: TaskNumber,
    pub(crate) requests: Requests,
    /// Nothing is persisted: for dry runs.
    pub(crate) discard: bool,
    pub(crate) writes: Vec<Write>,
    /// Number of writes ever queued, and of those persisted.
    pub(crate) queued: u64,
    pub(crate) persisted: u64,
    /// The queue has more than unchanged results.
    pub(crate) is_urgent: bool,
    pub(crate) writer: WriterState,
    /// The run monitor exists.
    pub(crate) has_run_monitor: bool,
    /// The run monitor knows that tasks are held up.
    pub(crate) monitor_alerted: bool,
    pub(crate) concurrency: Concurrency,
    /// Resources parked since the last call, with the number of attempts.
    pub(crate) parked: Vec<(ResourceId, u32)>,
    /// Resources with an unknown effect.
    pub(crate) unknown: FxHashSet<ResourceKey>,
    /// Of those, the ones not yet reported.
    pub(crate) became_unknown: Vec<ResourceId>,
    pub(crate) dry_run: DryRun,
    pub(crate) wake_at: Option<Timestamp>,
    /// True if `wake_at` was set since the last notice.
    pub(crate) wake_moved: bool,
    /// Unknowns resolved by results since the last call.
    pub(crate) resolved: usize,
    /// Facts to refresh once their resource is deployed.
    pub(crate) fact_watch: FactWatch,
    tally: Tally,
    finished: Vec<FinishedRun>,
    warnings: Vec<String>,
    /// Abandoned tasks with a handler that still runs.
    pub(crate) abandoned: usize,
    pub(crate) closed: bool,
    /// The right to act under the lease; `None` for dry runs.
    pub(crate) permit: Option<Permit>,
    /// The permit ended.
    pub(crate) is_unauthorized: bool,
    pub(crate) failure: Option<StoreError>,
    /// Latest time seen; time never goes back.
    latest: Timestamp,
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
            desired,
            registry,
            targets,
            free_positions: Vec::new(),
            entries: Vec::new(),
            agent_contexts: Vec::new(),
            cache_generation: 0,
            pending_runs: VecDeque::new(),
            running_tasks: FxHashMap::default(),
            latest_task: TaskNumber(0),
            requests: Requests::default(),
            discard: permit.is_none(),
            writes: Vec::new(),
            queued: 0,
            persisted: 0,
            is_urgent: false,
            writer: WriterState::Absent,
            has_run_monitor: false,
            monitor_alerted: false,
            concurrency,
            parked: Vec::new(),
            unknown: FxHashSet::default(),
            became_unknown: Vec::new(),
            dry_run: DryRun::default(),
            wake_at: None,
            wake_moved: false,
            resolved: 0,
            fact_watch: FactWatch::default(),
            tally: Tally::default(),
            finished: Vec::new(),
            warnings: Vec::new(),
            abandoned: 0,
            closed: false,
            permit,
            is_unauthorized: false,
            failure: None,
            latest: Timestamp::default(),
            commands: Vec::new(),
        }
    }

    pub(crate) fn now(&mut self) -> Timestamp {
        self.latest = self.latest.max(now());
        self.latest
    }

    /// Handles the first event, then fills the tables: every resource has its index now.
    pub(crate) fn recover(
        &mut self,
        start: orrery_scheduler::Recovery,
        former: &[(Resource, ResourceKey)],
        states: &FxHashMap<ResourceKey, ResourceState>,
    ) {
        let now = self.now();
        let mut commands = Vec::new();
        self.scheduler.handle(Event::Recover(Box::new(start)), now, &mut commands);
        for position in (0u32..).take(self.desired.resources.len()) {
            let (resource, key) = self.desired_resource(position);
            let Some(index) = self.scheduler.index_of(resource.id.as_str()) else { continue };
            let state = key.and_then(|key| states.get(&key));
            *self.entry_mut(index) = ResourceEntry {
                position: Some(position),
                key,
                stored: state.is_some(),
                changed_at: state.and_then(|state| state.last_produced_events),
            };
        }
        let former = former.iter().map(|(resource, key)| (resource.id.as_str(), *key)).collect();
        self.execute_commands(commands, &former, now);
    }

    pub(crate) fn apply(&mut self, event: Event) {
        let now = self.now();
        let mut commands = std::mem::take(&mut self.commands);
        let takes_back = matches!(event, Event::Cancel(_));
        self.scheduler.handle(event, now, &mut commands);
        self.execute_commands(commands, &FxHashMap::default(), now);
        if takes_back {
            self.drop_withdrawn();
        }
    }

    /// Handles an event from outside the engine.
    pub(crate) fn handle_external_event(&mut self, mut event: Event) {
        if matches!(event, Event::Verify(_) | Event::DeployDirty(_) | Event::DryRun(_)) {
            self.invalidate_caches();
        }
        if let Event::SettingsChanged(settings) = &mut event {
            settings.running_max = self.concurrency.limit();
        }
        self.apply(event);
    }

    fn desired_resource(&self, position: u32) -> (&Resource, Option<ResourceKey>) {
        let at = position as usize;
        (&self.desired.resources[at], self.desired.keys.get(at).copied())
    }

    pub(crate) fn entry_mut(&mut self, index: ResourceIndex) -> &mut ResourceEntry {
        let at = index.as_usize();
        if self.entries.len() <= at {
            self.entries.resize(at + 1, NO_ENTRY);
        }
        &mut self.entries[at]
    }

    pub(crate) fn entry(&self, index: ResourceIndex) -> ResourceEntry {
        self.entries.get(index.as_usize()).copied().unwrap_or(NO_ENTRY)
    }

    pub(crate) fn execute_commands(
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
                SchedulerCommand::Cancel { task, .. } => {
                    if let Some(running_task) = self.running_tasks.get(&task) {
                        running_task.stop.cancel();
                    }
                }
                SchedulerCommand::GaveUp { task } => {
                    if let Some(running_task) = self.running_tasks.remove(&task) {
                        self.abandoned += 1;
                        self.tally.failed += 1;
                        self.report_abandoned(&running_task, now);
                        if running_task.noted {
                            self.clear_long_run(&running_task.id);
                        }
                        if running_task.effect_started.get() {
                            self.record_unknown_effect(&running_task.id);
                        }
                        if let Some(index) = self.scheduler.index_of(running_task.id.as_str()) {
                            let failed = (OutcomeStatus::Failed, ChangeKind::NoChange);
                            self.record_run_end(index, task, running_task.facts, Some(failed));
                        }
                    }
                }
                SchedulerCommand::Ignored { .. } => {}
                SchedulerCommand::DryRunSkipped { entry, reason: answer, .. } => {
                    self.record_dry_run_entry(entry, DryRunEntry::Answer(answer));
                }
                SchedulerCommand::DryRunFinished { .. } => {}
                SchedulerCommand::Parked { id, attempts } => self.parked.push((id, attempts)),
                SchedulerCommand::Warn(warning) => self.warnings.push(warning.to_string()),
                SchedulerCommand::WakeAt(at) => {
                    self.wake_at = Some(at);
                    self.wake_moved = true;
                }
            }
        }
        if let Some(version) = processed {
            self.write(Write::Processed { version, states });
        }
        self.commands = commands;
    }

    pub(crate) fn write(&mut self, write: Write) {
        if !self.discard {
            self.writes.push(write);
            self.queued += 1;
        }
    }

    /// Drops the pending runs.
    pub(crate) fn drop_pending_runs(&mut self) {
        for run in self.pending_runs.drain(..) {
            self.running_tasks.remove(&run.task);
        }
    }

    pub(crate) fn take_writes(&mut self) -> Vec<Write> {
        self.is_urgent = false;
        std::mem::take(&mut self.writes)
    }

    /// Returns true if the writer must be woken after a run. Waking it more often would cost as
    /// much as the run.
    pub(crate) fn must_wake_writer(&self) -> bool {
        let enough = self.writes.len() >= BATCH_SIZE || self.scheduler.is_idle();
        match self.writer {
            WriterState::Idle | WriterState::Absent => {
                !self.writes.is_empty() && (self.is_urgent || enough)
            }
            WriterState::Batching => enough,
            WriterState::Writing => false,
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
        if parts == ChangedFields::DEPLOYING || self.discard {
            return;
        }
        let ResourceEntry { key: Some(key), stored, changed_at, .. } = self.entry(index) else {
            return;
        };
        let Some(mut state) = self.scheduler.state(index) else { return };
        // The scheduler counts every run as an event for dependents; only a change makes them
        // reload.
        state.last_produced_events = changed_at;
        if with_version {
            // A resource without a stored state is new; the absence says so.
            if stored || state.blocked != Blocked::NotBlocked {
                self.entry_mut(index).stored = true;
                states.push((key, state));
            }
            return;
        }
        self.entry_mut(index).stored = true;
        self.write(Write::Result(ResourceRecord {
            resource: key,
            state: Some(state),
            action: None,
            facts: Vec::new(),
            effect: None,
        }));
    }

    /// Returns the site and cache of an agent; resolves the site at its first run.
    pub(crate) fn agent_context(&mut self, run: &PendingRun) -> Arc<AgentContext> {
        let at = run.agent.as_usize();
        if self.agent_contexts.len() <= at {
            self.agent_contexts.resize_with(at + 1, || None);
        }
        let generation = self.cache_generation;
        if let Some((used_in, context)) = &mut self.agent_contexts[at] {
            if *used_in != generation {
                context.cache.clear();
                *used_in = generation;
            }
            return Arc::clone(context);
        }
        let site = self.targets.resolve(run.resource.id.agent());
        let context = Arc::new(AgentContext { site, cache: TargetCache::new() });
        self.agent_contexts[at] = Some((generation, Arc::clone(&context)));
        context
    }

    /// Invalidates cached data about all targets.
    pub(crate) fn invalidate_caches(&mut self) {
        self.cache_generation += 1;
    }

    /// Drops resolved sites: agents may have moved.
    pub(crate) fn invalidate_sites(&mut self) {
        self.agent_contexts.clear();
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Handles a tick if one is due.
    pub(crate) fn tick_if_due(&mut self) {
        let now = self.now();
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
            self.apply(Event::Tick);
        }
    }

    /// Some of the running tasks, the longest running first.
    pub(crate) fn longest_running(&self) -> Vec<&RunningTask> {
        let mut running: Vec<&RunningTask> = self.running_tasks.values().collect();
        running.sort_unstable_by(|one, other| {
            one.started.cmp(&other.started).then_with(|| one.id.cmp(&other.id))
        });
        running.truncate(SLOWEST);
        running
    }

    pub(crate) fn take_progress(&mut self) -> Progress {
        let now = self.now();
        let counts = self.scheduler.counts();
        let slowest = self
            .longest_running()
            .into_iter()
            .map(|running_task| RunningResource {
                id: running_task.id.clone(),
                elapsed: now.since(running_task.started),
            })
            .collect();
        let idle = self.scheduler.is_idle();
        Progress {
            tally: self.tally,
            queued: counts.queued,
            waiting: counts.waiting,
            running: counts.running,
            slowest,
            finished: std::mem::take(&mut self.finished),
            warnings: std::mem::take(&mut self.warnings),
            idle,
            stalled: !idle && counts.running == 0 && self.pending_runs.is_empty(),
        }
    }
}

/// State of a resource that left the desired state.
fn orphan_state() -> ResourceState {
    let mut state = ResourceState::new(orrery_model::AttributeHash([0; 16]), false);
    state.intent = None;
    state
}
