//! What the engine keeps under its lock: the scheduler, tables beside it, jobs, and things to be written.
//!
//! Every event goes through `apply`, which carries out the scheduler's commands without waiting for anything.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use orrery_handlers::{Session, Stop};
use orrery_model::{
    Blocked, ChangeKind, Compliance, LogLevel, LogLine, Outcome, OutcomeStatus, Resource,
    ResourceId, ResourceState, Timestamp,
};
use orrery_scheduler::{
    Command, Decision, Dependency, Event, Parts, ResourceIndex, Scheduler, Start, TaskKind,
    TaskNumber, TaskResult, decide,
};
use orrery_store::{ActionKind, ResourceKey, Started, StoreError};
use rustc_hash::FxHashMap;

use crate::asked::Requests;
use crate::awaited::AwaitedFacts;
use crate::dry_run::{DryRun, DryRunEntry};
use crate::job::{AgentRoom, Job, JobKind};
use crate::load::Desired;
use crate::progress::{Finished, Progress, Running, Tally};
use crate::targets::Targets;
use crate::task::Performed;
use crate::writer::{Action, BATCH, Record, Write, WriterState};

/// How many of the running tasks a look at the engine names.
const SLOWEST: usize = 3;

/// What is known of a managed resource beside what the scheduler knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Position among the desired resources; `None` for one that is on its way out.
    pub(crate) position: Option<u32>,
    pub(crate) key: Option<ResourceKey>,
    /// Whether the store has a state of it.
    pub(crate) stored: bool,
    /// When a run last changed it.
    pub(crate) changed_at: Option<Timestamp>,
}

pub(crate) const NO_ENTRY: Entry =
    Entry { position: None, key: None, stored: false, changed_at: None };

/// A task that a worker has, or is about to get.
#[derive(Debug)]
pub(crate) struct Underway {
    stop: Stop,
    pub(crate) id: ResourceId,
    pub(crate) started: Timestamp,
    /// What is noted in the store if it takes long; `None` once it is, and for what is not noted.
    pub(crate) long: Option<Started>,
    /// That it is under way was noted because it takes long.
    pub(crate) noted: bool,
    /// It reads facts, and deploys nothing.
    facts: bool,
}

pub(crate) struct Core {
    pub(crate) scheduler: Scheduler,
    pub(crate) desired: Desired,
    targets: Arc<dyn Targets>,
    /// Positions among the desired resources that nobody has any more.
    pub(crate) free: Vec<u32>,
    entries: Vec<Entry>,
    /// With the pass in which each was last entered.
    rooms: Vec<Option<(u64, Arc<AgentRoom>)>>,
    /// Grows whenever what was learned about targets may be outdated.
    pass: u64,
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) underway: FxHashMap<TaskNumber, Underway>,
    /// The task that was started last.
    pub(crate) latest_task: TaskNumber,
    pub(crate) requests: Requests,
    /// Nothing is kept: for dry runs.
    pub(crate) discard: bool,
    pub(crate) writes: Vec<Write>,
    /// How many there ever were, and how many of them are kept.
    pub(crate) queued: u64,
    pub(crate) kept: u64,
    /// Among them is more than that something was found as it was.
    pub(crate) pressing: bool,
    pub(crate) writer: WriterState,
    /// Somebody watches for runs that take long.
    pub(crate) overseen: bool,
    pub(crate) dry_run: DryRun,
    pub(crate) wake_at: Option<Timestamp>,
    /// It was set since somebody last asked.
    pub(crate) wake_moved: bool,
    /// Unknowns that results have made known since somebody last asked.
    pub(crate) resolved: usize,
    /// Facts that are asked for once their resource is deployed.
    pub(crate) awaited_facts: AwaitedFacts,
    tally: Tally,
    finished: Vec<Finished>,
    warnings: Vec<String>,
    /// Tasks that were given up while their handlers still run.
    pub(crate) lost: usize,
    pub(crate) closed: bool,
    pub(crate) failure: Option<StoreError>,
    /// Time never goes back.
    latest: Timestamp,
    commands: Vec<Command>,
}

