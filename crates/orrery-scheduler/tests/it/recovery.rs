//! Restarts, pauses, halts.

use orrery_model::{Blocked, Compliance, OutcomeStatus, Status};
use orrery_scheduler::{
    CancelReason, DryRunId, DryRunRequest, DryRunSkip, Event, Filter, Interval, Priority, Reason,
    SchedulerCommand, Settings, TaskResult,
};

use crate::world::{Model, World, calm, id, r, whole};

// 46
#[test]
fn a_restart_redeploys_only_what_is_not_compliant_and_keeps_times() {
    let mut world = World::new(calm());
    world.outcome("f", OutcomeStatus::Failed);
    let models = [r("a"), r("f"), r("b").requires(&["f"]), r("u").undefined(), r("n").reports()];
    world.outcome("n", OutcomeStatus::NonCompliant);
    world.version(1, &models);
    world.run_all();
    let before: Vec<_> = models.iter().map(|model| world.state(&model.name)).collect();
    world.started.clear();
    world.now = world.now + orrery_model::Duration::from_secs(5);
    world.restart(false);
    assert_eq!(world.started, ["f"], "`b` waits for `f` as before, `n` has reported");
    assert_eq!(world.running[0].priority, Priority::IntervalDeploy);
    assert_eq!(world.running[0].reason, Reason::Restart);
    assert_eq!(world.state("b").blocked, Blocked::TemporarilyBlocked);
    for (model, before) in models.iter().zip(before).filter(|(model, _)| model.name != "f") {
        assert_eq!(world.state(&model.name), before);
    }
    world.outcome("f", OutcomeStatus::Deployed);
    world.run_all();
    assert_eq!(world.started, ["f", "b"]);
}

// 46
#[test]
fn a_restart_catches_up_on_outstanding_events() {
    for (models, expected) in [
        ([r("s").sends(), r("x/b").requires(&["s"])], vec!["x/b".to_owned()]),
        ([r("s").sends(), r("x/b").requires(&["s"]).deaf()], vec![]),
        ([r("s"), r("x/b").requires(&["s"])], vec![]),
    ] {
        let mut world = World::deployed(&models);
        world.pause("x");
        world.now = world.now + orrery_model::Duration::from_secs(5);
        world.event(Event::Verify(Filter::ids([id("s")])));
        world.ok("s");
        world.restart(false);
        assert_eq!(world.queue("x"), expected);
        world.unpause("x");
        world.run_all();
        world.started.clear();
        world.restart(false);
        assert!(world.started.is_empty(), "it has heard");
    }
}

// 46
#[test]
fn versions_released_while_the_engine_was_down_are_processed_first() {
    let mut world = World::deployed(&[r("a"), r("b")]);
    let newer = whole(2, &[r("a").value(1), r("b")], &[None]);
    world.restart_with(false, vec![newer]);
    assert_eq!(world.started, ["a"]);
    assert_eq!(world.running[0].priority, Priority::NewVersion);
}

// 47
#[test]
fn a_reset_redeploys_all_and_repairs_wrong_states() {
    let models = [r("a"), r("b").requires(&["a"]), r("u").undefined()];
    let mut world = World::deployed(&models);
    let wrong = world.stored.get_mut(&id("a")).unwrap();
    wrong.blocked = Blocked::Blocked;
    wrong.parked = true;
    wrong.undefined = true;
    world.restart(true);
    assert_eq!(world.state("a").status(), Status::Deploying);
    world.run_all();
    assert_eq!(world.started, ["a", "b"]);
    for model in &models {
        assert_eq!(world.stored[&id(&model.name)], world.state(&model.name));
    }
}

// 47
#[test]
fn a_wrong_blocking_in_the_store_is_recomputed() {
    let models = [r("a"), r("b").requires(&["a"]), r("u").undefined(), r("c").requires(&["u"])];
    let mut world = World::deployed(&models);
    world.stored.get_mut(&id("b")).unwrap().blocked = Blocked::Blocked;
    world.stored.get_mut(&id("c")).unwrap().blocked = Blocked::TemporarilyBlocked;
    world.restart(false);
    assert!(world.started.is_empty());
    for model in &models {
        assert_eq!(world.stored[&id(&model.name)], world.state(&model.name));
    }
    assert_eq!(world.state("c").blocked, Blocked::Blocked);
}

