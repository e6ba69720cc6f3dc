//! Deadlines, cancellation, concurrency limits, unexpected results.

use orrery_model::{Compliance, Duration, OutcomeStatus, Status};
use orrery_scheduler::{
    AgentGroup, CancelReason, ChangedFields, Event, Filter, Interval, SchedulerCommand, Settings,
    TaskKind, TaskNumber, TaskResult,
};

use crate::world::{World, calm, id, r};

fn with_deadline() -> Settings {
    Settings {
        task_time_max: Some(Duration::from_secs(60)),
        cancel_time_max: Duration::from_secs(5),
        ..calm()
    }
}

#[test]
fn a_task_is_cancelled_at_its_deadline_and_fails() {
    let mut world = World::new(with_deadline());
    world.version(1, &[r("x/a"), r("x/b")]);
    let task = world.task("x/a");
    assert_eq!(world.running[0].deadline, Some(world.now + Duration::from_secs(60)));
    assert_eq!(world.wake_at, world.running[0].deadline);
    world.advance(60);
    let cancel = SchedulerCommand::Cancel { task, reason: CancelReason::Deadline };
    assert!(world.commands.contains(&cancel));
    assert_eq!(world.running_names(), ["x/a"], "the agent waits for it to end");
    world.finish_task(task, TaskResult::Cancelled);
    assert_eq!((world.status("x/a"), world.state("x/a").attempts), (Status::Failed, 1));
    assert_eq!(world.running_names(), ["x/b"]);
}

#[test]
fn a_task_that_does_not_end_is_abandoned_and_its_late_result_ignored() {
    let mut world = World::new(with_deadline());
    world.version(1, &[r("x/a"), r("x/b"), r("c").requires(&["x/a"])]);
    let task = world.task("x/a");
    world.advance(60);
    world.advance(5);
    assert!(world.commands.contains(&SchedulerCommand::GaveUp { task }));
    assert_eq!(world.status("x/a"), Status::Failed);
    assert_eq!(world.running_names(), ["c", "x/b"]);
    world
        .event(Event::TaskFinished { task, result: TaskResult::Finished(OutcomeStatus::Deployed) });
    assert_eq!(world.commands, [SchedulerCommand::Ignored { task }]);
    assert_eq!(world.status("x/a"), Status::Failed);
    world.run_all();
    world.assert_at_rest();
}

#[test]
fn an_answer_within_the_grace_counts() {
    let mut world = World::new(with_deadline());
    world.version(1, &[r("a")]);
    world.advance(62);
    world.ok("a");
    assert_eq!(world.status("a"), Status::Deployed);
    world.advance(100);
    world.assert_at_rest();
}

#[test]
fn answers_that_are_unknown_or_come_twice_change_nothing() {
    let mut world = World::new(calm());
    world.version(1, &[r("a"), r("b").requires(&["a"])]);
    let task = world.task("a");
    world.ok("a");
    let before = world.state("a");
    for task in [task, TaskNumber(999)] {
        world.event(Event::TaskFinished {
            task,
            result: TaskResult::Finished(OutcomeStatus::Failed),
        });
        assert_eq!(world.commands, [SchedulerCommand::Ignored { task }]);
    }
    assert_eq!(world.state("a"), before);
    assert_eq!(world.running_names(), ["b"]);
}

#[test]
fn cancelling_takes_back_what_waits_and_stops_what_runs() {
    let mut world = World::deployed(&[r("x/a"), r("x/b"), r("c").requires(&["x/b"]), r("d")]);
    world.repair();
    let task = world.task("x/a");
    world.event(Event::Cancel(Filter::agent("x")));
    assert!(
        world.commands.contains(&SchedulerCommand::Cancel { task, reason: CancelReason::User })
    );
    assert_eq!(
        (world.queue("x").len(), world.running_names()),
        (0, vec!["c".into(), "d".into(), "x/a".into()])
    );
    world.finish_task(task, TaskResult::Cancelled);
    assert_eq!(
        world.state("x/a").compliance(),
        Some(Compliance::HasUpdate),
        "its progress is unknown"
    );
    assert_eq!(world.state("x/b").compliance(), Some(Compliance::Compliant));
    assert!(world.dirty().contains(&"x/a".to_owned()));
    world.run_all();
    world.assert_at_rest();
    world.deploy();
    assert_eq!(world.running_names(), ["x/a"], "`x/b` is next on the same agent");
}

#[test]
fn a_request_after_a_cancellation_does_not_rely_on_the_ending_run() {
    let mut world = World::deployed(&[r("x/a"), r("b").requires(&["x/a"])]);
    world.repair();
    let task = world.task("x/a");
    world.event(Event::Cancel(Filter::agent("x")));
    world.event(Event::Verify(Filter::agent("x")));
    assert_eq!(world.queue("x").len(), 1);
    // It ended before the cancellation took effect.
    world.finish_task(task, TaskResult::Finished(OutcomeStatus::Deployed));
    assert_eq!(world.running_names(), ["x/a"]);
    assert_ne!(world.task("x/a"), task);
    world.run_all();
    world.assert_at_rest();
}

