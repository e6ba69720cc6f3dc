//! Undefined resources and their dependents.

use orrery_model::{Blocked, Compliance, Status};
use orrery_scheduler::{Event, SchedulerWarning};

use crate::world::{Model, World, calm, id, r};

fn blocked(world: &World) -> Vec<String> {
    world.names(|scheduler, index| scheduler.state(index).unwrap().blocked == Blocked::Blocked)
}

// 33
#[test]
fn exactly_the_transitive_dependents_of_undefined_are_blocked() {
    let mut models = vec![
        r("u").undefined(),
        r("v").undefined(),
        r("a").requires(&["u"]),
        r("b").requires(&["a"]),
        r("left").requires(&["u"]),
        r("right").requires(&["free"]),
        r("diamond").requires(&["left", "right"]),
        r("both").requires(&["u", "v"]),
        r("far").requires(&["both"]),
        r("free"),
    ];
    let mut world = World::new(calm());
    world.version(1, &models);
    assert_eq!(blocked(&world), ["a", "b", "both", "diamond", "far", "left", "u", "v"]);
    assert_eq!(world.status("b"), Status::SkippedForUndefined);
    world.run_all();
    assert_eq!(world.started, ["free", "right"]);
    models[0] = r("u");
    world.version(2, &models);
    assert_eq!(blocked(&world), ["both", "far", "v"], "one of two blockers is still there");
    world.run_all();
    assert_eq!(world.started[2], "u");
    world.started[3..].sort();
    assert_eq!(world.started[3..], ["a", "b", "diamond", "left"]);
    models[1] = r("v");
    world.version(3, &models);
    assert!(blocked(&world).is_empty());
    world.run_all();
    world.assert_at_rest();
}

#[test]
fn an_edge_to_something_undefined_blocks_the_whole_chain_above_it() {
    let chain =
        |a: Model| vec![a, r("b").requires(&["a"]), r("c").requires(&["b"]), r("u").undefined()];
    let mut world = World::deployed(&chain(r("a")));
    world.version(2, &chain(r("a").requires(&["u"])));
    assert_eq!(blocked(&world), ["a", "b", "c", "u"]);
    world.repair();
    assert!(world.started.is_empty());
    world.version(3, &chain(r("a")));
    assert_eq!(blocked(&world), ["u"]);
    world.deploy();
    assert!(world.started.is_empty(), "they were compliant before and are so again");
}

// 34
#[test]
fn becoming_undefined_takes_a_task_back_and_becoming_defined_makes_one() {
    let mut world = World::new(calm());
    world.pause("x");
    world.version(1, &[r("x/a"), r("x/b").requires(&["x/a"]), r("x/c")]);
    world.version(2, &[r("x/a").undefined(), r("x/b").requires(&["x/a"]), r("x/c")]);
    assert_eq!((world.queue("x"), world.waiting().len()), (vec!["x/c".into()], 0));
    assert_eq!(world.state("x/a").compliance(), Some(Compliance::Undefined));
    world.version(3, &[r("x/a"), r("x/b").requires(&["x/a"]), r("x/c")]);
    assert_eq!(
        (world.queue("x"), world.waiting()),
        (vec!["x/c".into(), "x/a".into()], vec!["x/b".into()])
    );
}

// 34
#[test]
fn facts_of_a_blocked_resource_are_not_read() {
    let mut world = World::deployed(&[r("x/a"), r("x/b").requires(&["x/a"])]);
    world.pause("x");
    world.event(Event::FactRefresh(vec![id("x/a"), id("x/b")]));
    assert_eq!(world.queue("x").len(), 2);
    world.version(2, &[r("x/a").undefined(), r("x/b").requires(&["x/a"])]);
    assert!(world.queue("x").is_empty());
    world.event(Event::FactRefresh(vec![id("x/b")]));
    assert!(world.queue("x").is_empty());
}

// 35
#[test]
fn of_versions_processed_together_only_the_net_effect_blocks() {
    let mut world = World::deployed(&[r("a"), r("b").requires(&["a"])]);
    world.versions(&[
        (2, vec![r("a").undefined(), r("b").requires(&["a"])]),
        (3, vec![r("a"), r("b").requires(&["a"])]),
    ]);
    assert!(blocked(&world).is_empty() && world.started.is_empty() && world.dirty().is_empty());
    world.assert_at_rest();
}

// 36
#[test]
fn a_blocked_resource_may_go_in_the_version_that_defines_its_blocker() {
    let mut world = World::deployed(&[r("u").undefined(), r("b").requires(&["u"])]);
    world.version(2, &[r("u")]);
    assert!(!world.is_managed("b") && blocked(&world).is_empty());
    world.run_all();
    assert_eq!(world.started, ["u"]);
}

#[test]
fn a_run_of_a_resource_that_became_undefined_is_stale() {
    let mut world = World::new(calm());
    world.version(1, &[r("a"), r("b").requires(&["a"])]);
    world.version(2, &[r("a").undefined(), r("b").requires(&["a"])]);
    world.ok("a");
    assert_eq!(world.status("a"), Status::Undefined);
    world.version(3, &[r("a"), r("b").requires(&["a"])]);
    assert_eq!(world.running_names(), ["a"], "what ran before says nothing of what is wanted now");
    world.run_all();
    world.assert_at_rest();
}

#[test]
fn resources_that_require_each_other_are_reported_and_deployed_nevertheless() {
    let mut world = World::new(calm());
    world.version(
        1,
        &[
            r("a").requires(&["c"]),
            r("b").requires(&["a"]),
            r("c").requires(&["b"]),
            r("d").requires(&["d"]),
        ],
    );
    let cycles: Vec<usize> = world
        .warnings
        .iter()
        .map(|warning| match warning {
            SchedulerWarning::Cycle(ids) => ids.len(),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(cycles, [2, 4]);
    world.run_all();
    assert_eq!(world.started.len(), 4);
    world.assert_at_rest();
}

#[test]
fn an_unknown_requirement_is_reported_and_not_waited_for() {
    let mut world = World::new(calm());
    world.version(1, &[r("a").requires(&["nobody"])]);
    let expected = SchedulerWarning::UnknownRequirement { id: id("a"), requirement: id("nobody") };
    assert_eq!(world.warnings, [expected]);
    assert_eq!(world.running_names(), ["a"]);
}