// 48
#[test]
fn after_a_restart_nothing_stays_deploying_and_interrupted_runs_are_verified() {
    let mut world = World::deployed(&[r("a"), r("x/b")]);
    world.event(Event::Verify(Filter::all()));
    assert_eq!(world.status("a"), Status::Deploying);
    assert!(world.stored[&id("a")].deploying);
    world.pause("x");
    world.restart(false);
    assert_eq!(world.started, ["a", "x/b", "a"]);
    let cut_off = world.state("x/b");
    assert_eq!((cut_off.deploying, cut_off.compliance()), (false, Some(Compliance::HasUpdate)));
    assert!(!world.stored[&id("x/b")].deploying);
    assert!(cut_off.last_success.is_some(), "times survive");
    world.unpause("x");
    world.run_all();
    world.assert_at_rest();
}

// 49
#[test]
fn a_paused_agent_finishes_keeps_the_rest_and_continues() {
    let mut world = World::new(calm());
    world.version(1, &[r("x/a"), r("x/b"), r("x/c")]);
    world.pause("x");
    world.ok("x/a");
    assert_eq!((world.running.len(), world.queue("x")), (0, vec!["x/b".into(), "x/c".into()]));
    world.restart(false);
    assert_eq!((world.running.len(), world.queue("x")), (0, vec!["x/b".into(), "x/c".into()]));
    world.unpause("x");
    world.run_all();
    assert_eq!(world.started, ["x/a", "x/b", "x/c"]);
}

// 49
#[test]
fn pausing_an_idle_agent_is_a_barrier_for_the_next_task() {
    let mut world = World::deployed(&[r("x/a")]);
    world.pause("x");
    world.version(2, &[r("x/a").value(1)]);
    assert!(world.running.is_empty());
    world.pause("later");
    world.version(3, &[r("x/a").value(1), r("later/b")]);
    assert!(world.running.is_empty(), "an agent can be paused before it has work");
    world.unpause("later");
    assert_eq!(world.running_names(), ["later/b"]);
}

// 50
#[test]
fn a_halt_stops_a_deploy_and_a_resume_continues_it() {
    let mut world = World::new(calm());
    world.pause("y");
    world.version(1, &[r("x/a"), r("x/b"), r("y/c")]);
    let task = world.task("x/a");
    world.event(Event::Halt);
    assert!(
        world.commands.contains(&SchedulerCommand::Cancel { task, reason: CancelReason::Halt })
    );
    world.event(Event::Halt);
    assert!(
        !world.commands.iter().any(|command| matches!(command, SchedulerCommand::Cancel { .. }))
    );
    world.finish_task(task, TaskResult::Cancelled);
    assert!(world.running.is_empty());
    world.deploy();
    assert!(world.running.is_empty());
    world.event(Event::Resume);
    world.run_all();
    assert_eq!(world.started, ["x/a", "x/a", "x/b"]);
    assert_eq!(world.queue("y"), ["y/c"], "an agent paused before stays paused");
    world.unpause("y");
    world.run_all();
    world.assert_at_rest();
}

// 50
#[test]
fn a_halt_survives_a_restart_and_stops_the_clock() {
    let every = Interval::Every(orrery_model::Duration::from_secs(10));
    let mut world = World::new(Settings { repair_interval: every, ..calm() });
    world.version(1, &[r("a")]);
    world.run_all();
    world.event(Event::Halt);
    world.restart(false);
    world.advance(100);
    assert_eq!(world.started, ["a"]);
    world.event(Event::Resume);
    assert!(world.wake_at.unwrap() <= world.now, "what is overdue happens at once");
    world.advance(0);
    assert_eq!(world.started, ["a", "a"]);
}

// 50
#[test]
fn a_run_interrupted_by_a_halt_counts_as_never_tried() {
    let mut world = World::deployed(&[r("x/a")]);
    world.repair();
    world.event(Event::Halt);
    let task = world.task("x/a");
    world.finish_task(task, TaskResult::Cancelled);
    assert_eq!(world.state("x/a").compliance(), Some(Compliance::HasUpdate));
    assert_eq!(world.reason("x/a"), Some(Reason::Interrupted));
    world.event(Event::Resume);
    world.run_all();
    world.assert_at_rest();
}

