//! What the engine keeps under its lock: the scheduler, tables beside it, jobs, and things to be written.
//!
//! Every event goes through `apply`, which carries out the scheduler's commands without waiting for anything.

mod ending;
mod starting;

use std::collections::VecDeque;
use std::sync::Arc;

use orrery_handlers::{Permit, Session, Stop};
use orrery_model::{
    Blocked, ChangeKind, OutcomeStatus, Resource, ResourceId, ResourceState, Timestamp,
};
use orrery_scheduler::{Command, Event, Parts, ResourceIndex, Scheduler, TaskNumber};
use orrery_store::{ResourceKey, Started, StoreError};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::asked::Requests;
use crate::awaited::AwaitedFacts;
use crate::begun::IsBegun;
use crate::dry_run::{DryRun, DryRunEntry};
use crate::job::{AgentRoom, Job};
use crate::load::Desired;
use crate::progress::{Finished, Progress, Running, Tally};
use crate::room::Room;
use crate::targets::Targets;
use crate::writer::{BATCH, Record, Write, WriterState};

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
    /// Whether an effect was begun that must not be repeated.
    is_begun: Arc<IsBegun>,
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
    /// Somebody looks after slow runs.
    pub(crate) overseen: bool,
    /// And knows that something is held up.
    pub(crate) alarmed: bool,
    pub(crate) room: Room,
    /// What failed as often as it may, since somebody last asked, with the number of attempts.
    pub(crate) parked: Vec<(ResourceId, u32)>,
    /// Resources of whose effect nobody knows whether it happened.
    pub(crate) unknown: FxHashSet<ResourceKey>,
    /// Those that people are still to be told of.
    pub(crate) became_unknown: Vec<ResourceId>,
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
    /// The right to act under the lease; `None` for dry runs.
    pub(crate) permit: Option<Permit>,
    /// That right ended.
    pub(crate) is_unauthorized: bool,
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
        room: Room,
        permit: Option<Permit>,
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
            discard: permit.is_none(),
            writes: Vec::new(),
            queued: 0,
            kept: 0,
            pressing: false,
            writer: WriterState::Absent,
            overseen: false,
            alarmed: false,
            room,
            parked: Vec::new(),
            unknown: FxHashSet::default(),
            became_unknown: Vec::new(),
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
            permit,
            is_unauthorized: false,
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
    pub(crate) fn take_in(&mut self, mut event: Event) {
        if matches!(event, Event::Repair(_) | Event::Deploy(_) | Event::DryRun(_)) {
            self.begin_pass();
        }
        if let Event::SettingsChanged(settings) = &mut event {
            settings.running_max = self.room.limit();
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
                        if underway.is_begun.get() {
                            self.effect_is_unknown(&underway.id);
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
                Command::Parked { id, attempts } => self.parked.push((id, attempts)),
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

    /// Forgets the jobs that no worker has yet.
    pub(crate) fn drop_jobs(&mut self) {
        for job in self.jobs.drain(..) {
            self.underway.remove(&job.task);
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
            effect: None,
        }));
    }

    /// Where an agent's resources live; asked for when its first job is taken.
    pub(crate) fn place_of(&mut self, job: &Job) -> Arc<AgentRoom> {
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

    /// Some of the runs that are under way, the longest running first.
    pub(crate) fn longest_running(&self) -> Vec<&Underway> {
        let mut running: Vec<&Underway> = self.underway.values().collect();
        running.sort_unstable_by(|one, other| {
            one.started.cmp(&other.started).then_with(|| one.id.cmp(&other.id))
        });
        running.truncate(SLOWEST);
        running
    }

    pub(crate) fn look(&mut self) -> Progress {
        let now = self.now();
        let counts = self.scheduler.counts();
        let slowest = self
            .longest_running()
            .into_iter()
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
