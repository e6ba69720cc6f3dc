//! Events, skipping and recovery.

use orrery_model::{Blocked, OutcomeStatus, Status};
use orrery_scheduler::{Event, Filter, Reason, SchedulerWarning, TaskResult};

use crate::world::{Model, World, calm, id, r};

fn repair(world: &mut World, name: &str) {
    world.event(Event::Verify(Filter::ids([id(name)])));
}

// 21
#[test]
fn only_senders_trigger_and_only_direct_dependents() {
    let models = [
        r("s").sends(),
        r("b").requires(&["s"]),
        r("c").requires(&["b"]),
        r("p"),
        r("d").requires(&["p"]),
    ];
    let mut world = World::deployed(&models);
    repair(&mut world, "s");
    world.run_all();
    repair(&mut world, "p");
    world.run_all();
    assert_eq!(world.started, ["s", "b", "p"]);
}

// 22
#[test]
fn failure_and_skipping_send_events_too() {
    let models = [r("s").sends(), r("b").requires(&["s"])];
    for status in [OutcomeStatus::Failed, OutcomeStatus::Skipped] {
        let mut world = World::deployed(&models);
        repair(&mut world, "s");
        world.finish("s", status);
        assert_eq!(world.running_names(), ["b"]);
        assert_eq!(world.running[0].reason, Reason::Event { from: Some(id("s")) });
    }
}

// 23
#[test]
fn an_event_to_a_running_dependent_gives_a_second_run() {
    let mut world = World::new(calm());
    world.version(1, &[r("s").sends(), r("b")]);
    world.version(2, &[r("s").sends(), r("b").requires(&["s"])]);
    assert_eq!(world.running_names(), ["b", "s"]);
    world.ok("s");
    world.ok("b");
    assert_eq!(world.started, ["s", "b", "b"]);
    world.run_all();
    world.assert_at_rest();
}

// 23
#[test]
fn an_event_to_a_scheduled_dependent_adds_nothing() {
    let models = [r("s").sends(), r("x/b").requires(&["s"])];
    let mut world = World::deployed(&models);
    world.pause("x");
    world.repair();
    world.ok("s");
    assert_eq!(world.queue("x"), ["x/b"]);
    world.unpause("x");
    world.run_all();
    assert_eq!(world.started, ["s", "x/b"]);
}

// 24
#[test]
fn stale_and_dropped_resources_send_no_events() {
    let models = [r("x/s").sends(), r("b").requires(&["x/s"])];
    let mut world = World::deployed(&models);
    repair(&mut world, "x/s");
    world.version(2, &[r("x/s").sends().value(1), r("b").requires(&["x/s"])]);
    world.pause("x");
    world.ok("x/s");
    assert!(world.running.is_empty() && world.waiting().is_empty());

    let mut world = World::deployed(&models);
    repair(&mut world, "x/s");
    let task = world.task("x/s");
    world.version(2, &[r("b")]);
    world.finish_task(task, TaskResult::Finished(OutcomeStatus::Deployed));
    assert_eq!(world.started, ["x/s"]);
    world.assert_at_rest();
}

// 25
#[test]
fn a_run_that_an_event_caused_and_that_fails_makes_dirty() {
    for status in [OutcomeStatus::Failed, OutcomeStatus::Skipped] {
        let mut world = World::deployed(&[r("s").sends(), r("b").requires(&["s"])]);
        repair(&mut world, "s");
        world.ok("s");
        world.finish("b", status);
        assert_eq!(world.dirty(), ["b"]);
    }
}

// 26
#[test]
fn a_resource_that_receives_an_event_still_waits_for_others() {
    let models = [r("s").sends(), r("o"), r("b").requires(&["s", "o"])];
    let mut world = World::deployed(&models);
    repair(&mut world, "o");
    repair(&mut world, "s");
    world.ok("s");
    assert_eq!((world.running_names(), world.waiting()), (vec!["o".into()], vec!["b".into()]));
    world.ok("o");
    assert_eq!(world.running_names(), ["b"]);
}

// 27
#[test]
fn a_resource_that_receives_no_events_is_not_run() {
    let mut world = World::deployed(&[r("s").sends(), r("b").requires(&["s"]).deaf()]);
    repair(&mut world, "s");
    world.run_all();
    assert_eq!(world.started, ["s"]);
}

fn with_failed(bad: &[&str], models: &[Model]) -> World {
    let mut world = World::new(calm());
    for name in bad {
        world.outcome(name, OutcomeStatus::Failed);
    }
    world.version(1, models);
    world.run_all();
    for name in bad {
        world.outcome(name, OutcomeStatus::Deployed);
    }
    world.started.clear();
    world
}