// 52
#[test]
fn pausing_all_agents_does_not_stop_the_scheduler() {
    let mut world = World::new(calm());
    world.version(1, &[r("a"), r("b")]);
    world.event(Event::Pause(None));
    world.ok("a");
    world.version(2, &[r("a"), r("b"), r("c")]);
    assert_eq!(world.running_names(), ["b", "c"], "`c` has a new agent");
    assert_eq!(world.processed.unwrap().0, 2);
    world.event(Event::Unpause(None));
    world.run_all();
    world.assert_at_rest();
}

fn dry_run(number: u64, version: u32, models: &[Model]) -> Event {
    Event::DryRun(DryRunRequest {
        dry_run: DryRunId(number),
        version: orrery_model::VersionNumber(version),
        resources: models.iter().map(Model::intent).collect(),
    })
}

fn answers(world: &World) -> Vec<(u32, DryRunSkip)> {
    let answer = |command: &SchedulerCommand| match command {
        SchedulerCommand::DryRunSkipped { entry, reason, .. } => Some((*entry, *reason)),
        _ => None,
    };
    world.commands.iter().filter_map(answer).collect()
}

// 69
#[test]
fn a_dry_run_answers_for_what_cannot_run_and_comes_to_an_end() {
    let models =
        [r("u").undefined(), r("a").requires(&["u"]), r("b").requires(&["a"]), r("x/c"), r("y/d")];
    let mut world = World::new(calm());
    world.pause("y");
    world.event(dry_run(1, 9, &models));
    assert_eq!(
        answers(&world),
        [
            (0, DryRunSkip::Undefined),
            (1, DryRunSkip::SkippedForUndefined),
            (2, DryRunSkip::SkippedForUndefined),
            (4, DryRunSkip::AgentDown)
        ]
    );
    assert_eq!(world.started, ["dry run 1 3"]);
    assert_eq!((world.running[0].version.0, world.running[0].intent), (9, models[3].intent().hash));
    assert!(!world.is_managed("x/c"), "nothing is managed by a dry run");
    world.finish("dry run 1 3", OutcomeStatus::Failed);
    let finished = SchedulerCommand::DryRunFinished { dry_run: DryRunId(1), refused: false };
    assert_eq!(world.commands, [finished]);
    world.assert_at_rest();
}

// 69
#[test]
fn a_dry_run_does_not_wait_for_agents_that_are_paused_or_halted_meanwhile() {
    let models = [r("x/a"), r("x/b"), r("x/c"), r("y/a"), r("y/b")];
    let mut world = World::new(calm());
    world.event(dry_run(1, 1, &models));
    world.pause("x");
    assert_eq!(answers(&world), [(1, DryRunSkip::AgentDown), (2, DryRunSkip::AgentDown)]);
    world.event(Event::Halt);
    assert_eq!(answers(&world), [(4, DryRunSkip::AgentDown)]);
    for task in [world.running[0].task, world.running[1].task] {
        world.finish_task(task, TaskResult::Cancelled);
    }
    let finished = SchedulerCommand::DryRunFinished { dry_run: DryRunId(1), refused: false };
    assert_eq!(world.commands, [finished]);
    world.assert_at_rest();
}

// 69
#[test]
fn dry_runs_ignore_order_survive_deletion_and_are_refused_while_halted() {
    let models = [r("x/a"), r("x/b").requires(&["x/a"])];
    let mut world = World::deployed(&models);
    world.event(dry_run(1, 1, &[models[1].clone(), models[0].clone()]));
    world.event(dry_run(1, 1, &models));
    world.event(dry_run(2, 1, &[]));
    let finished = SchedulerCommand::DryRunFinished { dry_run: DryRunId(2), refused: false };
    assert_eq!(world.commands, [finished]);
    world.version(2, &[]);
    assert_eq!(world.queue("x"), ["dry run 1 1"]);
    world.run_all();
    assert_eq!(world.started, ["dry run 1 0", "dry run 1 1"]);
    world.event(Event::Halt);
    world.event(dry_run(3, 1, &models));
    let refused = SchedulerCommand::DryRunFinished { dry_run: DryRunId(3), refused: true };
    assert_eq!(world.commands, [refused]);
    world.assert_at_rest();
}
