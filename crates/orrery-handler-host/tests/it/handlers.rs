//! Handlers in well-behaved hosts.

use std::time::{Duration, Instant};

use orrery_handlers::{CancelToken, Mode};
use orrery_model::{ChangeKind, LogLevel, OutcomeStatus};
use serde_json::json;

use crate::world::{World, limits, messages, pid_of};

#[test]
fn an_operation_receives_its_inputs_and_its_report_is_the_outcome() {
    let world = World::new(limits());
    let outcome = world.deploy_with("web1", json!({ "mode": "echo", "text": "a\n\"b\" ü" }));
    assert_eq!(outcome.status, OutcomeStatus::Deployed);
    assert_eq!(outcome.change.kind, ChangeKind::Updated);
    let sent = &outcome.change.attributes[0].desired;
    assert_eq!(sent["op"], "deploy");
    assert_eq!(sent["agent"], "web1");
    assert_eq!(sent["uri"], "local:");
    let resource = json!({
        "id": "m::R[web1,name=x],v=3", "requires": ["m::R[other,name=before]"],
        "mode": "echo", "text": "a\n\"b\" ü",
    });
    assert_eq!(sent["resource"], resource);
    assert_eq!(sent["requires"], json!({ "m::R[other,name=before]": "deployed" }));
    assert_eq!(sent["changed"], json!(["m::R[other,name=before]"]));
    assert_eq!(sent["deadline"], json!(null));
    assert_eq!(sent["level"], "debug");
    assert_eq!(sent["reason"], "a test wants it");
    assert_eq!(outcome.log[0].values["operation"], "deploy");
    assert_eq!(outcome.facts.len(), 1);
}

#[test]
fn one_process_serves_an_agent_until_it_is_closed() {
    let world = World::new(limits());
    let first = pid_of(&world.deploy("a", "ok"));
    assert_eq!(pid_of(&world.deploy("b", "ok")), first);
    assert_eq!(world.hosts.process_ids(), [first]);
    world.hosts.close();
    assert_eq!(world.hosts.process_ids(), Vec::<u32>::new());
    assert!(!std::path::Path::new(&format!("/proc/{first}")).exists());
}

#[test]
fn agents_are_shared_between_processes_and_keep_theirs() {
    let world = World::new(crate::world::HostLimits { processes_max: 2, ..limits() });
    let pids = ["a", "b", "c", "a"].map(|agent| pid_of(&world.deploy(agent, "ok")));
    assert_eq!((pids[0], pids[0]), (pids[2], pids[3]));
    assert_ne!(pids[0], pids[1]);
}

#[test]
fn states_are_those_of_the_report() {
    let world = World::new(limits());
    let state = |name: &str, mode| {
        let attributes =
            json!({ "mode": "state", "report": { "state": name, "change": "nochange" } });
        world.run("m::R[a,name=x]", attributes, mode, &CancelToken::never()).status
    };
    for (name, status) in [
        ("deployed", OutcomeStatus::Deployed),
        ("failed", OutcomeStatus::Failed),
        ("skipped", OutcomeStatus::Skipped),
        ("skipped_for_dependency", OutcomeStatus::SkippedForDependency),
        ("unavailable", OutcomeStatus::Unavailable),
        ("non_compliant", OutcomeStatus::NonCompliant),
    ] {
        assert_eq!(state(name, Mode::Deploy), status, "{name}");
    }
    assert_eq!(state("dry", Mode::DryRun), OutcomeStatus::Deployed);
}

