//! Random tests: the scheduler and the slow reference model process the same events and must agree
//! after each.

use std::collections::{BTreeMap, BTreeSet};

use orrery_model::{Blocked, Duration, OutcomeStatus, Timestamp, VersionNumber};
use orrery_scheduler::{
    AgentGroup, Event, ResourceIndex, Scheduler, SchedulerCommand, Settings, Start, TaskKind,
    TaskNumber, TaskResult, VersionDiff,
};
use proptest::prelude::*;

use crate::reference::Reference;
use crate::steps::{AGENTS, Choice, DraftVersion, Step, draft_version, settings, step};
use crate::world::{Model, World, calm, id, name_of, r, whole};

/// The scheduler, the reference model and the driver's state.
struct Pair {
    world: World,
    reference: Reference,
    next_version: u32,
}

impl Pair {
    fn new() -> Self {
        let settings = settings(0);
        Pair {
            world: World::new(settings.clone()),
            reference: Reference::new(settings),
            next_version: 1,
        }
    }

    fn number(&mut self) -> u32 {
        self.next_version += 1;
        self.next_version
    }

    /// Applies an event to the scheduler and the reference model, and compares them.
    fn step(
        &mut self,
        event: Event,
        same: impl FnOnce(&mut Reference, &dyn Fn(&str) -> u32, &dyn Fn(&str) -> u32),
    ) {
        self.reference.at(self.world.now);
        self.world.event(event);
        let scheduler = &self.world.scheduler;
        let order = |name: &str| {
            let index = scheduler.index_of(id(name).as_str());
            u32::try_from(index.expect("the reference knows no more").as_usize()).unwrap()
        };
        let agent_order = |name: &str| {
            u32::try_from(scheduler.agent_of(name).expect("it runs a task").as_usize()).unwrap()
        };
        same(&mut self.reference, &order, &agent_order);
        self.compare_starts();
        self.compare();
    }

    fn compare_starts(&mut self) {
        // Checked before the reference starts its tasks: no started task may have a scheduled
        // requirement.
        let starts: Vec<Start> = self
            .world
            .commands
            .iter()
            .filter_map(|command| match command {
                SchedulerCommand::Start(start) => Some(start.clone()),
                _ => None,
            })
            .collect();
        for start in &starts {
            let name = self.world.name_of_start(start);
            let waits = self.reference.waiting_on(&name);
            assert_eq!(
                waits,
                Some(BTreeSet::new()),
                "{name} starts before a scheduled requirement ended"
            );
        }
        let mut started = BTreeMap::new();
        for start in &starts {
            let agent = self.world.scheduler.agent_name(start.agent).unwrap().to_owned();
            let name = self.world.name_of_start(start);
            let desired_states = self.reference.known[&name].state.intent;
            assert_eq!(
                Some(start.intent),
                desired_states,
                "{name} starts with an intent that was overtaken"
            );
            assert!(started.insert(agent, name).is_none(), "two tasks of one agent start");
        }
        assert_eq!(started, self.reference.dispatch(), "what starts");
    }

    fn compare(&self) {
        let scheduler = &self.world.scheduler;
        let name = |index| name_of(scheduler.id(index).unwrap());
        let managed: BTreeSet<String> = scheduler.resources().map(name).collect();
        assert_eq!(managed, self.reference.known.keys().cloned().collect(), "what is managed");
        for index in scheduler.resources() {
            let name = name(index);
            let known = &self.reference.known[&name];
            let state = scheduler.state(index).unwrap();
            assert_eq!(state, self.reference.state(&name), "state of {name}");
            assert_eq!(self.world.stored[&id(&name)], state, "the store lags behind at {name}");
            assert_eq!(scheduler.is_dirty(index), known.dirty, "dirt of {name}");
            assert_eq!(scheduler.timer(index), self.reference.timer(&name), "timer of {name}");
            let waiting = scheduler.waiting_on(index);
            let waiting = waiting.map(|others| others.into_iter().map(namer(scheduler)).collect());
            let expected = self.reference.waiting_on(&name).filter(|others| !others.is_empty());
            assert_eq!(waiting, expected, "what {name} waits for");
            let urgency = |index| scheduler.scheduled(index).map(|(priority, _)| priority);
            for other in scheduler.waiting_on(index).into_iter().flatten() {
                let late = urgency(other) > urgency(index);
                assert!(!late, "{name} waits for something less urgent");
            }
            assert!(
                scheduler.explain(index).is_some_and(|explanation| !explanation.reasons.is_empty()),
                "no reason"
            );
        }
        for agent in scheduler.agents() {
            let queue: Vec<_> = scheduler
                .queue(agent)
                .into_iter()
                .map(|task| match task.kind {
                    TaskKind::Deploy(index) => (name(index), task.priority, task.reason),
                    other => panic!("unrequested {other:?}"),
                })
                .collect();
            let agent = scheduler.agent_name(agent).unwrap();
            assert_eq!(queue, self.reference.queue(agent), "queue of {agent}");
        }
        self.compare_running();
    }

