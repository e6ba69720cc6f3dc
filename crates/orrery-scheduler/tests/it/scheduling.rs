//! Order, waits, priorities and bookkeeping.

use orrery_model::{Compliance, OutcomeStatus, Status};
use orrery_scheduler::{
    DryRunId, DryRunRequest, Event, Filter, Interval, Priority, Reason, SchedulerCommand, Settings,
    TaskResult,
};

use crate::world::{World, calm, id, r};

fn ids(names: &[&str]) -> Filter {
    Filter::ids(names.iter().map(|name| id(name)))
}

// 1
#[test]
fn dependents_are_deployed_after_what_they_require_and_each_runs_once() {
    let mut world = World::new(calm());
    world.version(1, &[r("b").requires(&["a"]), r("a")]);
    assert_eq!(world.running_names(), ["a"]);
    assert_eq!(world.run_all(), ["b"]);
    assert_eq!(world.started, ["a", "b"]);
    assert_eq!(world.status("a"), Status::Deployed);
    assert_eq!(world.status("b"), Status::Deployed);
    world.assert_at_rest();
}

// 2
#[test]
fn a_deploy_schedules_nothing_if_all_is_compliant() {
    let mut world = World::deployed(&[r("a"), r("b").requires(&["a"])]);
    world.deploy();
    assert!(world.started.is_empty());
    world.assert_at_rest();
}

// 3
#[test]
fn a_deploy_runs_only_what_failed() {
    let mut world = World::new(calm());
    world.outcome("b", OutcomeStatus::Failed);
    world.version(1, &[r("a"), r("b"), r("c")]);
    world.run_all();
    assert_eq!(world.dirty(), ["b"]);
    world.outcome("b", OutcomeStatus::Deployed);
    world.deploy();
    assert_eq!(world.run_all(), Vec::<String>::new());
    assert_eq!(world.started, ["a", "b", "c", "b"]);
    assert!(world.dirty().is_empty());
}

// 4
#[test]
fn a_deploy_adds_nothing_to_what_runs_its_latest_intent() {
    let mut world = World::new(calm());
    world.version(1, &[r("a")]);
    world.deploy();
    world.deploy();
    world.ok("a");
    assert_eq!(world.started, ["a"]);
    world.assert_at_rest();
}

// 5
#[test]
fn a_version_that_changes_another_resource_leaves_a_running_one_alone() {
    let mut world = World::new(calm());
    world.version(1, &[r("a"), r("b")]);
    world.ok("b");
    world.version(2, &[r("a"), r("b").value(1)]);
    world.run_all();
    assert_eq!(world.started, ["a", "b", "b"]);
    world.assert_at_rest();
}

// 6
#[test]
fn a_changed_intent_of_a_running_resource_queues_one_more_run() {
    let mut world = World::new(calm());
    world.version(1, &[r("a")]);
    world.version(2, &[r("a").value(1)]);
    world.version(3, &[r("a").value(2)]);
    world.deploy();
    world.ok("a");
    assert_eq!(world.status("a"), Status::Deploying);
    world.ok("a");
    assert_eq!(world.started, ["a", "a"]);
    assert_eq!(world.status("a"), Status::Deployed);
    world.assert_at_rest();
}

// 7
#[test]
fn a_dependent_waits_for_the_second_run_of_what_was_changed_meanwhile() {
    let mut world = World::new(calm());
    world.version(1, &[r("a"), r("b").requires(&["a"])]);
    world.version(2, &[r("a").value(1), r("b").requires(&["a"])]);
    world.ok("a");
    assert_eq!((world.running_names(), world.waiting()), (vec!["a".into()], vec!["b".into()]));
    world.ok("a");
    assert_eq!(world.running_names(), ["b"]);
}

// 8
#[test]
fn a_repair_during_a_deploy_adds_only_what_is_not_scheduled() {
    let mut world = World::deployed(&[r("a"), r("b"), r("x/c"), r("x/d")]);
    world.pause("x");
    world.version(2, &[r("a").value(1), r("b"), r("x/c").value(1), r("x/d")]);
    assert_eq!(world.running_names(), ["a"]);
    world.repair();
    assert_eq!(world.running_names(), ["a", "b"]);
    assert_eq!(world.queue("x"), ["x/c", "x/d"]);
    assert_eq!(world.reason("x/c"), Some(Reason::NewVersion(orrery_model::VersionNumber(2))));
    world.run_all();
    world.unpause("x");
    world.run_all();
    assert_eq!(world.started, ["a", "b", "x/c", "x/d"]);
    world.assert_at_rest();
}

