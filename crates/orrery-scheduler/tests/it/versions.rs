//! Versions: folding, orphans, sets, incarnations.

use orrery_model::{Compliance, LastRunStatus, OutcomeStatus, Status, VersionNumber};
use orrery_scheduler::{
    Event, SchedulerCommand, Scope, SetContent, SetDiff, TaskResult, VersionDiff,
};

use crate::world::{Model, World, calm, id, r, whole};

/// Names, intents and requirements of all managed resources.
fn managed(world: &World) -> Vec<(String, Vec<String>, ResourceValue)> {
    let scheduler = &world.scheduler;
    let mut all: Vec<_> = scheduler
        .resources()
        .map(|index| {
            let name = |index| crate::world::name_of(scheduler.id(index).unwrap());
            let mut requires: Vec<_> =
                scheduler.requirements(index).into_iter().map(name).collect();
            requires.sort();
            let state = scheduler.state(index).unwrap();
            (name(index), requires, (state.intent.unwrap().0, state.undefined))
        })
        .collect();
    all.sort();
    all
}

type ResourceValue = ([u8; 16], bool);

// 37
#[test]
fn versions_at_once_equal_versions_one_by_one() {
    let versions: Vec<(u32, Vec<Model>)> = vec![
        (2, vec![r("a").value(1), r("b").requires(&["a"]), r("d").set("s")]),
        (3, vec![r("a").value(2).requires(&["d"]), r("d").set("t"), r("e").set("s")]),
        (5, vec![r("a").value(2).undefined(), r("b"), r("d").set("t").requires(&["b"]), r("f")]),
        (6, vec![r("b"), r("d").set("s").value(3), r("e").set("s").requires(&["b", "d"])]),
    ];
    let first = [r("a"), r("b").requires(&["a"]), r("c").set("s").requires(&["b"])];
    let mut at_once = World::deployed(&first);
    at_once.versions(&versions);
    let mut one_by_one = World::deployed(&first);
    for (number, models) in &versions {
        one_by_one.version(*number, models);
    }
    assert_eq!(managed(&at_once), managed(&one_by_one));
    assert_eq!(at_once.orphans, one_by_one.orphans);
    assert_eq!(at_once.processed, Some(VersionNumber(6)));
    let orphans: Vec<_> =
        at_once.orphans.iter().map(|(id, version)| (id.value(), version.0)).collect();
    assert_eq!(orphans, [("a", 5), ("c", 1), ("f", 5)]);
    at_once.run_all();
    one_by_one.run_all();
    assert!(managed(&at_once) == managed(&one_by_one) && at_once.dirty().is_empty());
}

// 38
#[test]
fn delete_and_re_add_in_one_batch_resets_and_detaches_what_runs() {
    let mut world = World::new(calm());
    world.version(1, &[r("x/a")]);
    world.ok("x/a");
    world.repair();
    let task = world.task("x/a");
    world.versions(&[(2, vec![]), (3, vec![r("x/a")])]);
    let state = world.state("x/a");
    assert_eq!((state.last_run, state.last_success), (LastRunStatus::New, None));
    assert_eq!(world.queue("x"), ["x/a"]);
    world.finish_task(task, TaskResult::Finished(OutcomeStatus::Deployed));
    assert_eq!(world.state("x/a").compliance(), Some(Compliance::HasUpdate));
    assert_eq!(world.running_names(), ["x/a"]);
    world.ok("x/a");
    assert_eq!(world.status("x/a"), Status::Deployed);
    assert!(!world.orphans.contains_key(&id("x/a")));
    world.assert_at_rest();
}

// 38
#[test]
fn a_resource_that_comes_back_later_is_brand_new() {
    let mut world = World::deployed(&[r("a")]);
    world.version(2, &[]);
    assert_eq!(world.orphans[&id("a")], VersionNumber(1));
    world.version(3, &[r("a")]);
    assert_eq!(world.state("a").last_run, LastRunStatus::New);
    assert_eq!(world.running_names(), ["a"]);
}

// 39
#[test]
fn new_then_deleted_in_one_batch_is_an_orphan() {
    let mut world = World::deployed(&[r("a")]);
    world.versions(&[(2, vec![r("a"), r("n")]), (3, vec![r("a")])]);
    assert_eq!(world.orphans[&id("n")], VersionNumber(2));
    assert!(!world.is_managed("n") && world.started.is_empty());
}