    fn compare_running(&self) {
        let scheduler = &self.world.scheduler;
        let mut agents = BTreeSet::new();
        let running = scheduler.running();
        assert_eq!(running.len(), self.reference.running.len());
        for run in &running {
            let agent = scheduler.agent_name(run.agent).unwrap();
            assert!(agents.insert(agent.to_owned()), "{agent} runs two tasks");
            let expected = &self.reference.running[agent];
            assert_eq!(run.priority, expected.priority, "priority of what {agent} runs");
            if !expected.detached {
                let TaskKind::Deploy(index) = run.kind else {
                    panic!("only deploys were asked for")
                };
                assert_eq!(name_of(scheduler.id(index).unwrap()), expected.name);
            }
        }
        let known: BTreeSet<TaskNumber> =
            self.world.running.iter().map(|start| start.task).collect();
        assert_eq!(known, running.iter().map(|run| run.task).collect());
    }

    fn versions(&mut self, versions: Vec<(u32, Vec<Model>)>) {
        let diffs = self.diffs(&versions);
        self.step(Event::NewVersions(diffs), |reference, order, _| {
            reference.versions(&versions, order);
        });
    }

    /// Diffs of whole sets; removed sets are empty.
    fn diffs(&mut self, versions: &[(u32, Vec<Model>)]) -> Vec<VersionDiff> {
        let mut diffs = Vec::new();
        for (number, models) in versions {
            let sets: Vec<_> = self.world.model.iter().map(|model| model.set.clone()).collect();
            diffs.push(whole(*number, models, &sets));
            self.world.model = models.clone();
        }
        diffs
    }