// 9
#[test]
fn scheduling_a_requirement_sends_a_queued_dependent_back_to_wait() {
    let mut world = World::deployed(&[r("a"), r("x/b").requires(&["a"])]);
    world.pause("x");
    world.version(2, &[r("a"), r("x/b").value(1).requires(&["a"])]);
    assert_eq!(world.queue("x"), ["x/b"]);
    world.version(3, &[r("a").value(1), r("x/b").value(1).requires(&["a"])]);
    assert_eq!((world.queue("x"), world.waiting()), (vec![], vec!["x/b".into()]));
    world.ok("a");
    assert_eq!(world.queue("x"), ["x/b"]);
}

// 10
#[test]
fn dropping_the_last_edge_releases_at_once() {
    let mut world = World::new(calm());
    world.version(1, &[r("a"), r("b").requires(&["a"])]);
    assert_eq!(world.running_names(), ["a"]);
    world.version(2, &[r("a"), r("b")]);
    assert_eq!(world.running_names(), ["a", "b"]);
}

// 10
#[test]
fn reversing_an_edge_swaps_the_waiting_task() {
    let mut world = World::new(calm());
    world.pause("x");
    world.version(1, &[r("x/a"), r("x/b").requires(&["x/a"])]);
    assert_eq!((world.queue("x"), world.waiting()), (vec!["x/a".into()], vec!["x/b".into()]));
    world.version(2, &[r("x/a").requires(&["x/b"]), r("x/b")]);
    assert_eq!((world.queue("x"), world.waiting()), (vec!["x/b".into()], vec!["x/a".into()]));
}

// 11
#[test]
fn an_update_and_an_edge_flip_in_one_version_are_one_step() {
    let mut world = World::deployed(&[r("a"), r("b").requires(&["a"])]);
    world.version(2, &[r("a").value(1).requires(&["b"]), r("b").value(1)]);
    assert_eq!(world.running_names(), ["b"]);
    world.run_all();
    assert_eq!(world.started, ["b", "a"]);
}

// 12
#[test]
fn a_stale_run_changes_neither_compliance_nor_dirt_nor_waiters() {
    let mut world = World::new(calm());
    world.version(1, &[r("x/a"), r("b").requires(&["x/a"])]);
    world.version(2, &[r("x/a").value(1), r("b").requires(&["x/a"])]);
    world.pause("x");
    world.ok("x/a");
    assert_eq!(world.state("x/a").compliance(), Some(Compliance::HasUpdate));
    assert_eq!(world.dirty(), ["b", "x/a"]);
    assert_eq!(world.waiting(), ["b"]);
    assert!(world.state("x/a").last_run_at.is_some());
}

// 13
#[test]
fn removed_resources_lose_queued_tasks_finish_running_ones_and_free_dependents() {
    let mut world = World::new(calm());
    world.version(1, &[r("x/a"), r("x/q"), r("b").requires(&["x/a", "x/q"])]);
    assert_eq!((world.running_names(), world.queue("x")), (vec!["x/a".into()], vec!["x/q".into()]));
    let task = world.task("x/a");
    world.version(2, &[r("b")]);
    assert_eq!((world.running_names(), world.queue("x").len()), (vec!["b".into()], 0));
    assert!(world.scheduler.is_running(task));
    world.finish_task(task, TaskResult::Finished(OutcomeStatus::Deployed));
    assert!(!world.commands.contains(&SchedulerCommand::Ignored { task }));
    world.ok("b");
    assert_eq!(world.started, ["x/a", "b"]);
    world.assert_at_rest();
}

// 14
#[test]
fn no_bookkeeping_remains_when_all_tasks_are_done() {
    let mut world = World::new(calm());
    let chain: Vec<_> = (0..20)
        .map(|n| {
            let before = format!("n{}", n - 1);
            let model = r(&format!("n{n}")).sends();
            if n == 0 { model } else { model.requires(&[&before]) }
        })
        .collect();
    world.version(1, &chain);
    world.repair();
    world.event(Event::FactRefresh(vec![id("n3"), id("n3"), id("nobody")]));
    world.run_all();
    world.deploy();
    world.assert_at_rest();
    assert_eq!(world.scheduler.counts().dirty, 0);
    world.version(2, &[]);
    assert_eq!(world.scheduler.counts().resources, 0);
    world.assert_at_rest();
}

