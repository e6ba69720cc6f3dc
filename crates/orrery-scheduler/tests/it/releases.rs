//! A release precedes the remainder of any repair; an interrupted repair resumes.

use orrery_model::{Duration, OutcomeStatus};
use orrery_scheduler::{Event, Filter, Priority, Reason};

use crate::world::{Model, World, calm, id, r, whole};

/// Twenty resources of one agent.
fn many() -> Vec<Model> {
    (0..20).map(|n| r(&format!("x/r{n:02}"))).collect()
}

fn name(n: usize) -> String {
    format!("x/r{n:02}")
}

fn priority(world: &World, name: &str) -> Option<Priority> {
    let index = world.scheduler.index_of(id(name).as_str())?;
    world.scheduler.scheduled(index).map(|(priority, _)| priority)
}

/// Events that start a repair of everything.
fn repairs() -> Vec<Event> {
    let since = orrery_model::Timestamp(i64::MAX);
    vec![Event::Verify(Filter::all()), Event::ResumeVerify { filter: Filter::all(), since }]
}

#[test]
fn a_release_comes_before_what_remains_of_a_requested_repair() {
    for repair in repairs() {
        let mut models = many();
        let mut world = World::deployed(&models);
        world.event(repair);
        world.ok("x/r00");
        models[17] = r("x/r17").value(1);
        models.push(r("x/r20"));
        world.version(2, &models);
        assert_eq!(priority(&world, "x/r17"), Some(Priority::NewVersion));
        assert_eq!(priority(&world, "x/r16"), Some(Priority::UserVerify), "it is only verified");
        world.started.clear();
        world.run_all();
        assert_eq!(world.started[..3], ["x/r17", "x/r20", "x/r02"], "r01 ran already");
        assert_eq!(world.started.len(), 19, "the repair goes on afterwards, and repeats nothing");
    }
}

/// A deploy on a server is a release and a repair in one step.
#[test]
fn a_release_with_a_repair_comes_before_the_rest_of_both_repairs() {
    let mut models = many();
    let mut world = World::deployed(&models);
    world.repair();
    world.ok("x/r00");
    models[12] = r("x/r12").value(1);
    world.version(2, &models);
    world.repair();
    models[5] = r("x/r05").value(1);
    world.version(3, &models);
    world.repair();
    world.started.clear();
    world.run_all();
    assert_eq!(world.started[..3], ["x/r12", "x/r05", "x/r02"]);
}

#[test]
fn a_deploy_tries_what_failed_and_leaves_the_rest_of_a_repair_where_it_was() {
    let mut world = World::new(calm());
    world.outcome("x/r19", OutcomeStatus::Failed);
    world.version(1, &many());
    world.run_all();
    world.repair();
    world.deploy();
    assert_eq!(priority(&world, "x/r19"), Some(Priority::UserDeployDirty));
    assert_eq!(priority(&world, "x/r18"), Some(Priority::UserVerify));
    assert_eq!(world.dirty(), ["x/r19"], "what is only verified counts as deployed");
}

/// A released resource must not wait for its requirement's turn in a repair.
#[test]
fn requirements_inherit_the_priority_of_a_release() {
    let mut models = many();
    models[10] = r("x/r10").requires(&["x/r15"]);
    models[15] = r("x/r15").requires(&["y/base"]);
    models.push(r("y/other"));
    models.push(r("y/base"));
    let mut world = World::deployed(&models);
    world.repair();
    models[10] = r("x/r10").requires(&["x/r15"]).value(1);
    world.version(2, &models);
    for lifted in ["x/r10", "x/r15", "y/base"] {
        assert_eq!(priority(&world, lifted), Some(Priority::NewVersion), "{lifted}");
    }
    let index = world.scheduler.index_of(id("x/r15").as_str()).unwrap();
    assert_eq!(world.scheduler.scheduled(index).unwrap().1, Reason::UserVerify, "it says why");
    world.started.clear();
    world.ok("y/other");
    world.ok("y/base");
    world.run_all();
    let index = |name: &str| world.started.iter().position(|one| one == name).unwrap();
    assert_eq!(index("y/base"), 0);
    assert!(index("x/r10") < index("x/r03"), "{:?}", world.started);
    assert_eq!(index("x/r15") + 1, index("x/r10"));
}

/// The same if the repair begins while the release waits.
#[test]
fn a_repair_that_begins_later_does_not_delay_a_release() {
    let mut models = many();
    models[10] = r("x/r10").requires(&["y/base"]);
    models.extend((0..5).map(|n| r(&format!("y/r{n}"))));
    models.push(r("y/base"));
    let mut world = World::deployed(&models);
    world.event(Event::Verify(Filter::ids([id("x/r00")])));
    models[10] = r("x/r10").requires(&["y/base"]).value(1);
    world.version(2, &models);
    assert_eq!(world.queue("x"), ["x/r10"]);
    world.started.clear();
    world.repair();
    world.run_all();
    let index = |name: &str| world.started.iter().position(|one| one == name).unwrap();
    assert!(index("y/base") < index("y/r1") && index("x/r10") < index("x/r03"));
}

#[test]
fn new_intents_come_before_failed_ones() {
    let mut models = many();
    let mut world = World::new(calm());
    world.outcome("x/r01", OutcomeStatus::Failed);
    world.outcome("x/r02", OutcomeStatus::Failed);
    world.version(1, &models);
    world.run_all();
    world.pause("x");
    models[9] = r("x/r09").value(1);
    world.version(2, &models);
    assert_eq!(world.queue("x"), ["x/r09", "x/r01", "x/r02"]);
}

#[test]
fn a_release_that_a_restart_interrupts_comes_before_a_resumed_repair() {
    let mut models = many();
    let mut world = World::deployed(&models);
    world.now = world.now + Duration::from_secs(60);
    let began = world.now;
    world.repair();
    for model in &mut models[10..15] {
        model.value = 1;
    }
    world.version(2, &models);
    world.restart(false);
    world.event(Event::ResumeVerify { filter: Filter::all(), since: began });
    world.started.clear();
    world.run_all();
    let released: Vec<String> = (10..15).map(name).collect();
    assert!(world.started.starts_with(&released), "r00 was cut off, and runs: {:?}", world.started);
    assert_eq!(world.started.len(), 19);
}

#[test]
fn an_interrupted_repair_resumes_without_repeating_anything() {
    let mut world = World::deployed(&many());
    world.now = world.now + Duration::from_secs(60);
    let began = world.now;
    world.repair();
    for n in 0..7 {
        world.now = world.now + Duration::from_secs(1);
        match n {
            3 => world.fail(&name(n)),
            _ => world.ok(&name(n)),
        }
    }
    world.now = world.now + Duration::from_secs(30);
    world.started.clear();
    world.restart(false);
    world.event(Event::ResumeVerify { filter: Filter::all(), since: began });
    world.run_all();
    let mut ran = world.started.clone();
    ran.sort();
    let expected: Vec<String> = [3].into_iter().chain(7..20).map(name).collect();
    assert_eq!(ran, expected, "what failed, what was cut off, and what had not had its turn");
    world.assert_at_rest();

    // A resource deployed before the repair began is still to be verified.
    let newer = whole(2, &many(), &[None]);
    world.restart_with(false, vec![newer]);
    world.started.clear();
    let since = world.now + Duration::from_secs(1);
    world.event(Event::ResumeVerify { filter: Filter::all(), since });
    world.run_all();
    assert_eq!(world.started.len(), 20);
}