    fn finish(&mut self, task: TaskNumber, result: TaskResult) {
        let start = self.world.running.iter().find(|start| start.task == task).unwrap();
        let agent = self.world.scheduler.agent_name(start.agent).unwrap().to_owned();
        self.world.running.retain(|start| start.task != task);
        self.step(Event::TaskFinished { task, result }, |reference, order, _| {
            reference.finish(&agent, result, order);
        });
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Versions(drafts) => {
                let versions = drafts.iter().map(|draft| (self.number(), draft.models())).collect();
                self.versions(versions);
            }
            Step::Touch(places) => {
                let mut models = self.world.model.clone();
                for index in places {
                    let count = models.len().max(1);
                    if let Some(model) = models.get_mut(index % count) {
                        model.value = (model.value + 1) % 3;
                    }
                }
                let number = self.number();
                self.versions(vec![(number, models)]);
            }
            Step::Finish { which, status } => {
                let count = self.world.running.len();
                if count > 0 {
                    let task = self.world.running[which % count].task;
                    let result = status.map_or(TaskResult::Cancelled, TaskResult::Finished);
                    self.finish(task, result);
                }
            }
            Step::Stray(number) => {
                let task = TaskNumber(*number);
                if !self.world.scheduler.is_running(task) {
                    let result = TaskResult::Finished(OutcomeStatus::Deployed);
                    self.step(Event::TaskFinished { task, result }, |_, _, _| {});
                    assert_eq!(self.world.commands[0], SchedulerCommand::Ignored { task });
                }
            }
            Step::Deploy(choice) => {
                let filter = choice.filter();
                self.step(Event::DeployDirty(filter.clone()), |reference, order, _| {
                    reference.deploy(&filter, order);
                });
            }
            Step::Repair(choice) => {
                let filter = choice.filter();
                self.step(Event::Verify(filter.clone()), |reference, order, _| {
                    reference.repair(&filter, None, order);
                });
            }
            Step::ResumeVerify { choice, ago } => {
                let filter = choice.filter();
                let since = Timestamp(self.world.now.0 - i64::from(*ago) * 1_000_000);
                let event = Event::ResumeVerify { filter: filter.clone(), since };
                self.step(event, |reference, order, _| {
                    reference.repair(&filter, Some(since), order);
                });
            }
            Step::Cancel(choice) => {
                let filter = choice.filter();
                self.step(Event::Cancel(filter.clone()), |reference, _, _| {
                    reference.cancel(&filter);
                });
            }
            Step::Pause(agent) => self.set_paused(AGENTS[*agent], true),
            Step::Unpause(agent) => self.set_paused(AGENTS[*agent], false),
            Step::Halt => self.step(Event::Halt, |reference, _, _| reference.halt()),
            Step::Resume => self.step(Event::Resume, |reference, _, _| reference.halted = false),
            Step::Pass(seconds) => self.advance(*seconds),
            Step::Settings(number) => {
                let settings = settings(*number);
                let event = Event::SettingsChanged(Box::new(settings.clone()));
                self.step(event, |reference, _, _| reference.change_settings(settings));
            }
            Step::Restart { reset, newer } => self.restart(*reset, newer.as_ref()),
        }
    }

    fn set_paused(&mut self, agent: &str, paused: bool) {
        let agents = Some(vec![agent.into()]);
        if paused {
            self.world.paused.push(agent.into());
            self.step(Event::Pause(agents), |reference, _, _| {
                reference.paused.insert(agent.to_owned());
            });
        } else {
            self.world.paused.retain(|one| &**one != agent);
            self.step(Event::Unpause(agents), |reference, _, _| {
                reference.paused.remove(agent);
            });
        }
    }

    fn advance(&mut self, seconds: u64) {
        self.world.now = self.world.now + Duration::from_secs(seconds);
        self.step(Event::Tick, |reference, order, agent_order| reference.tick(order, agent_order));
    }

    fn restart(&mut self, reset: bool, newer: Option<&DraftVersion>) {
        let newer: Vec<(u32, Vec<Model>)> =
            newer.map(|draft| (self.number(), draft.models())).into_iter().collect();
        let before = self.world.model.clone();
        let diffs = self.diffs(&newer);
        let after = std::mem::replace(&mut self.world.model, before);
        self.reference.at(self.world.now);
        self.world.restart_with(reset, diffs);
        self.world.model = after;
        let scheduler = &self.world.scheduler;
        let order = |name: &str| {
            let index = scheduler.index_of(id(name).as_str());
            index.map_or(u32::MAX, |index| u32::try_from(index.as_usize()).unwrap())
        };
        self.reference.restart(reset, &newer, &order);
        self.compare_starts();
        self.compare();
    }

    /// Runs successful handlers until idle: nothing may remain.
    fn settle(&mut self) {
        self.apply(&Step::Resume);
        for agent in 0..AGENTS.len() {
            self.apply(&Step::Unpause(agent));
        }
        for _ in 0..500 {
            let Some(start) = self.world.running.first().cloned() else {
                break;
            };
            let status = self.world.verdict(&start);
            self.finish(start.task, TaskResult::Finished(status));
        }
        self.world.assert_at_rest();
        self.apply(&Step::Deploy(Choice::All));
        for _ in 0..500 {
            let Some(start) = self.world.running.first().cloned() else {
                break;
            };
            let status = self.world.verdict(&start);
            self.finish(start.task, TaskResult::Finished(status));
        }
        self.world.assert_at_rest();
        let scheduler = &self.world.scheduler;
        for index in scheduler.resources() {
            let state = scheduler.state(index).unwrap();
            let done = state.blocked == Blocked::Blocked || !scheduler.is_dirty(index);
            assert!(done, "{:?} is left dirty: {state:?}", scheduler.id(index));
        }
    }
}

/// Returns a lookup from index to name.
fn namer(scheduler: &Scheduler) -> impl Fn(ResourceIndex) -> String + '_ {
    |index| name_of(scheduler.id(index).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// Safety after each event: the same states, dirty sets, queues, waits, timers and runs as the
    /// reference; no task starts while a requirement is scheduled; one task for each agent and
    /// resource; the stored state is correct. Liveness at the end: with successful handlers the
    /// scheduler becomes idle and everything is deployed.
    #[test]
    fn the_scheduler_agrees_with_the_obvious_model(
        first in draft_version(),
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let mut pair = Pair::new();
        pair.apply(&Step::Versions(vec![first]));
        for step in &steps {
            pair.apply(step);
        }
        pair.settle();
    }

    /// Limits hold, and no task waits while capacity is free.
    #[test]
    fn limits_are_kept_and_used(
        first in draft_version(),
        steps in prop::collection::vec(step(), 1..40),
        over_all in prop::option::of(1..4_u32),
        of_group in 0..3_u32,
    ) {
        let group = AgentGroup {
            name: "some".into(),
            agents: vec!["x".into(), "y".into(), "nobody".into()],
            running_max: of_group,
        };
        let limits = Settings { running_max: over_all, groups: vec![group], ..calm() };
        let mut world = World::new(limits.clone());
        world.version(1, &first.models());
        let mut number = 1;
        for step in steps {
            match step {
                Step::Versions(drafts) => {
                    number += 1;
                    world.version(number, &drafts[0].models());
                }
                Step::Finish { which, status: Some(status) } if !world.running.is_empty() => {
                    let task = world.running[which % world.running.len()].task;
                    world.finish_task(task, TaskResult::Finished(status));
                }
                Step::Repair(choice) => world.event(Event::Verify(choice.filter())),
                Step::Deploy(choice) => world.event(Event::DeployDirty(choice.filter())),
                Step::Cancel(choice) => world.event(Event::Cancel(choice.filter())),
                Step::Pause(agent) => world.pause(AGENTS[agent]),
                Step::Unpause(agent) => world.unpause(AGENTS[agent]),
                Step::Settings(1) => world.event(Event::SettingsChanged(Box::new(calm()))),
                Step::Settings(_) => world.event(Event::SettingsChanged(Box::new(limits.clone()))),
                _ => continue,
            }
            check_limits(&world);
        }
    }

    /// Several versions at once have the same effect as one by one: intents, removals and
    /// requirements.
    #[test]
    fn folding_versions_keeps_their_net_effect(
        drafts in prop::collection::vec(draft_version(), 2..5),
    ) {
        let versions: Vec<(u32, Vec<Model>)> =
            (2..).zip(&drafts).map(|(number, draft)| (number, draft.models())).collect();
        let mut at_once = World::new(calm());
        let mut one_by_one = World::new(calm());
        at_once.versions(&versions);
        for (number, models) in &versions {
            one_by_one.version(*number, models);
        }
        prop_assert_eq!(desired_states(&at_once), desired_states(&one_by_one));
        prop_assert_eq!(&at_once.orphans, &one_by_one.orphans);
        prop_assert_eq!(at_once.processed, Some(VersionNumber(versions.last().unwrap().0)));
    }
}