// 40
#[test]
fn an_empty_model_is_valid_and_orphans_everything() {
    let mut world = World::deployed(&[r("a"), r("b").requires(&["a"])]);
    world.version(2, &[]);
    assert_eq!(world.orphans.len(), 2);
    assert_eq!(world.scheduler.counts().resources, 0);
    assert_eq!(world.processed, Some(VersionNumber(2)));
    world.assert_at_rest();
}

// 41
#[test]
fn the_first_version_of_a_new_engine_orphans_what_others_left() {
    let mut world = World::new(calm());
    world.event(Event::NewVersions(vec![VersionDiff {
        version: VersionNumber(4),
        scope: Scope::Everything,
        sets: vec![SetDiff { set: None, content: SetContent::Whole(vec![r("a").intent()]) }],
    }]));
    assert!(world.commands.contains(&SchedulerCommand::OrphanOthers));
    world.version(5, &[r("a")]);
    assert!(!world.commands.contains(&SchedulerCommand::OrphanOthers));
}

#[test]
fn a_whole_version_deletes_sets_that_it_does_not_name() {
    let mut world = World::deployed(&[r("a"), r("b").set("s"), r("c").set("t")]);
    let mut diff = whole(2, &[r("a"), r("b").set("s").value(1)], &[]);
    diff.scope = Scope::Everything;
    world.event(Event::NewVersions(vec![diff]));
    assert!(!world.is_managed("c"));
    assert_eq!(world.running_names(), ["b"]);
    assert_eq!(world.orphans.keys().map(|id| id.value()).collect::<Vec<_>>(), ["c"]);
}

#[test]
fn changes_of_a_set_touch_only_what_they_name() {
    let mut world = World::deployed(&[r("a"), r("b").set("s"), r("c").set("s"), r("d").set("s")]);
    let changes = |resources: Vec<Model>, removed: &[&str]| SetContent::Changes {
        resources: resources.iter().map(Model::intent).collect(),
        removed: removed.iter().map(|name| id(name)).collect(),
    };
    let diff = |version, sets| VersionDiff {
        version: VersionNumber(version),
        scope: Scope::ChangedSets,
        sets,
    };
    let moved = SetDiff { set: Some("t".into()), content: changes(vec![r("d")], &[]) };
    let changed =
        SetDiff { set: Some("s".into()), content: changes(vec![r("b").value(1)], &["c", "d"]) };
    world.event(Event::NewVersions(vec![diff(2, vec![changed, moved])]));
    assert_eq!(world.names(|_, _| true), ["a", "b", "d"]);
    assert_eq!(world.running_names(), ["b"], "moving to another set is no change");
    let gone = SetDiff { set: Some("t".into()), content: SetContent::Whole(Vec::new()) };
    world.event(Event::NewVersions(vec![diff(3, vec![gone])]));
    assert_eq!(world.names(|_, _| true), ["a", "b"]);
}

#[test]
fn versions_that_were_processed_already_change_nothing() {
    let mut world = World::deployed(&[r("a")]);
    world.event(Event::NewVersions(vec![whole(1, &[], &[None])]));
    assert!(world.commands.is_empty() && world.is_managed("a"));
}

#[test]
fn a_change_of_requirements_alone_is_no_change_of_intent() {
    let mut world = World::deployed(&[r("a"), r("b")]);
    world.version(2, &[r("a"), r("b").requires(&["a"])]);
    assert!(world.started.is_empty());
    world.repair();
    assert_eq!((world.running_names(), world.waiting()), (vec!["a".into()], vec!["b".into()]));
}

#[test]
fn going_back_while_another_intent_runs_deploys_again() {
    let mut world = World::deployed(&[r("x/a")]);
    world.version(2, &[r("x/a").value(1)]);
    world.version(3, &[r("x/a")]);
    assert_eq!(world.state("x/a").compliance(), Some(Compliance::HasUpdate));
    world.ok("x/a");
    assert_eq!(world.state("x/a").compliance(), Some(Compliance::HasUpdate));
    world.ok("x/a");
    assert_eq!((world.status("x/a"), world.started.len()), (Status::Deployed, 2));
    world.assert_at_rest();
}

#[test]
fn all_dirty_resources_are_part_of_a_new_version() {
    let mut world = World::new(calm());
    world.outcome("a", OutcomeStatus::Failed);
    world.version(1, &[r("a"), r("b")]);
    world.run_all();
    world.version(2, &[r("a"), r("b").value(1)]);
    assert_eq!(world.running_names(), ["a", "b"]);
}