#[test]
fn a_dry_run_and_facts_are_asked_for_by_name() {
    let world = World::new(limits());
    let attributes = json!({ "mode": "ok" });
    let dry = world.run("m::R[a,name=x]", attributes, Mode::DryRun, &CancelToken::never());
    assert_eq!(dry.log[0].values["operation"], "dryrun");
    let facts = crate::world::with_context(
        "m::R[a,name=x]",
        Mode::Deploy,
        &CancelToken::never(),
        |context| {
            let attributes = orrery_model::Attributes::parse(r#"{"mode":"ok"}"#).unwrap();
            orrery_handlers::Handler::facts(&world.handler, &attributes, context)
        },
    );
    assert_eq!(facts.unwrap()[0].name, "pid");
}

#[test]
fn an_entity_without_a_handler_is_unavailable_with_a_reason() {
    let world = World::new(limits());
    let run = |id| world.run(id, json!({ "mode": "ok" }), Mode::Deploy, &CancelToken::never());
    let outcome = run("m::Other[a,name=x]");
    assert_eq!(outcome.status, OutcomeStatus::Unavailable);
    assert!(messages(&outcome).contains("the module m has no handler for m::Other"));
    let outcome = run("bad::R[a,name=x]");
    assert_eq!(outcome.status, OutcomeStatus::Unavailable);
    assert!(messages(&outcome).contains("could not be loaded: no such name"));
}

#[test]
fn a_handler_that_honours_cancellation_keeps_its_process() {
    let world = World::new(limits());
    let before = pid_of(&world.deploy("a", "ok"));
    let stop = CancelToken::never();
    let outcome = std::thread::scope(|scope| {
        let run =
            || world.run("m::R[a,name=x]", json!({ "mode": "obedient" }), Mode::Deploy, &stop);
        let thread = scope.spawn(run);
        std::thread::sleep(Duration::from_millis(200));
        stop.cancel();
        thread.join().unwrap()
    });
    assert_eq!(outcome.status, OutcomeStatus::Skipped);
    let deadline = CancelToken::at(Instant::now() + Duration::from_millis(200));
    let outcome =
        world.run("m::R[a,name=x]", json!({ "mode": "obedient" }), Mode::Deploy, &deadline);
    assert_eq!(outcome.status, OutcomeStatus::Failed);
    assert!(messages(&outcome).contains("the deadline has passed"));
    assert_eq!(pid_of(&world.deploy("a", "ok")), before);
}

#[test]
fn handlers_may_use_the_offered_callbacks() {
    let world = World::new(limits());
    let reply = |method: &str, arguments| {
        let attributes = json!({ "mode": "server", "call": [method, arguments] });
        let outcome = world.deploy_with("a", attributes);
        outcome.change.attributes[0].desired.clone()
    };
    assert_eq!(reply("upload_file", json!({ "id": "ab", "content": "aGk=" }))["code"], 200);
    assert_eq!(std::fs::read(world.dir.path().join("files/ab")).unwrap(), b"hi");
    assert_eq!(reply("get_file", json!({ "id": "ab" }))["result"]["content"], "aGk=");
    let changed = reply("resource_did_dependency_change", json!({}));
    assert_eq!(changed["result"]["data"], true);
    assert_eq!(reply("create_token", json!({}))["code"], 501);
}

#[test]
fn idle_processes_are_retired() {
    let world = World::new(crate::world::HostLimits {
        idle_time_max: Duration::from_millis(200),
        ..limits()
    });
    let first = pid_of(&world.deploy("a", "ok"));
    let path = format!("/proc/{first}");
    let until = Instant::now() + Duration::from_secs(10);
    while std::path::Path::new(&path).exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!std::path::Path::new(&path).exists(), "the idle process stays");
    assert_ne!(pid_of(&world.deploy("a", "ok")), first);
}

/// Neither during a call nor soon after.
#[test]
fn busy_processes_are_not_retired() {
    let idle_time_max = Duration::from_millis(500);
    let world = World::new(crate::world::HostLimits { idle_time_max, ..limits() });
    let first = pid_of(&world.deploy("a", "ok"));
    let slow = world.deploy_with("a", json!({ "mode": "slow", "seconds": 2 }));
    assert_eq!(slow.status, OutcomeStatus::Deployed, "{:?}", messages(&slow));
    assert_eq!((pid_of(&slow), pid_of(&world.deploy("a", "ok"))), (first, first));
}

#[test]
fn many_agents_are_served_at_once() {
    let world = World::new(limits());
    let outcomes = world.deploy_together(&["ok"; 40]);
    assert!(outcomes.iter().all(|outcome| outcome.status == OutcomeStatus::Deployed));
    assert_eq!(outcomes.iter().filter(|one| one.log[0].level == LogLevel::Debug).count(), 40);
}

/// Waiting operations do not block each other; a process runs as many threads as its memory allows.
#[test]
fn operations_run_concurrently_up_to_the_limit_of_a_process() {
    let took = |operations_max: usize, count: usize| {
        let limits = crate::world::HostLimits { operations_max, memory_max: None, ..limits() };
        let world = World::new(limits);
        world.deploy("first", "ok");
        let began = std::time::Instant::now();
        std::thread::scope(|scope| {
            let start = |at: usize| {
                let world = &world;
                let attributes = json!({ "mode": "slow", "seconds": 1 });
                scope.spawn(move || world.deploy_with(&format!("agent{at}"), attributes).status)
            };
            let threads: Vec<_> = (0..count).map(start).collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), OutcomeStatus::Deployed);
            }
        });
        began.elapsed()
    };
    let at_once = took(256, 200);
    assert!(at_once < Duration::from_secs(15), "200 took {at_once:?}");
    let in_turn = took(4, 12);
    assert!(in_turn >= Duration::from_secs(3), "three rounds took {in_turn:?}");
}