// 28
#[test]
fn a_skipped_resource_recovers_with_its_requirement_even_without_events() {
    let mut world = with_failed(&["a"], &[r("a"), r("b").requires(&["a"]).deaf()]);
    assert_eq!(world.state("b").blocked, Blocked::TemporarilyBlocked);
    assert_eq!(world.status("b"), Status::Skipped);
    assert_eq!(world.dirty(), ["a"]);
    world.deploy();
    world.ok("a");
    assert_eq!(world.running[0].reason, Reason::Recovered { requirement: Some(id("a")) });
    world.run_all();
    assert_eq!(world.started, ["a", "b"]);
    assert_eq!(world.status("b"), Status::Deployed);
    assert!(world.warnings.is_empty());
}

// 28, stale results
#[test]
fn a_stale_success_recovers_dependents_too() {
    let mut world = with_failed(&["x/a"], &[r("x/a"), r("b").requires(&["x/a"])]);
    world.deploy();
    world.version(2, &[r("x/a").value(1), r("b").requires(&["x/a"])]);
    world.pause("x");
    world.ok("x/a");
    assert_eq!(world.state("b").blocked, Blocked::NotBlocked);
    assert_eq!(world.waiting(), ["b"]);
}

// 29
#[test]
fn a_skipped_resource_is_unblocked_when_no_bad_requirement_remains() {
    let models = [r("a"), r("x/u"), r("b").requires(&["a", "x/u"])];
    let mut world = World::new(calm());
    world.pause("x");
    world.outcome("a", OutcomeStatus::Failed);
    world.version(1, &models);
    world.run_all();
    // The state of `x/u` is unknown: it was removed from the queue before it ran.
    world.event(Event::Cancel(Filter::agent("x")));
    world.run_all();
    assert_eq!(world.state("b").blocked, Blocked::TemporarilyBlocked);
    world.event(Event::DeployDirty(Filter::ids([id("a")])));
    world.ok("a");
    assert_eq!(world.running_names(), ["b"]);
    assert_eq!(world.state("b").blocked, Blocked::NotBlocked);
}

// 29
#[test]
fn one_of_two_bad_requirements_getting_better_is_not_enough() {
    let mut world = with_failed(&["a", "c"], &[r("a"), r("c"), r("b").requires(&["a", "c"])]);
    world.event(Event::DeployDirty(Filter::ids([id("a")])));
    world.ok("a");
    assert_eq!((world.running.len(), world.state("b").blocked), (0, Blocked::TemporarilyBlocked));
    world.deploy();
    world.run_all();
    assert_eq!(world.started, ["a", "c", "b"]);
}

// 29
#[test]
fn dropping_or_remaking_the_bad_requirement_unblocks() {
    let models = [r("a"), r("b").requires(&["a"])];
    let mut world = with_failed(&["a"], &models);
    world.version(2, &[r("a"), r("b")]);
    assert_eq!(world.state("b").blocked, Blocked::NotBlocked);
    assert!(world.running_names().contains(&"b".to_owned()));

    let mut world = with_failed(&["a"], &models);
    world.versions(&[(2, vec![r("b")]), (3, models.to_vec())]);
    assert_eq!(world.state("b").blocked, Blocked::NotBlocked);
    world.run_all();
    assert_eq!(world.started, ["a", "b"]);
}

// 29
#[test]
fn a_new_intent_unblocks() {
    let mut world = with_failed(&["a"], &[r("a"), r("b").requires(&["a"])]);
    world.version(2, &[r("a"), r("b").value(1).requires(&["a"])]);
    assert_eq!(world.state("b").blocked, Blocked::NotBlocked);
    assert_eq!(world.waiting(), ["b"]);
}

// 29
#[test]
fn a_bad_requirement_that_is_interrupted_is_no_longer_known_to_be_bad() {
    let mut world = with_failed(&["a"], &[r("a"), r("b").requires(&["a"])]);
    world.deploy();
    world.event(Event::Cancel(Filter::ids([id("a")])));
    let task = world.task("a");
    world.finish_task(task, TaskResult::Cancelled);
    assert_eq!(
        (world.state("b").blocked, world.running_names()),
        (Blocked::NotBlocked, vec!["b".into()])
    );
    world.run_all();
    assert_eq!(world.dirty(), ["a", "b"]);
    world.deploy();
    world.run_all();
    assert!(world.dirty().is_empty());
}

