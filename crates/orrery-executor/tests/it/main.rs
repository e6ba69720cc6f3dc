//! The engine through its public interface: scripted resources, a store in memory, real threads.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod read_ahead;
mod remote;
mod updates;
mod world;

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orrery_handlers::{Context, Handler, HandlerError};
use orrery_model::{
    Attributes, Change, ChangeKind, Fact, LogLevel, Outcome, OutcomeStatus, ResourceId, Status,
    VersionNumber,
};
use orrery_scheduler::{Event, Filter};
use world::{World, file, scripted};

#[test]
fn everything_is_deployed_once_and_then_unchanged() {
    let world = World::new();
    let resources = vec![scripted("a", "{}", &[]), scripted("b", "{}", &["a"])];
    let first = world.deploy(&resources);
    assert_eq!((first.tally.deployed, first.tally.done()), (2, 2));
    assert_eq!(world.status("a"), Status::Deployed);
    let second = world.deploy(&resources);
    assert_eq!((second.tally.deployed, second.tally.changed()), (2, 0));
    // Unchanged results leave no log entry.
    assert_eq!(world.actions("b").len(), 1);
}

#[test]
fn files_are_created_and_only_drift_is_repaired() {
    let world = World::new();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let resources: Vec<_> =
        (0..20).map(|at| file(&path(&format!("f{at:02}")), "content\n")).collect();
    let first = world.deploy(&resources);
    assert_eq!(first.tally.created, 20);
    assert_eq!(world.deploy(&resources).tally.changed(), 0);
    std::fs::write(path("f07"), "altered by hand\n").unwrap();
    let third = world.deploy(&resources);
    assert_eq!((third.tally.updated, third.tally.changed()), (1, 1));
    assert_eq!(third.finished[0].change.kind, ChangeKind::Updated);
    assert_eq!(third.finished[0].id.value(), path("f07"));
    assert_eq!(std::fs::read_to_string(path("f07")).unwrap(), "content\n");
}