/// No task starts beyond a limit; tasks that ran before a lower limit may continue.
fn check_limits(world: &World) {
    let scheduler = &world.scheduler;
    let Settings { running_max, groups, .. } = scheduler.settings();
    let running: Vec<&str> =
        scheduler.running().iter().filter_map(|run| scheduler.agent_name(run.agent)).collect();
    let limits = |agent: &str| {
        let group = groups.iter().find(|group| group.agents.iter().any(|one| **one == *agent));
        let of_group = group.map(|group| {
            let members = |agent: &&&str| group.agents.iter().any(|one| **one == ***agent);
            (running.iter().filter(members).count(), group.running_max as usize)
        });
        let over_all = running_max.map(|limit| (running.len(), limit as usize));
        [of_group, over_all].into_iter().flatten().collect::<Vec<_>>()
    };
    for command in &world.commands {
        if let SchedulerCommand::Start(start) = command {
            let agent = scheduler.agent_name(start.agent).unwrap();
            for (running, limit) in limits(agent) {
                assert!(running <= limit, "{agent} started beyond a limit of {limit}");
            }
        }
    }
    for agent in scheduler.agents() {
        let name = scheduler.agent_name(agent).unwrap();
        let idle = !running.contains(&name) && !scheduler.is_paused(agent);
        if idle && !scheduler.queue(agent).is_empty() {
            let full = limits(name).into_iter().any(|(running, limit)| running >= limit);
            assert!(full, "{name} waits for no reason");
        }
    }
}

/// Requirements, intent and the undefined flag of a resource.
type DesiredState = (Vec<String>, Option<[u8; 16]>, bool);

/// Intents and requirements of all managed resources.
fn desired_states(world: &World) -> BTreeMap<String, DesiredState> {
    let scheduler = &world.scheduler;
    let describe = |index| {
        let name = namer(scheduler);
        let mut requires: Vec<_> = scheduler.requirements(index).into_iter().map(&name).collect();
        requires.sort();
        let state = scheduler.state(index).unwrap();
        (name(index), (requires, state.intent.map(|hash| hash.0), state.undefined))
    };
    scheduler.resources().map(describe).collect()
}

/// Replaying the events of a random run repeats it.
#[test]
fn replaying_events_repeats_every_decision() {
    let play = || {
        let mut world = World::new(settings(0));
        let mut log: Vec<String> = Vec::new();
        for round in 0..20_u32 {
            let models: Vec<Model> = (0..30)
                .map(|n| {
                    let value = u8::try_from((round + n) % 7 / 6).unwrap();
                    let model = r(&format!("agent{}/r{n}", n % 5)).value(value);
                    if n % 3 == 2 {
                        model.requires(&[&format!("agent{}/r{}", (n - 1) % 5, n - 1)])
                    } else {
                        model
                    }
                })
                .collect();
            world.version(round + 1, &models);
            log.push(format!("{:?}", world.commands));
            for _ in 0..7 {
                if let Some(start) = world.running.first().cloned() {
                    world.finish_task(start.task, TaskResult::Finished(OutcomeStatus::Failed));
                    log.push(format!("{:?}", world.commands));
                }
            }
            world.advance(17);
            log.push(format!("{:?}", world.commands));
        }
        log
    };
    assert_eq!(play(), play());
}