// 30
#[test]
fn deploys_leave_out_what_waits_for_recovery_but_repairs_and_names_do_not() {
    let models = [r("a"), r("b").requires(&["a"])];
    let mut world = with_failed(&["a"], &models);
    world.outcome("a", OutcomeStatus::Failed);
    world.deploy();
    world.run_all();
    assert_eq!(std::mem::take(&mut world.started), ["a"]);
    world.event(Event::DeployDirty(Filter::agent("b")));
    assert!(world.started.is_empty());
    world.event(Event::DeployDirty(Filter::ids([id("b")])));
    world.run_all();
    assert_eq!(std::mem::take(&mut world.started), ["b"]);
    assert_eq!(world.state("b").blocked, Blocked::TemporarilyBlocked);
    world.repair();
    world.run_all();
    assert_eq!(world.started, ["a", "b"]);
    assert!(world.warnings.is_empty());
}

// 30
#[test]
fn an_unexpected_success_is_reported_with_the_handler_to_blame() {
    let mut world = with_failed(&["a"], &[r("a"), r("b").requires(&["a"])]);
    world.event(Event::DeployDirty(Filter::ids([id("b")])));
    world.ok("b");
    let expected = SchedulerWarning::UnexpectedSuccess { id: id("b"), bad: vec![id("a")] };
    assert_eq!(world.warnings, [expected]);
    assert!(world.warnings[0].to_string().contains("does not honour"));
    assert_eq!(
        (world.status("b"), world.state("b").blocked),
        (Status::Deployed, Blocked::NotBlocked)
    );
}

// 31
#[test]
fn a_repair_never_schedules_what_is_blocked() {
    let models = [r("u").undefined(), r("b").requires(&["u"]), r("c")];
    let mut world = World::deployed(&models);
    world.repair();
    world.event(Event::Verify(Filter::ids([id("u"), id("b")])));
    world.event(Event::DeployDirty(Filter::ids([id("u"), id("b")])));
    world.run_all();
    assert_eq!(world.started, ["c"]);
}

// 32
#[test]
fn a_resource_that_skips_itself_stays_dirty_and_is_retried_by_a_deploy() {
    let mut world = World::new(calm());
    world.outcome("a", OutcomeStatus::Skipped);
    world.version(1, &[r("a")]);
    world.run_all();
    assert_eq!((world.dirty(), world.state("a").blocked), (vec!["a".into()], Blocked::NotBlocked));
    world.deploy();
    assert_eq!(world.running_names(), ["a"]);
}

#[test]
fn a_requirement_that_is_not_known_to_be_bad_does_not_block() {
    let mut world = World::new(calm());
    world.version(1, &[r("a"), r("b")]);
    world.version(2, &[r("a"), r("b").requires(&["a"])]);
    world.finish("b", OutcomeStatus::SkippedForDependency);
    assert_eq!(
        (world.state("b").blocked, world.dirty()),
        (Blocked::NotBlocked, vec!["a".into(), "b".into()])
    );
}

#[test]
fn a_report_of_a_difference_is_done_and_counts_as_bad_for_dependents() {
    let mut world = World::new(calm());
    world.outcome("a", OutcomeStatus::NonCompliant);
    world.version(
        1,
        &[r("a").reports(), r("b").requires(&["a"]), r("c").requires(&["a"]).reports()],
    );
    world.run_all();
    assert_eq!(world.status("a"), Status::NonCompliant);
    assert!(world.dirty().is_empty());
    assert_eq!(world.state("b").blocked, Blocked::TemporarilyBlocked);
    assert_eq!(world.status("c"), Status::Deployed, "reports do not care for requirements");
    world.outcome("a", OutcomeStatus::Deployed);
    repair(&mut world, "a");
    world.run_all();
    assert_eq!(world.status("b"), Status::Deployed);
}

#[test]
fn handlers_receive_the_statuses_of_requirements() {
    let mut world = World::new(calm());
    world.outcome("f", OutcomeStatus::Unavailable);
    world.outcome("n", OutcomeStatus::NonCompliant);
    world.version(
        1,
        &[
            r("d"),
            r("f"),
            r("n").reports(),
            r("k").requires(&["f"]),
            r("z").requires(&["d", "f", "n", "k"]),
        ],
    );
    while !world.running_names().contains(&"z".to_owned()) {
        let start = world.running[0].clone();
        let status = world.verdict(&start);
        world.finish_task(start.task, TaskResult::Finished(status));
    }
    let mut told: Vec<(String, Status)> = world.running[0]
        .dependencies
        .iter()
        .map(|one| (crate::world::name_of(world.scheduler.id(one.resource).unwrap()), one.status))
        .collect();
    told.sort();
    let expected = [
        ("d".to_owned(), Status::Deployed),
        ("f".to_owned(), Status::Failed),
        ("k".to_owned(), Status::Skipped),
        ("n".to_owned(), Status::NonCompliant),
    ];
    assert_eq!(told, expected);
}