impl Core {
    pub(crate) fn new(
        scheduler: Scheduler,
        desired: Desired,
        targets: Arc<dyn Targets>,
        discard: bool,
    ) -> Self {
        Core {
            scheduler,
            desired,
            targets,
            free: Vec::new(),
            entries: Vec::new(),
            rooms: Vec::new(),
            pass: 0,
            jobs: VecDeque::new(),
            underway: FxHashMap::default(),
            latest_task: TaskNumber(0),
            requests: Requests::default(),
            discard,
            writes: Vec::new(),
            queued: 0,
            kept: 0,
            pressing: false,
            writer: WriterState::Absent,
            overseen: false,
            dry_run: DryRun::default(),
            wake_at: None,
            wake_moved: false,
            resolved: 0,
            awaited_facts: AwaitedFacts::default(),
            tally: Tally::default(),
            finished: Vec::new(),
            warnings: Vec::new(),
            lost: 0,
            closed: false,
            failure: None,
            latest: Timestamp::default(),
            commands: Vec::new(),
        }
    }

    pub(crate) fn now(&mut self) -> Timestamp {
        self.latest = self.latest.max(crate::job::now());
        self.latest
    }

    /// The first event: afterwards every resource has its number, and the tables can be made.
    pub(crate) fn begin(
        &mut self,
        start: orrery_scheduler::Recovery,
        former: &[(Resource, ResourceKey)],
        states: &FxHashMap<ResourceKey, ResourceState>,
    ) {
        let now = self.now();
        let mut commands = Vec::new();
        self.scheduler.handle(Event::Recover(Box::new(start)), now, &mut commands);
        for position in (0u32..).take(self.desired.resources.len()) {
            let (resource, key) = self.wanted(position);
            let Some(index) = self.scheduler.index_of(resource.id.as_str()) else { continue };
            let state = key.and_then(|key| states.get(&key));
            *self.entry_mut(index) = Entry {
                position: Some(position),
                key,
                stored: state.is_some(),
                changed_at: state.and_then(|state| state.last_produced_events),
            };
        }
        let former = former.iter().map(|(resource, key)| (resource.id.as_str(), *key)).collect();
        self.carry_out(commands, &former, now);
    }

    pub(crate) fn apply(&mut self, event: Event) {
        let now = self.now();
        let mut commands = std::mem::take(&mut self.commands);
        let takes_back = matches!(event, Event::Cancel(_));
        self.scheduler.handle(event, now, &mut commands);
        self.carry_out(commands, &FxHashMap::default(), now);
        if takes_back {
            self.look_for_withdrawn();
        }
    }

    /// Takes in what somebody outside asks for.
    pub(crate) fn take_in(&mut self, event: Event) {
        if matches!(event, Event::Repair(_) | Event::Deploy(_) | Event::DryRun(_)) {
            self.begin_pass();
        }
        self.apply(event);
    }

    fn wanted(&self, position: u32) -> (&Resource, Option<ResourceKey>) {
        let at = position as usize;
        (&self.desired.resources[at], self.desired.keys.get(at).copied())
    }

    pub(crate) fn entry_mut(&mut self, index: ResourceIndex) -> &mut Entry {
        let at = index.as_usize();
        if self.entries.len() <= at {
            self.entries.resize(at + 1, NO_ENTRY);
        }
        &mut self.entries[at]
    }

    pub(crate) fn entry(&self, index: ResourceIndex) -> Entry {
        self.entries.get(index.as_usize()).copied().unwrap_or(NO_ENTRY)
    }

