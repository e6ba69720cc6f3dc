//! Test harness: events in, commands executed, virtual time, scripted handlers, a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_model::{
    AttributeHash, Duration, OutcomeStatus, ResourceFlags, ResourceId, ResourceState, SetName,
    Status, Timestamp, VersionNumber,
};
use orrery_scheduler::{
    ChangedFields, Decision, Event, Filter, Intent, Reason, RecoveredResource, Recovery, Scheduler,
    SchedulerCommand, SchedulerWarning, Scope, SetContent, SetDiff, Settings, Start, TaskKind,
    TaskNumber, TaskResult, VersionDiff, decide,
};

/// A resource of a model in short form: `r("a").requires(&["b"])`. `x/a` is on agent `x`; `a` has
/// an agent of its own.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) value: u8,
    pub(crate) requires: Vec<String>,
    pub(crate) flags: ResourceFlags,
    pub(crate) set: SetName,
}

pub(crate) fn r(name: &str) -> Model {
    Model {
        name: name.to_owned(),
        value: 0,
        requires: Vec::new(),
        flags: ResourceFlags::default(),
        set: None,
    }
}

impl Model {
    pub(crate) fn requires(mut self, names: &[&str]) -> Self {
        self.requires = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Another value is another intent.
    pub(crate) fn value(mut self, value: u8) -> Self {
        self.value = value;
        self
    }

    pub(crate) fn undefined(mut self) -> Self {
        self.flags.undefined = true;
        self
    }

    pub(crate) fn sends(mut self) -> Self {
        self.flags.send_event = true;
        self
    }

    pub(crate) fn deaf(mut self) -> Self {
        self.flags.receive_events = false;
        self
    }

    pub(crate) fn reports(mut self) -> Self {
        self.flags.report_only = true;
        self
    }

    pub(crate) fn set(mut self, name: &str) -> Self {
        self.set = Some(name.into());
        self
    }

    pub(crate) fn intent(&self) -> Intent {
        let mut hash = [self.value; 16];
        hash[0] = u8::from(self.flags.send_event);
        hash[1] = u8::from(self.flags.report_only);
        Intent {
            id: id(&self.name),
            hash: AttributeHash(hash),
            flags: self.flags,
            requires: self.requires.iter().map(|name| id(name)).collect(),
        }
    }
}

pub(crate) fn id(name: &str) -> ResourceId {
    let (agent, value) = name.split_once('/').unwrap_or((name, name));
    ResourceId::new("test::Null", agent, "name", value).unwrap()
}

pub(crate) fn name_of(id: &ResourceId) -> String {
    if id.agent() == id.value() {
        id.value().to_owned()
    } else {
        format!("{}/{}", id.agent(), id.value())
    }
}

/// A whole version as a diff that names each of its sets in full, and every other set as gone.
pub(crate) fn whole(number: u32, models: &[Model], others: &[SetName]) -> VersionDiff {
    let mut sets: BTreeMap<SetName, Vec<Intent>> =
        others.iter().map(|set| (set.clone(), Vec::new())).collect();
    for model in models {
        sets.entry(model.set.clone()).or_default().push(model.intent());
    }
    VersionDiff {
        version: VersionNumber(number),
        scope: Scope::ChangedSets,
        sets: sets
            .into_iter()
            .map(|(set, intents)| SetDiff { set, content: SetContent::Whole(intents) })
            .collect(),
    }
}

pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: Timestamp,
    /// Running tasks, in the order of their start.
    pub(crate) running: Vec<Start>,
    /// Commands of the last event.
    pub(crate) commands: Vec<SchedulerCommand>,
    pub(crate) warnings: Vec<SchedulerWarning>,
    /// Names of all resources ever parked, with their attempts.
    pub(crate) parked: Vec<(String, u32)>,
    /// Names of all resources ever started.
    pub(crate) started: Vec<String>,
    /// Scripted verdicts; default: deployed.
    pub(crate) outcomes: BTreeMap<String, OutcomeStatus>,
    /// Stored states.
    pub(crate) stored: BTreeMap<ResourceId, ResourceState>,
    pub(crate) orphans: BTreeMap<ResourceId, VersionNumber>,
    pub(crate) processed: Option<VersionNumber>,
    pub(crate) paused: Vec<Arc<str>>,
    /// Model of the last version.
    pub(crate) model: Vec<Model>,
    pub(crate) wake_at: Option<Timestamp>,
}