// 15
#[test]
fn requests_act_on_the_intersection_of_agents_and_ids() {
    let models = [r("x/a"), r("x/b"), r("y/a"), r("y/b")];
    let mut world = World::deployed(&models);
    world.event(Event::Verify(Filter::agent("x")));
    world.run_all();
    assert_eq!(std::mem::take(&mut world.started), ["x/a", "x/b"]);
    world.event(Event::Verify(ids(&["y/b", "x/a", "nobody"])));
    world.run_all();
    assert_eq!(std::mem::take(&mut world.started), ["x/a", "y/b"]);
    let both = Filter { agents: Some(vec!["x".into()]), ..ids(&["y/b", "x/a"]) };
    world.event(Event::Verify(both.clone()));
    world.run_all();
    assert_eq!(std::mem::take(&mut world.started), ["x/a"]);

    for model in &models {
        world.outcome(&model.name, OutcomeStatus::Failed);
    }
    world.repair();
    world.run_all();
    world.started.clear();
    world.event(Event::DeployDirty(both));
    world.run_all();
    assert_eq!(std::mem::take(&mut world.started), ["x/a"]);
    world.event(Event::DeployDirty(Filter::agent("y")));
    world.run_all();
    assert_eq!(std::mem::take(&mut world.started), ["y/a", "y/b"]);
    world.event(Event::DeployDirty(Filter::agent("nobody")));
    assert!(world.started.is_empty());
}

// 16, 20
#[test]
fn tasks_are_taken_in_the_order_of_their_priorities() {
    let settings = Settings {
        deploy_interval: Interval::Every(orrery_model::Duration::from_secs(100)),
        repair_interval: Interval::Every(orrery_model::Duration::from_secs(100)),
        ..calm()
    };
    let mut world = World::new(settings);
    let mut models = vec![r("x/u"), r("x/n"), r("x/p"), r("x/f").reports(), r("x/i"), r("x/busy")];
    world.outcome("x/f", OutcomeStatus::NonCompliant);
    world.outcome("x/u", OutcomeStatus::Failed);
    world.version(1, &models);
    world.run_all();
    world.outcome("x/u", OutcomeStatus::Deployed);
    world.started.clear();
    world.event(Event::Verify(ids(&["x/busy"])));
    world.advance(100);
    assert_eq!(world.queue("x"), ["x/u", "x/f", "x/n", "x/p", "x/i"]);
    world.event(Event::FactRefresh(vec![id("x/i")]));
    let resources = vec![models[4].intent()];
    let version = orrery_model::VersionNumber(1);
    world.event(Event::DryRun(DryRunRequest { dry_run: DryRunId(7), version, resources }));
    world.event(Event::Verify(ids(&["x/p"])));
    models[1].value = 1;
    world.version(2, &models);
    world.event(Event::DeployDirty(ids(&["x/u"])));
    let order = ["x/u", "x/n", "x/p", "dry run 7 0", "x/f", "facts x/i", "x/i"];
    assert_eq!(world.queue("x"), order, "a stronger request replaced each weaker one");
    world.run_all();
    assert_eq!(world.started[1..], order);
    world.assert_at_rest();
}

// 17
#[test]
fn a_deferred_task_keeps_its_position_and_a_raised_one_goes_to_the_end_of_its_priority() {
    let mut models = [r("x/a"), r("x/b").requires(&["y"]), r("x/c"), r("y")];
    let mut world = World::deployed(&models);
    world.pause("x");
    for model in &mut models[..3] {
        model.value = 1;
    }
    world.version(2, &models);
    assert_eq!(world.queue("x"), ["x/a", "x/b", "x/c"]);
    world.event(Event::Verify(ids(&["y"])));
    assert_eq!(world.queue("x"), ["x/a", "x/c"]);
    world.ok("y");
    assert_eq!(world.queue("x"), ["x/a", "x/b", "x/c"]);
    world.event(Event::DeployDirty(ids(&["x/c"])));
    world.event(Event::DeployDirty(ids(&["x/a"])));
    assert_eq!(world.queue("x"), ["x/c", "x/a", "x/b"]);
    assert_eq!(world.reason("x/a"), Some(Reason::UserDeployDirty));
    world.event(Event::Verify(ids(&["x/c"])));
    assert_eq!(
        world.reason("x/c"),
        Some(Reason::UserDeployDirty),
        "weaker requests change nothing"
    );
    assert_eq!(world.queue("x"), ["x/c", "x/a", "x/b"]);
}