#[test]
fn a_failure_skips_its_dependents_and_nothing_else() {
    let world = World::new();
    let resources = vec![
        scripted("a", r#"{"outcome":"fail"}"#, &[]),
        scripted("b", "{}", &["a"]),
        scripted("c", "{}", &["b"]),
        scripted("d", "{}", &[]),
    ];
    let ran = world.deploy(&resources);
    assert_eq!((ran.tally.deployed, ran.tally.failed, ran.tally.skipped), (1, 1, 2));
    assert_eq!(world.status("a"), Status::Failed);
    assert_eq!(world.status("b"), Status::Skipped);
    assert_eq!(world.status("d"), Status::Deployed);
    let mended = [&[scripted("a", "{}", &[])], &resources[1..]].concat();
    let ran = world.deploy(&mended);
    assert_eq!((ran.tally.failed, ran.tally.skipped), (0, 0));
    assert_eq!(world.status("c"), Status::Deployed);
}

#[test]
fn a_handler_that_crashes_fails_its_resource_alone() {
    let world = World::new();
    let resources = vec![scripted("a", r#"{"outcome":"panic"}"#, &[]), scripted("b", "{}", &[])];
    let ran = world.deploy(&resources);
    assert_eq!((ran.tally.deployed, ran.tally.failed), (1, 1));
    let actions = world.actions("a");
    let line = actions[0].log.last().unwrap();
    assert_eq!(line.level, LogLevel::Critical);
    assert!(line.message.contains("told to panic"), "{}", line.message);
}

#[test]
fn an_entity_without_a_handler_is_unavailable() {
    let world = World::new();
    let ran =
        world.deploy(&[world::resource("no::Such", "x", "{}", &[]), scripted("b", "{}", &[])]);
    assert_eq!((ran.tally.deployed, ran.tally.unavailable), (1, 1));
    assert_eq!(ran.finished[0].status, OutcomeStatus::Unavailable);
}

#[test]
fn removed_resources_become_orphans() {
    let world = World::new();
    world.deploy(&[scripted("a", "{}", &[]), scripted("b", "{}", &[])]);
    world.deploy(&[scripted("a", "{}", &[])]);
    assert_eq!(world.status("b"), Status::Orphaned);
    assert_eq!(world.status("a"), Status::Deployed);
    // It returns like a new resource.
    let ran = world.deploy(&[scripted("a", "{}", &[]), scripted("b", "{}", &[])]);
    assert_eq!(ran.tally.deployed, 2);
    assert_eq!(world.status("b"), Status::Deployed);
}

#[test]
fn dependents_of_undefined_resources_are_blocked() {
    let world = World::new();
    let mut unknown = scripted("a", "{}", &[]);
    unknown.flags.undefined = true;
    let ran = world.deploy(&[unknown, scripted("b", "{}", &["a"]), scripted("c", "{}", &[])]);
    assert_eq!((ran.tally.deployed, ran.tally.done()), (1, 1));
    assert_eq!(world.status("a"), Status::Undefined);
    assert_eq!(world.status("b"), Status::SkippedForUndefined);
    // Once it is defined, both are deployed.
    let ran = world.deploy(&[
        scripted("a", r#"{"value":"now"}"#, &[]),
        scripted("b", "{}", &["a"]),
        scripted("c", "{}", &[]),
    ]);
    assert_eq!(ran.tally.deployed, 3);
    assert_eq!(world.status("b"), Status::Deployed);
}

#[test]
fn agents_run_in_parallel_and_each_one_serially() {
    let world = World::new();
    let slow = r#"{"delay_ms":60}"#;
    let resources: Vec<_> = (0..8)
        .map(|at| world::on_agent(&format!("agent{}", at % 4), &format!("r{at}"), slow))
        .collect();
    let mut most = 0;
    let ran = world.deploy_until(&resources, |_, progress| {
        most = most.max(progress.running);
        let mut agents: Vec<&str> = progress.slowest.iter().map(|one| one.id.agent()).collect();
        agents.sort_unstable();
        agents.dedup();
        assert_eq!(agents.len(), progress.slowest.len(), "{:?}", progress.slowest);
    });
    assert_eq!(ran.tally.deployed, 8);
    assert!((2..=4).contains(&most), "{most} at once");
}

#[test]
fn a_task_past_its_deadline_is_cancelled_and_fails() {
    let mut world = World::new();
    world.settings.task_time_max = Some(Duration::from_millis(80));
    let started = std::time::Instant::now();
    let ran =
        world.deploy(&[scripted("a", r#"{"delay_ms":60000}"#, &[]), scripted("b", "{}", &[])]);
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!((ran.tally.deployed, ran.tally.failed), (1, 1));
    assert_eq!(world.status("a"), Status::Failed);
}

#[test]
fn a_cancelled_deploy_leaves_the_rest_for_the_next() {
    let world = World::new();
    let resources: Vec<_> =
        (0..30).map(|at| scripted(&format!("r{at:02}"), r#"{"delay_ms":20}"#, &[])).collect();
    let cancelled = world.deploy_until(&resources, |engine, progress| {
        if progress.tally.deployed >= 3 {
            engine.handle_event(Event::Cancel(Filter::all()));
        }
    });
    let done = cancelled.tally.deployed;
    assert!((3..30).contains(&done), "{done}");
    let rest = world.deploy(&resources);
    assert_eq!(rest.tally.deployed, 30);
    assert_eq!(world.status("r29"), Status::Deployed);
}

#[test]
fn dependents_reload_for_a_change() {
    let world = World::new();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let log = path("log");
    let command = format!("sh -c 'echo reloaded >> {log}'");
    let with = |content: &str| {
        let mut config = file(&path("config"), content);
        config.flags.send_event = true;
        let run = world::command(&command, r#"{"reload_only":true}"#, &[&config]);
        vec![config, run]
    };
    let reloads = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    let planned = world.plan(&with("one\n"));
    assert_eq!(planned, [("updated".to_owned(), 1), ("created".to_owned(), 0)], "as it will be");
    for (content, expected) in [("one\n", 1), ("one\n", 1), ("two\n", 2), ("two\n", 2)] {
        world.deploy(&with(content));
        assert_eq!(reloads(), expected, "after {content:?}");
    }
}

/// The first deploy is killed after it created the file, before the result: in one case even before
/// the version was processed.
#[test]
fn dependents_reload_for_an_interrupted_creation() {
    for begun in [true, false] {
        let world = World::new();
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let mut config = file(&path("config"), "text\n");
        config.flags.send_event = true;
        let reload = format!("sh -c 'echo reloaded >> {}'", path("log"));
        let run = world::command(&reload, r#"{"reload_only":true}"#, &[&config]);
        let resources = [config.clone(), run];
        world.put(&resources);
        if begun {
            let lease = world.lease();
            let first = VersionNumber(1);
            world.store.engine().process_version(&lease, first, &[]).unwrap();
            world.store.leases().release(&lease).unwrap();
        }
        world.interrupt(&config);
        std::fs::write(path("config"), "text\n").unwrap();
        std::fs::set_permissions(path("config"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let ran = world.deploy(&resources);
        assert_eq!((ran.tally.created, ran.tally.updated), (0, 1), "the file was as wanted");
        world.deploy(&resources);
        assert_eq!(std::fs::read_to_string(path("log")).unwrap(), "reloaded\n");
    }
}

#[test]
fn dependents_reload_for_an_interrupted_change() {
    let world = World::new();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut config = scripted("config", "{}", &[]);
    config.flags.send_event = true;
    let reload = format!("sh -c 'echo reloaded >> {}'", log.display());
    let run = world::command(&reload, r#"{"reload_only":true}"#, &[&config]);
    let resources = [config, run];
    let reloads = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    world.deploy(&resources);
    assert_eq!(reloads(), 0);
    world.interrupt(&resources[0]);
    assert_eq!(world.status("config"), Status::Deploying);
    world.deploy(&resources);
    assert_eq!(reloads(), 1);
    // The log has an entry, beside the run that followed.
    assert!(world.actions("config").iter().any(|action| action.outcome.is_none()));
    world.deploy(&resources);
    assert_eq!((reloads(), world.status("config")), (1, Status::Deployed));
}

/// Finds nothing to change, except in one run with a lost part.
struct RepeatedRun(AtomicBool);

impl Handler for RepeatedRun {
    fn run(&self, _: &Attributes, context: &mut Context<'_>) -> Outcome {
        context.announce_change().unwrap();
        if self.0.swap(false, Ordering::Relaxed) {
            context.mark_repeated();
        }
        context.finish(OutcomeStatus::Deployed, Change::default())
    }

    fn facts(&self, _: &Attributes, _: &mut Context<'_>) -> Result<Vec<Fact>, HandlerError> {
        Ok(Vec::new())
    }

    fn watched_path<'i>(&self, _: &'i ResourceId) -> Option<&'i str> {
        None
    }
}

#[test]
fn dependents_reload_for_a_partly_lost_run() {
    let mut world = World::new();
    let handler = Arc::new(RepeatedRun(AtomicBool::new(false)));
    world.registry.register_hosted("test::Repeated".to_owned(), Arc::clone(&handler) as _);
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut config = world::resource("test::Repeated", "config", "{}", &[]);
    config.flags.send_event = true;
    let reload = format!("sh -c 'echo reloaded >> {}'", log.display());
    let run = world::command(&reload, r#"{"reload_only":true}"#, &[&config]);
    let resources = [config, run];
    let reloads = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    world.deploy(&resources);
    world.deploy(&resources);
    assert_eq!(reloads(), 0);
    handler.0.store(true, Ordering::Relaxed);
    world.deploy(&resources);
    assert_eq!(reloads(), 1);
    world.deploy(&resources);
    assert_eq!(reloads(), 1);
}

#[test]
fn a_change_that_triggers_reloads_is_recorded_before_it_is_made() {
    let world = World::new();
    let directory = tempfile::tempdir().unwrap();
    let flag = directory.path().join("flag");
    let text = format!("sh -c 'rm {}; sleep 0.5'", flag.display());
    let condition = format!(r#"{{"onlyif":"test -e {}"}}"#, flag.display());
    let mut change = world::command(&text, &condition, &[]);
    change.flags.send_event = true;
    let resources = [change.clone(), world::command("true", r#"{"reload_only":true}"#, &[&change])];
    world.deploy(&resources);
    let found = || world.store.resources().find(world.environment, change.id.as_str());
    std::fs::write(&flag, "").unwrap();
    let mut noted = false;
    world.deploy_until(&resources, |_, progress| {
        if progress.running > 0 && !flag.exists() {
            noted |= found().unwrap().unwrap().status == Status::Deploying;
        }
    });
    assert!(noted);
    assert_eq!(found().unwrap().unwrap().status, Status::Deployed);
}

#[test]
fn only_event_receivers_reload() {
    let world = World::new();
    let mut changes = scripted("a", r#"{"outcome":"changed"}"#, &[]);
    changes.flags.send_event = true;
    let mut run = world::command("false", r#"{"reload_only":true}"#, &[&changes]);
    run.flags.receive_events = false;
    let mut resources = [changes, run];
    world.deploy(&resources);
    assert_eq!(world.deploy(&resources).tally.failed, 0);
    resources[1].flags.receive_events = true;
    assert_eq!(world.deploy(&resources).tally.failed, 1);
}

#[test]
fn a_plan_predicts_a_deploy_and_changes_nothing() {
    let world = World::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("motd").display().to_string();
    let resources = vec![file(&path, "hello\n"), scripted("a", "{}", &[])];
    let plan = world.plan(&resources);
    assert_eq!(plan, [("created".to_owned(), 0), ("nochange".to_owned(), 0)]);
    assert!(!std::path::Path::new(&path).exists());
    world.deploy(&resources);
    assert_eq!(world.plan(&resources)[0].0, "nochange");
    std::fs::write(&path, "changed\n").unwrap();
    assert_eq!(world.plan(&resources)[0], ("updated".to_owned(), 1));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "changed\n");
}

#[test]
fn facts_are_stored() {
    let world = World::new();
    world.deploy(&[scripted("a", r#"{"facts":{"address":"10.0.0.1"}}"#, &[])]);
    let id = world::id("a");
    let facts = world.store.parameters().facts(world.environment, id.as_str()).unwrap();
    assert_eq!((&*facts[0].name, &*facts[0].value), ("address", "10.0.0.1"));
}

#[test]
fn thousands_of_resources_with_requirements_are_deployed() {
    let world = World::new();
    let resources: Vec<_> = (0..3000)
        .map(|at| {
            let requires =
                if at % 10 == 0 || at < 10 { vec![] } else { vec![format!("r{:05}", at - 7)] };
            let requires: Vec<&str> = requires.iter().map(String::as_str).collect();
            scripted(&format!("r{at:05}"), r#"{"outcome":"changed"}"#, &requires)
        })
        .collect();
    let ran = world.deploy(&resources);
    assert_eq!((ran.tally.deployed, ran.tally.updated), (3000, 3000));
    assert_eq!(
        world.store.resources().count_statuses(world.environment).unwrap()[&Status::Deployed],
        3000
    );
}