#[test]
fn a_cancelled_resource_is_retried_at_the_deploy_interval() {
    let every = Interval::Every(Duration::from_secs(100));
    let mut world = World::new(Settings { deploy_interval: every, ..calm() });
    world.version(1, &[r("a")]);
    world.event(Event::Cancel(Filter::all()));
    let task = world.task("a");
    world.finish_task(task, TaskResult::Cancelled);
    world.assert_at_rest();
    world.advance(100);
    assert_eq!(world.running_names(), ["a"]);
}

fn group(name: &str, agents: &[&str], running_max: u32) -> AgentGroup {
    AgentGroup {
        name: name.into(),
        agents: agents.iter().map(|agent| (*agent).into()).collect(),
        running_max,
    }
}

#[test]
fn a_group_of_agents_runs_no_more_than_its_limit() {
    let settings = Settings { groups: vec![group("site", &["x", "y", "z"], 2)], ..calm() };
    let mut world = World::new(settings);
    world.version(1, &[r("x/a"), r("x/b"), r("y/a"), r("z/a"), r("w/a")]);
    assert_eq!(world.running_names(), ["w/a", "x/a", "y/a"]);
    world.ok("x/a");
    assert_eq!(world.running_names(), ["w/a", "x/b", "y/a"], "the older request is first");
    world.ok("y/a");
    assert_eq!(world.running_names(), ["w/a", "x/b", "z/a"]);
    world.run_all();
    world.assert_at_rest();
}

#[test]
fn the_limit_over_all_lets_the_most_urgent_go_first() {
    let settings =
        Settings { running_max: Some(1), groups: vec![group("none", &["stopped"], 0)], ..calm() };
    let mut world = World::new(settings);
    let models = [r("a"), r("b"), r("c"), r("d"), r("stopped")];
    world.version(1, &models);
    assert_eq!(world.running_names(), ["a"]);
    world.event(Event::DeployDirty(Filter::ids([id("c")])));
    world.pause("b");
    world.ok("a");
    assert_eq!(world.running_names(), ["c"]);
    world.ok("c");
    assert_eq!(world.running_names(), ["d"], "`b` is paused");
    world.unpause("b");
    world.ok("d");
    world.ok("b");
    assert!(world.running.is_empty());
    let settings = Settings { running_max: None, ..calm() };
    world.event(Event::SettingsChanged(Box::new(settings)));
    world.run_all();
    assert_eq!(world.started, ["a", "c", "d", "b", "stopped"]);
    world.assert_at_rest();
}

#[test]
fn only_changed_states_are_persisted_and_before_tasks_start() {
    let mut world = World::deployed(&[r("a"), r("b"), r("c").requires(&["a"])]);
    let mut expected = |event, names: &[(&str, ChangedFields)]| {
        world.event(event);
        let persist = world.commands.iter().position(|c| matches!(c, SchedulerCommand::Persist(_)));
        let start = world.commands.iter().position(|c| matches!(c, SchedulerCommand::Start(_)));
        assert!(persist.is_some() && start.is_none_or(|start| persist < Some(start)));
        let Some(SchedulerCommand::Persist(changes)) = persist.map(|at| &world.commands[at]) else {
            unreachable!()
        };
        let changes: Vec<_> = changes
            .iter()
            .map(|(index, parts)| (world.scheduler.id(*index).unwrap().value().to_owned(), *parts))
            .collect();
        let names: Vec<_> =
            names.iter().map(|(name, parts)| ((*name).to_owned(), *parts)).collect();
        assert_eq!(changes, names);
    };
    expected(Event::Verify(Filter::ids([id("a")])), &[("a", ChangedFields::DEPLOYING)]);
    let finished = Event::TaskFinished {
        task: TaskNumber(4),
        result: TaskResult::Finished(OutcomeStatus::Deployed),
    };
    expected(finished, &[("a", ChangedFields::DEPLOYING | ChangedFields::RUN)]);
    assert_eq!(world.stored[&id("a")], world.state("a"));
}

#[test]
fn freed_slots_are_reused_without_confusion() {
    let mut world = World::new(calm());
    world.version(1, &[r("x/old")]);
    let task = world.task("x/old");
    let TaskKind::Deploy(old) = world.running[0].kind else { unreachable!() };
    world.version(2, &[r("new")]);
    world.version(3, &[r("new"), r("other")]);
    let reused = ["new", "other"].map(|name| world.scheduler.index_of(id(name).as_str()).unwrap());
    assert!(reused.contains(&old));
    world.finish_task(task, TaskResult::Finished(OutcomeStatus::Failed));
    world.run_all();
    assert_eq!((world.status("new"), world.status("other")), (Status::Deployed, Status::Deployed));
    world.assert_at_rest();
}