// 18
#[test]
fn a_raise_while_running_raises_the_events_and_the_queued_copy() {
    let models = [r("s").sends(), r("b").requires(&["s"])];
    let mut world = World::deployed(&models);
    world.event(Event::Verify(ids(&["s"])));
    world.fail("s");
    world.fail("b");
    world.event(Event::Verify(ids(&["b"])));
    world.event(Event::Verify(ids(&["s"])));
    assert_eq!(world.running_names(), ["b", "s"]);
    assert_eq!(
        world.reason("b"),
        Some(Reason::RequirementScheduled { requirement: Some(id("s")) })
    );
    world.deploy();
    let running = world.scheduler.running();
    assert!(running.iter().all(|run| run.priority == Priority::UserDeployDirty));
    let index = world.scheduler.index_of(id("b").as_str()).unwrap();
    assert_eq!(
        world.scheduler.scheduled(index),
        Some((Priority::UserDeployDirty, Reason::UserDeployDirty))
    );
    world.ok("b");
    world.ok("s");
    assert_eq!(world.running[0].priority, Priority::UserDeployDirty);
    world.ok("b");
    world.event(Event::Verify(ids(&["s"])));
    world.fail("s");
    world.ok("b");
    world.event(Event::Verify(ids(&["s"])));
    world.event(Event::DeployDirty(ids(&["s"])));
    world.pause("b");
    world.ok("s");
    assert_eq!(
        world.scheduler.scheduled(index),
        Some((Priority::UserDeployDirty, Reason::Event { from: Some(id("s")) }))
    );
}

// 19
#[test]
fn an_urgent_request_does_not_raise_a_task_that_only_got_an_edge() {
    let every = Interval::Every(orrery_model::Duration::from_secs(100));
    let mut world = World::new(Settings { repair_interval: every, ..calm() });
    world.version(1, &[r("x/b"), r("c")]);
    world.run_all();
    world.pause("x");
    world.advance(100);
    world.run_all();
    world.version(2, &[r("x/b").requires(&["c"]), r("c").value(1)]);
    let index = world.scheduler.index_of(id("x/b").as_str()).unwrap();
    let expected = Some((Priority::IntervalRepair, Reason::RepairInterval));
    assert_eq!((world.waiting(), world.scheduler.scheduled(index)), (vec!["x/b".into()], expected));
    world.ok("c");
    assert_eq!(world.queue("x"), ["x/b"]);
    let expected = Some((Priority::IntervalRepair, Reason::RepairInterval));
    assert_eq!(world.scheduler.scheduled(index), expected);
}

// 20
#[test]
fn facts_and_dry_runs_share_the_serial_queue_of_their_agent() {
    let models = [r("x/a"), r("x/b")];
    let mut world = World::deployed(&models);
    world.event(Event::FactRefresh(vec![id("x/a"), id("x/b")]));
    let resources = models.iter().map(crate::world::Model::intent).collect();
    let version = orrery_model::VersionNumber(1);
    world.event(Event::DryRun(DryRunRequest { dry_run: DryRunId(1), version, resources }));
    assert_eq!(world.running.len(), 1);
    assert_eq!(world.queue("x"), ["dry run 1 0", "dry run 1 1", "facts x/b"]);
    world.run_all();
    assert_eq!(world.started, ["facts x/a", "dry run 1 0", "dry run 1 1", "facts x/b"]);
    assert!(world.commands.is_empty());
    world.assert_at_rest();
}

#[test]
fn only_direct_requirements_order_tasks() {
    let models = [r("a"), r("b").requires(&["a"]), r("c").requires(&["b"])];
    let mut world = World::deployed(&models);
    world.event(Event::Verify(ids(&["a", "c"])));
    assert_eq!(world.running_names(), ["a", "c"]);
}

#[test]
fn an_agent_runs_one_task_at_a_time_and_agents_run_side_by_side() {
    let mut world = World::new(calm());
    world.version(1, &[r("x/a"), r("x/b"), r("y/a"), r("y/b")]);
    assert_eq!(world.running_names(), ["x/a", "y/a"]);
    world.ok("x/a");
    assert_eq!(world.running_names(), ["x/b", "y/a"]);
}