/// Settings without intervals, deadlines or limits: nothing happens unless a test requests it.
pub(crate) fn calm() -> Settings {
    Settings {
        deploy_interval: orrery_scheduler::Interval::Off,
        repair_interval: orrery_scheduler::Interval::Off,
        retry: orrery_scheduler::Retry::constant(),
        task_time_max: None,
        ..Settings::default()
    }
}

pub(crate) const START: Timestamp = Timestamp(1_700_000_000_000_000);

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        World {
            scheduler: Scheduler::new(settings),
            now: START,
            running: Vec::new(),
            commands: Vec::new(),
            warnings: Vec::new(),
            parked: Vec::new(),
            started: Vec::new(),
            outcomes: BTreeMap::new(),
            stored: BTreeMap::new(),
            orphans: BTreeMap::new(),
            processed: None,
            paused: Vec::new(),
            model: Vec::new(),
            wake_at: None,
        }
    }

    /// A calm world with a deployed first version.
    pub(crate) fn deployed(models: &[Model]) -> Self {
        let mut world = World::new(calm());
        world.version(1, models);
        world.run_all();
        world.started.clear();
        world
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.commands.clear();
        let mut commands = std::mem::take(&mut self.commands);
        self.scheduler.handle(event, self.now, &mut commands);
        for command in &commands {
            self.carry_out(command);
        }
        self.commands = commands;
        if let Err(problem) = self.scheduler.check_invariants() {
            panic!("the books are wrong: {problem}");
        }
    }

    fn carry_out(&mut self, command: &SchedulerCommand) {
        match command {
            SchedulerCommand::Start(start) => {
                let name = self.name_of_start(start);
                self.started.push(name);
                self.running.push(start.clone());
            }
            SchedulerCommand::Persist(changes) => {
                for (resource, parts) in changes {
                    let id = self.scheduler.id(*resource).unwrap().clone();
                    let state = self.scheduler.state(*resource).unwrap();
                    self.persist(id, &state, *parts);
                }
            }
            SchedulerCommand::Orphan { id, last_version } => {
                self.stored.remove(id);
                self.orphans.insert(id.clone(), *last_version);
            }
            SchedulerCommand::OrphanOthers => {
                let scheduler = &self.scheduler;
                self.stored.retain(|id, _| scheduler.index_of(id.as_str()).is_some());
            }
            SchedulerCommand::Processed(version) => self.processed = Some(*version),
            SchedulerCommand::Warn(warning) => self.warnings.push(warning.clone()),
            SchedulerCommand::Parked { id, attempts } => self.parked.push((name_of(id), *attempts)),
            SchedulerCommand::GaveUp { task } => self.running.retain(|start| start.task != *task),
            SchedulerCommand::WakeAt(at) => self.wake_at = Some(*at),
            SchedulerCommand::Cancel { .. }
            | SchedulerCommand::Ignored { .. }
            | SchedulerCommand::DryRunSkipped { .. }
            | SchedulerCommand::DryRunFinished { .. } => {}
        }
    }

    /// Writes only the changed fields, as a store would.
    fn persist(&mut self, id: ResourceId, state: &ResourceState, parts: ChangedFields) {
        self.orphans.remove(&id);
        let fresh = ResourceState::new(AttributeHash([0; 16]), false);
        let row = self.stored.entry(id).or_insert(fresh);
        if parts.contains(ChangedFields::INTENT) {
            (row.intent, row.undefined) = (state.intent, state.undefined);
        }
        if parts.contains(ChangedFields::BLOCKED) {
            row.blocked = state.blocked;
        }
        if parts.contains(ChangedFields::DEPLOYING) {
            row.deploying = state.deploying;
        }
        if parts.contains(ChangedFields::RUN) {
            let (intent, undefined) = (row.intent, row.undefined);
            let (blocked, deploying) = (row.blocked, row.deploying);
            *row = ResourceState { intent, undefined, blocked, deploying, ..state.clone() };
        }
    }

    pub(crate) fn name_of_start(&self, start: &Start) -> String {
        match start.kind {
            TaskKind::Deploy(resource) => name_of(self.scheduler.id(resource).unwrap()),
            TaskKind::FactRefresh(resource) => {
                format!("facts {}", name_of(self.scheduler.id(resource).unwrap()))
            }
            TaskKind::DryRun { dry_run, entry } => format!("dry run {} {entry}", dry_run.0),
        }
    }

    pub(crate) fn version(&mut self, number: u32, models: &[Model]) {
        let sets: Vec<SetName> = self.model.iter().map(|model| model.set.clone()).collect();
        let diff = whole(number, models, &sets);
        self.model = models.to_vec();
        self.event(Event::NewVersions(vec![diff]));
    }

    /// Releases several versions in one event.
    pub(crate) fn versions(&mut self, versions: &[(u32, Vec<Model>)]) {
        let mut diffs = Vec::new();
        for (number, models) in versions {
            let sets: Vec<SetName> = self.model.iter().map(|model| model.set.clone()).collect();
            diffs.push(whole(*number, models, &sets));
            self.model = models.clone();
        }
        self.event(Event::NewVersions(diffs));
    }

    pub(crate) fn finish_task(&mut self, task: TaskNumber, result: TaskResult) {
        self.running.retain(|start| start.task != task);
        self.event(Event::TaskFinished { task, result });
    }

    /// Ends the running task of this name. A removed resource is named by its index: `#0`.
    pub(crate) fn finish(&mut self, name: &str, status: OutcomeStatus) {
        let task = self.task(name);
        self.finish_task(task, TaskResult::Finished(status));
    }

    pub(crate) fn task(&self, name: &str) -> TaskNumber {
        let found = self.running.iter().find(|start| {
            let TaskKind::Deploy(resource) = start.kind else {
                return self.name_of_start(start) == name;
            };
            self.scheduler.id(resource).is_some_and(|id| name_of(id) == name)
        });
        found.unwrap_or_else(|| panic!("{name} is not running")).task
    }

    pub(crate) fn ok(&mut self, name: &str) {
        self.finish(name, OutcomeStatus::Deployed);
    }

    pub(crate) fn fail(&mut self, name: &str) {
        self.finish(name, OutcomeStatus::Failed);
    }

    /// Runs handlers, oldest first, until none is running. Returns the names in the order of their
    /// start.
    pub(crate) fn run_all(&mut self) -> Vec<String> {
        let already = self.started.len();
        for _ in 0..10_000 {
            let Some(start) = self.running.first().cloned() else {
                return self.started[already..].to_vec();
            };
            let status = self.verdict(&start);
            self.finish_task(start.task, TaskResult::Finished(status));
        }
        panic!("it does not come to rest");
    }

    /// Verdict of a handler with the base behaviour.
    pub(crate) fn verdict(&self, start: &Start) -> OutcomeStatus {
        let TaskKind::Deploy(resource) = start.kind else {
            return OutcomeStatus::Deployed;
        };
        let Some(id) = self.scheduler.id(resource) else {
            return OutcomeStatus::Deployed;
        };
        let report_only = self.scheduler.flags(resource).unwrap().report_only;
        let statuses = start.dependencies.iter().map(|dependency| dependency.status);
        match decide(statuses, report_only) {
            Decision::Run => {
                self.outcomes.get(&name_of(id)).copied().unwrap_or(OutcomeStatus::Deployed)
            }
            Decision::Skip { .. } => OutcomeStatus::SkippedForDependency,
        }
    }

    pub(crate) fn outcome(&mut self, name: &str, status: OutcomeStatus) {
        self.outcomes.insert(name.to_owned(), status);
    }

    pub(crate) fn running_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .scheduler
            .running()
            .iter()
            .filter_map(|run| match run.kind {
                TaskKind::Deploy(resource) => {
                    let state = self.scheduler.state(resource)?;
                    state.deploying.then(|| name_of(self.scheduler.id(resource).unwrap()))
                }
                _ => None,
            })
            .collect();
        names.sort();
        names
    }

    pub(crate) fn state(&self, name: &str) -> ResourceState {
        let index = self.scheduler.index_of(id(name).as_str());
        self.scheduler.state(index.unwrap_or_else(|| panic!("{name} is not managed"))).unwrap()
    }

    pub(crate) fn is_managed(&self, name: &str) -> bool {
        self.scheduler.index_of(id(name).as_str()).is_some()
    }

    pub(crate) fn status(&self, name: &str) -> Status {
        self.state(name).status()
    }

    /// Returns the sorted names of all resources that satisfy a predicate.
    pub(crate) fn names(
        &self,
        test: impl Fn(&Scheduler, orrery_scheduler::ResourceIndex) -> bool,
    ) -> Vec<String> {
        let scheduler = &self.scheduler;
        let mut names: Vec<String> = scheduler
            .resources()
            .filter(|index| test(scheduler, *index))
            .map(|index| name_of(scheduler.id(index).unwrap()))
            .collect();
        names.sort();
        names
    }

    pub(crate) fn dirty(&self) -> Vec<String> {
        self.names(Scheduler::is_dirty)
    }

    pub(crate) fn waiting(&self) -> Vec<String> {
        self.names(|scheduler, index| scheduler.waiting_on(index).is_some())
    }

    /// Returns the names in an agent's queue, in order.
    pub(crate) fn queue(&self, agent: &str) -> Vec<String> {
        let agent = self.scheduler.agent_of(agent).unwrap();
        let name = |kind| match kind {
            TaskKind::Deploy(resource) => name_of(self.scheduler.id(resource).unwrap()),
            TaskKind::FactRefresh(resource) => {
                format!("facts {}", name_of(self.scheduler.id(resource).unwrap()))
            }
            TaskKind::DryRun { dry_run, entry } => format!("dry run {} {entry}", dry_run.0),
        };
        self.scheduler.queue(agent).into_iter().map(|task| name(task.kind)).collect()
    }

    pub(crate) fn reason(&self, name: &str) -> Option<Reason> {
        let index = self.scheduler.index_of(id(name).as_str())?;
        self.scheduler.scheduled(index).map(|(_, reason)| reason)
    }

    pub(crate) fn deploy(&mut self) {
        self.event(Event::DeployDirty(Filter::all()));
    }

    pub(crate) fn repair(&mut self) {
        self.event(Event::Verify(Filter::all()));
    }

    pub(crate) fn pause(&mut self, agent: &str) {
        self.paused.push(agent.into());
        self.event(Event::Pause(Some(vec![agent.into()])));
    }

    pub(crate) fn unpause(&mut self, agent: &str) {
        self.paused.retain(|paused| &**paused != agent);
        self.event(Event::Unpause(Some(vec![agent.into()])));
    }

    /// Advances the time and ticks.
    pub(crate) fn advance(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        self.event(Event::Tick);
    }

    /// Discards the scheduler and starts a new one from the store.
    pub(crate) fn restart(&mut self, reset: bool) {
        self.restart_with(reset, Vec::new());
    }

    pub(crate) fn restart_with(&mut self, reset: bool, newer: Vec<VersionDiff>) {
        let settings = self.scheduler.settings().clone();
        let halted = self.scheduler.is_halted();
        let recovered = |model: &Model| {
            let intent = model.intent();
            let fresh = ResourceState::new(intent.hash, intent.flags.undefined);
            let state = self.stored.get(&intent.id).cloned().unwrap_or(fresh);
            RecoveredResource { intent, set: model.set.clone(), state }
        };
        let recovery = Recovery {
            version: self.processed,
            resources: self.model.iter().map(recovered).collect(),
            paused: self.paused.clone(),
            halted,
            reset,
            newer,
        };
        self.scheduler = Scheduler::new(settings);
        self.running.clear();
        self.wake_at = None;
        self.event(Event::Recover(Box::new(recovery)));
    }

    /// Asserts that no task is waiting, queued or running, and that no bookkeeping remains.
    pub(crate) fn assert_at_rest(&self) {
        let counts = self.scheduler.counts();
        assert_eq!((counts.running, counts.queued, counts.waiting), (0, 0, 0));
        assert!(self.scheduler.is_idle());
        assert!(self.running.is_empty());
        assert!(self.scheduler.agents().all(|agent| self.scheduler.queue(agent).is_empty()));
        assert!(self.stored.values().all(|state| !state.deploying), "a mark was left in the store");
    }
}