    pub(crate) fn carry_out(
        &mut self,
        mut commands: Vec<Command>,
        former: &FxHashMap<&str, ResourceKey>,
        now: Timestamp,
    ) {
        let mut processed = None;
        let mut states = Vec::new();
        for command in commands.drain(..) {
            match command {
                Command::Processed(version) => processed = Some(version),
                Command::Orphan { id, .. } => {
                    if let Some(&key) = former.get(id.as_str()) {
                        states.push((key, orphan()));
                    }
                }
                // A store without a processed version has no states; see `load`.
                Command::OrphanOthers => {}
                Command::Persist(changes) => {
                    for (index, parts) in changes {
                        self.keep(index, parts, processed.is_some(), &mut states);
                    }
                }
                Command::Start(start) => self.start(start, now),
                Command::Cancel { task, .. } => {
                    if let Some(underway) = self.underway.get(&task) {
                        underway.stop.cancel();
                    }
                }
                Command::GaveUp { task } => {
                    if let Some(underway) = self.underway.remove(&task) {
                        self.lost += 1;
                        self.tally.failed += 1;
                        self.give_up(&underway, now);
                        if underway.noted {
                            self.has_ended(&underway.id);
                        }
                        if let Some(index) = self.scheduler.index_of(underway.id.as_str()) {
                            let failed = (OutcomeStatus::Failed, ChangeKind::NoChange);
                            self.run_ended(index, task, underway.facts, Some(failed));
                        }
                    }
                }
                Command::Ignored { .. } => {}
                Command::DryRunAnswer { entry, answer, .. } => {
                    self.dry_run_answer(entry, DryRunEntry::Answer(answer));
                }
                Command::DryRunFinished { .. } => {}
                Command::Warn(warning) => self.warnings.push(warning.to_string()),
                Command::WakeAt(at) => {
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

    pub(crate) fn take_writes(&mut self) -> Vec<Write> {
        self.pressing = false;
        std::mem::take(&mut self.writes)
    }

    /// Whether the writer has to be told after a job. Telling it more often would cost as much as the job.
    pub(crate) fn must_wake_writer(&self) -> bool {
        let enough = self.writes.len() >= BATCH || self.scheduler.is_idle();
        match self.writer {
            WriterState::Waits | WriterState::Absent => {
                !self.writes.is_empty() && (self.pressing || enough)
            }
            WriterState::Gathers => enough,
            WriterState::Writes => false,
        }
    }

    /// Notes a changed state. A mark that a handler runs is not kept here: everything is verified after a start.
    fn keep(
        &mut self,
        index: ResourceIndex,
        parts: Parts,
        with_version: bool,
        states: &mut Vec<(ResourceKey, ResourceState)>,
    ) {
        if parts == Parts::DEPLOYING || self.discard {
            return;
        }
        let Entry { key: Some(key), stored, changed_at, .. } = self.entry(index) else { return };
        let Some(mut state) = self.scheduler.state(index) else { return };
        // The scheduler counts every run as a cause for dependents to look again; what they would reload
        // for is a change.
        state.last_produced_events = changed_at;
        if with_version {
            // A resource without a state in the store is new, and says so by that.
            if stored || state.blocked != Blocked::NotBlocked {
                self.entry_mut(index).stored = true;
                states.push((key, state));
            }
            return;
        }
        self.entry_mut(index).stored = true;
        self.write(Write::Result(Record {
            resource: key,
            state: Some(state),
            action: None,
            facts: Vec::new(),
        }));
    }

    fn start(&mut self, start: Start, now: Timestamp) {
        let (kind, position, index) = match start.kind {
            TaskKind::Deploy(index) => (JobKind::Deploy, self.entry(index).position, Some(index)),
            TaskKind::FactRefresh(index) => {
                (JobKind::Facts, self.entry(index).position, Some(index))
            }
            TaskKind::DryRun { entry, .. } => {
                let position = self.dry_run.positions.get(entry as usize).copied();
                (JobKind::DryRun { entry }, position, None)
            }
        };
        let Some(position) = position else {
            // It was taken out of the version while it stood in line; nothing is left to be done.
            let result = TaskResult::Cancelled;
            return self.apply(Event::TaskFinished { task: start.task, result });
        };
        let (resource, key) = self.wanted(position);
        let (resource, flags) = (resource.clone(), resource.flags);
        let state = index.and_then(|index| self.scheduler.state(index));
        let last_success = state.as_ref().and_then(|state| state.last_success);
        let mut skip = None;
        let mut changed_dependencies = Vec::new();
        let mut announce = None;
        if kind == JobKind::Deploy {
            announce = index
                .filter(|&index| self.may_cause_reloads(index))
                .and(key)
                .map(|key| (key, self.desired.version));
            let statuses = start.dependencies.iter().map(|dependency| dependency.status);
            if let Decision::Skip { level, because } = decide(statuses, flags.report_only) {
                skip = Some((level, because, self.bad_ones(&start.dependencies)));
            }
            if flags.receive_events {
                changed_dependencies = self.changed_since(&start.dependencies, last_success);
            }
        }
        let mut deployed_before = last_success.is_some();
        if matches!(kind, JobKind::DryRun { .. }) {
            (deployed_before, changed_dependencies) = self.before_dry_run(position);
        }
        let deadline = start.deadline.and_then(|at| Instant::now().checked_add(at.since(now)));
        let stop = deadline.map_or_else(Stop::never, Stop::at);
        let id = resource.id.clone();
        let version = self.desired.version;
        let long = key
            .filter(|_| kind == JobKind::Deploy && skip.is_none())
            .map(|resource| Started { resource, kind: ActionKind::Deploy, version, at: now });
        self.latest_task = self.latest_task.max(start.task);
        let facts = kind == JobKind::Facts;
        let underway = Underway { stop: stop.clone(), id, started: now, long, noted: false, facts };
        self.underway.insert(start.task, underway);
        self.jobs.push_back(Job {
            task: start.task,
            kind,
            resource,
            key,
            agent: start.agent,
            stop,
            started: now,
            version: self.desired.version,
            reason: start.reason,
            skip,
            deployed_before,
            was_compliant: state
                .is_some_and(|state| state.compliance() == Some(Compliance::Compliant)),
            changed_dependencies,
            announce,
        });
    }

    /// Whether somebody would reload for its changes: those that never ended well have nothing to reload.
    fn may_cause_reloads(&self, index: ResourceIndex) -> bool {
        let sends = self.scheduler.flags(index).is_some_and(|flags| flags.send_event);
        let reloads = |one: ResourceIndex| {
            self.scheduler.flags(one).is_some_and(|flags| flags.receive_events)
                && self.scheduler.state(one).is_some_and(|state| state.last_success.is_some())
        };
        sends && !self.discard && self.scheduler.dependents(index).into_iter().any(reloads)
    }

    fn bad_ones(&self, dependencies: &[Dependency]) -> Vec<ResourceId> {
        dependencies
            .iter()
            .filter(|dependency| dependency.status != orrery_model::Status::Deployed)
            .filter_map(|dependency| self.scheduler.id(dependency.resource).cloned())
            .collect()
    }

    /// Requirements that send events and changed something after the dependent last ended well. For one that never
    /// did, whatever is known to have changed is news.
    fn changed_since(
        &self,
        dependencies: &[Dependency],
        last_success: Option<Timestamp>,
    ) -> Vec<ResourceId> {
        let is_news = |at| last_success.is_none_or(|last_success| at > last_success);
        dependencies
            .iter()
            .map(|dependency| dependency.resource)
            .filter(|&index| self.entry(index).changed_at.is_some_and(is_news))
            .filter(|&index| self.scheduler.flags(index).is_some_and(|flags| flags.send_event))
            .filter_map(|index| self.scheduler.id(index).cloned())
            .collect()
    }

    /// Where an agent's resources live; asked for when its first job is taken.
    pub(crate) fn room(&mut self, job: &Job) -> Arc<AgentRoom> {
        let at = job.agent.as_usize();
        if self.rooms.len() <= at {
            self.rooms.resize_with(at + 1, || None);
        }
        let pass = self.pass;
        if let Some((entered, room)) = &mut self.rooms[at] {
            if *entered != pass {
                room.session.clear();
                *entered = pass;
            }
            return Arc::clone(room);
        }
        let place = self.targets.place(job.resource.id.agent());
        let room = Arc::new(AgentRoom { place, session: Session::new() });
        self.rooms[at] = Some((pass, Arc::clone(&room)));
        room
    }

    /// Another pass begins: what was learned about the targets may be outdated.
    pub(crate) fn begin_pass(&mut self) {
        self.pass += 1;
    }

    /// Agents may have moved: where they are is asked anew.
    pub(crate) fn forget_places(&mut self) {
        self.rooms.clear();
    }

    /// A worker is done with a job.
    pub(crate) fn job_ended(&mut self, job: Job, performed: Performed) {
        let Performed { mut outcome, announced, repeated } = performed;
        let now = self.now();
        let Some(underway) = self.underway.remove(&job.task) else {
            // It was given up before.
            self.lost = self.lost.saturating_sub(1);
            return;
        };
        if let JobKind::DryRun { entry } = job.kind {
            self.tally.add(outcome.status, outcome.change.kind);
            self.dry_run_answer(entry, DryRunEntry::Outcome(outcome));
            let result = TaskResult::Finished(OutcomeStatus::Deployed);
            return self.apply(Event::TaskFinished { task: job.task, result });
        }
        let interrupted = job.stop.is_cancelled() && outcome.status == OutcomeStatus::Skipped;
        let late = job.stop.remaining().is_some_and(|left| left.is_zero());
        if interrupted && late {
            // Whether the handler saw the deadline or the cancellation that follows it first is chance.
            outcome.status = OutcomeStatus::Failed;
            let message = "it took longer than it may, and was stopped".to_owned();
            let values = serde_json::Map::new();
            outcome.log.push(LogLine { at: now, level: LogLevel::Error, message, values });
        }
        let result = if interrupted && !late {
            self.tally.cancelled += 1;
            TaskResult::Cancelled
        } else {
            self.tally.add(outcome.status, outcome.change.kind);
            TaskResult::Finished(outcome.status)
        };
        let verdict = match result {
            TaskResult::Finished(status) => Some((status, outcome.change.kind)),
            TaskResult::Cancelled => None,
        };
        let unclear = announced && (repeated || outcome.status != OutcomeStatus::Deployed);
        if (unclear || outcome.change.kind != ChangeKind::NoChange)
            && let Some(index) = self.scheduler.index_of(job.resource.id.as_str())
        {
            self.entry_mut(index).changed_at = Some(now);
        }
        self.tell(&job, &outcome, now);
        self.apply(Event::TaskFinished { task: job.task, result });
        let due = job.kind == JobKind::Deploy && self.awaited_facts.are_due(&job, &outcome);
        self.record(&job, outcome, underway.noted, now);
        // After that: whoever asked for it is told when it is kept.
        if !self.requests.is_empty()
            && let Some(index) = self.scheduler.index_of(job.resource.id.as_str())
        {
            self.run_ended(index, job.task, job.kind == JobKind::Facts, verdict);
        }
        if due {
            self.apply(Event::FactRefresh(vec![job.resource.id]));
        }
        if self.scheduler.is_idle() {
            // Whatever comes next, a timer or a version, may come much later.
            self.begin_pass();
        }
    }

    /// Keeps what a run did. One that found everything as it was is kept in the state alone, unless it was noted that it takes
    /// long, which its end takes back.
    fn record(&mut self, job: &Job, outcome: Outcome, noted: bool, now: Timestamp) {
        let uneventful = !noted
            && job.kind == JobKind::Deploy
            && job.was_compliant
            && outcome.status == OutcomeStatus::Deployed
            && outcome.change.kind == ChangeKind::NoChange
            && outcome.log.is_empty();
        if uneventful && outcome.facts.is_empty() {
            return;
        }
        self.pressing = true;
        let action = (!uneventful).then(|| Action {
            kind: if job.kind == JobKind::Facts {
                ActionKind::GetFacts
            } else {
                ActionKind::Deploy
            },
            version: job.version,
            started: job.started,
            finished: now,
            outcome: outcome.status,
            change: outcome.change,
            log: outcome.log,
        });
        let Some(resource) = job.key else { return };
        self.write(Write::Result(Record { resource, state: None, action, facts: outcome.facts }));
    }

    fn tell(&mut self, job: &Job, outcome: &Outcome, now: Timestamp) {
        if outcome.status == OutcomeStatus::Deployed && outcome.change.kind == ChangeKind::NoChange
        {
            return;
        }
        let complaint = outcome.log.iter().rfind(|line| line.level >= LogLevel::Warning);
        let complaint = complaint
            .or_else(|| outcome.log.last().filter(|_| outcome.status != OutcomeStatus::Deployed));
        let hint = complaint.and_then(|line| line.values.get("hint")?.as_str());
        self.finished.push(Finished {
            id: job.resource.id.clone(),
            status: outcome.status,
            change: outcome.change.clone(),
            message: complaint.map(|line| line.message.clone()),
            hint: hint.map(str::to_owned),
            took: now.since(job.started),
            reason: job.reason.clone(),
        });
    }

    fn give_up(&mut self, underway: &Underway, now: Timestamp) {
        self.finished.push(Finished {
            id: underway.id.clone(),
            status: OutcomeStatus::Failed,
            change: orrery_model::Change::default(),
            message: Some(
                "the handler did not end in time, not even after it was cancelled".into(),
            ),
            hint: None,
            took: now.since(underway.started),
            reason: orrery_scheduler::Reason::Interrupted,
        });
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether the time has come for a tick.
    pub(crate) fn tick_if_due(&mut self) {
        let now = self.now();
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
            self.apply(Event::Tick);
        }
    }

    pub(crate) fn look(&mut self) -> Progress {
        let now = self.now();
        let counts = self.scheduler.counts();
        let mut running: Vec<&Underway> = self.underway.values().collect();
        running.sort_unstable_by(|one, other| {
            one.started.cmp(&other.started).then_with(|| one.id.cmp(&other.id))
        });
        let slowest = running
            .into_iter()
            .take(SLOWEST)
            .map(|underway| Running {
                id: underway.id.clone(),
                for_so_long: now.since(underway.started),
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
            stalled: !idle && counts.running == 0 && self.jobs.is_empty(),
        }
    }
}

/// The state of a resource that is no longer wanted.
fn orphan() -> ResourceState {
    let mut state = ResourceState::new(orrery_model::AttributeHash([0; 16]), false);
    state.intent = None;
    state
}
