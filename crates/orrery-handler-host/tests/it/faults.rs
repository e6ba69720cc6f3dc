//! Handlers that break their process: each fails on its own resource alone, and the rest continues.

use std::time::{Duration, Instant};

use orrery_handlers::{CancelToken, Mode};
use orrery_model::{Outcome, OutcomeStatus};
use serde_json::json;

use crate::world::{HostLimits, World, limits, messages, pid_of, script};

/// Asserts the failure with this reason, and that the agent continues in another process.
fn assert_failed(world: &World, outcome: &Outcome, reason: &str) {
    let said = messages(outcome);
    assert_eq!(outcome.status, OutcomeStatus::Failed, "{said}");
    assert!(said.contains(reason), "{said}");
    assert!(said.contains("begins"), "what it said before is lost: {said}");
    assert_eq!(world.deploy("a", "ok").status, OutcomeStatus::Deployed);
}

#[test]
fn a_handler_that_exits_fails_with_the_status_and_the_last_output() {
    let world = World::new(limits());
    let before = pid_of(&world.deploy("a", "ok"));
    let outcome = world.deploy("a", "exit");
    assert_failed(&world, &outcome, "it ended with the exit status 3");
    let output = outcome.log.iter().find_map(|line| line.values.get("output")).unwrap();
    assert_eq!(output, &json!(["about to exit"]));
    let outcome = world.deploy("a", "kill");
    assert_failed(&world, &outcome, "ended by the signal 9");
    assert_ne!(pid_of(&world.deploy("a", "ok")), before);
}

#[test]
fn a_process_killed_from_outside_fails_its_only_operation() {
    let world = World::new(limits());
    let pid = pid_of(&world.deploy("a", "ok"));
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| world.deploy("a", "never"));
        std::thread::sleep(Duration::from_millis(300));
        let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
        assert!(killed.unwrap().success());
        thread.join().unwrap()
    });
    assert_failed(&world, &outcome, "ended by the signal 9");
}

#[test]
fn other_operations_of_a_lost_process_are_restarted_in_isolation() {
    let world = World::new(limits());
    let outcomes = world.deploy_together(&["ok", "exit", "ok", "exit", "ok"]);
    let statuses: Vec<OutcomeStatus> = outcomes.iter().map(|outcome| outcome.status).collect();
    use OutcomeStatus::{Deployed, Failed};
    assert_eq!(statuses, [Deployed, Failed, Deployed, Failed, Deployed]);
    assert!(messages(&outcomes[1]).contains("exit status 3"));
}

#[test]
fn several_operations_in_flight_succeed_if_none_is_to_blame() {
    let world = World::new(limits());
    let outcomes = world.deploy_together(&["exit-once", "ok", "ok"]);
    for outcome in &outcomes {
        assert_eq!(outcome.status, OutcomeStatus::Deployed, "{}", messages(outcome));
    }
    let anew =
        outcomes.iter().filter(|one| messages(one).contains("restarted in a process of its own"));
    assert!(anew.count() >= 1);
}

#[test]
fn a_handler_that_never_returns_is_ended_and_others_continue() {
    let world = World::new(limits());
    // The process is started before the deadline is set: a busy machine takes seconds for that.
    assert_eq!(world.deploy("a", "ok").status, OutcomeStatus::Deployed);
    let deadline = CancelToken::at(Instant::now() + Duration::from_secs(3));
    let (never, slow) = std::thread::scope(|scope| {
        let attributes = json!({ "mode": "never" });
        let never =
            scope.spawn(|| world.run("m::R[a,name=x]", attributes, Mode::Deploy, &deadline));
        let slow = scope.spawn(|| world.deploy_with("b", json!({ "mode": "slow", "seconds": 1 })));
        (never.join().unwrap(), slow.join().unwrap())
    });
    assert_eq!(never.status, OutcomeStatus::Failed);
    let said = messages(&never);
    assert!(said.contains("did not end when it was cancelled: its process was ended"), "{said}");
    assert_eq!(slow.status, OutcomeStatus::Deployed, "{}", messages(&slow));
    assert_eq!(world.deploy("a", "ok").status, OutcomeStatus::Deployed);
}

#[test]
fn other_operations_past_the_drain_time_are_restarted() {
    let world = World::new(limits());
    assert_eq!(world.deploy("a", "ok").status, OutcomeStatus::Deployed);
    let deadline = CancelToken::at(Instant::now() + Duration::from_secs(2));
    let (never, slow) = std::thread::scope(|scope| {
        let attributes = json!({ "mode": "never" });
        let never =
            scope.spawn(|| world.run("m::R[a,name=x]", attributes, Mode::Deploy, &deadline));
        let slow = scope.spawn(|| world.deploy_with("b", json!({ "mode": "slow", "seconds": 8 })));
        (never.join().unwrap(), slow.join().unwrap())
    });
    assert_eq!(never.status, OutcomeStatus::Failed);
    assert_eq!(slow.status, OutcomeStatus::Deployed);
    assert!(messages(&slow).contains("another operation broke it"), "{}", messages(&slow));
}

#[test]
fn a_cancelled_handler_that_does_not_end_is_ended_without_a_verdict() {
    let world = World::new(limits());
    let stop = CancelToken::never();
    stop.cancel();
    let run = |stop: &CancelToken| {
        world.run("m::R[a,name=x]", json!({ "mode": "never" }), Mode::Deploy, stop)
    };
    assert_eq!(run(&stop).status, OutcomeStatus::Skipped);
    assert_eq!(world.hosts.process_ids(), Vec::<u32>::new(), "nothing was started for it");
    let stop = CancelToken::never();
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| run(&stop));
        // A busy machine needs time to start a process.
        while world.hosts.process_ids().is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_secs(2));
        stop.cancel();
        thread.join().unwrap()
    });
    assert_eq!(outcome.status, OutcomeStatus::Skipped);
    assert!(messages(&outcome).contains("its process was ended"), "{}", messages(&outcome));
}

#[test]
fn a_handler_that_exhausts_memory_fails_alone() {
    let world = World::new(limits());
    let outcome = world.deploy("a", "memory");
    assert_failed(&world, &outcome, "MemoryError");
}

#[test]
fn a_handler_that_prints_megabytes_succeeds() {
    let world = World::new(limits());
    let outcome = world.deploy_with("a", json!({ "mode": "print", "megabytes": 20 }));
    assert_eq!(outcome.status, OutcomeStatus::Deployed);
}

#[test]
fn an_endless_log_is_truncated_but_keeps_warnings() {
    let world = World::new(limits());
    let outcome = world.deploy("a", "log");
    assert_eq!(outcome.status, OutcomeStatus::Deployed);
    assert!(outcome.log.len() <= 10_010, "{} lines are kept", outcome.log.len());
    let last: Vec<&str> =
        outcome.log.iter().rev().take(2).map(|line| line.message.as_str()).collect();
    assert_eq!(last[1], "still heard");
    assert!(last[0].ends_with("further log lines were dropped: the limit is reached"));
}

#[test]
fn a_handler_that_closes_its_descriptors_fails_alone() {
    let world = World::new(limits());
    let outcome = world.deploy("a", "close");
    assert_failed(&world, &outcome, "it closed its connection and kept running; it was ended");
}

#[test]
fn a_host_that_sends_invalid_messages_is_killed() {
    let world = World::new(limits());
    for (mode, reason) in [
        ("garbage", "a message is not valid UTF-8; it was killed"),
        ("deep", "nested more than 256 deep"),
        ("endless", "longer than 16777216 bytes"),
        ("unknown", "unexpected kind: \"surprise\""),
    ] {
        let outcome = world.deploy("a", mode);
        assert_failed(&world, &outcome, reason);
    }
}

#[test]
fn a_hung_process_is_detected() {
    let world = World::new(HostLimits { silence_max: Duration::from_millis(1500), ..limits() });
    let outcome = world.deploy("a", "stopped");
    assert_failed(&world, &outcome, "no message and no processor use for 1.5 seconds");
    // A sleeping handler still answers pings.
    let outcome = world.deploy_with("a", json!({ "mode": "slow", "seconds": 3 }));
    assert_eq!(outcome.status, OutcomeStatus::Deployed);
}

#[test]
fn a_host_that_cannot_be_started_is_not_started_for_each_resource() {
    let dir = tempfile::tempdir().unwrap();
    let count = dir.path().join("count");
    let file = dir.path().join("host");
    std::fs::write(&file, format!("echo x >> {}; echo broken >&2; exit 9", count.display()))
        .unwrap();
    let world = World::with(script("sh", file), limits(), |_| {});
    for _ in 0..20 {
        let outcome = world.deploy("a", "ok");
        assert_eq!(outcome.status, OutcomeStatus::Unavailable);
        let said = messages(&outcome);
        assert!(said.contains("exit status 9") && said.contains("broken"), "{said}");
    }
    let starts = std::fs::read_to_string(&count).unwrap().lines().count();
    assert!(starts < 5, "it was started {starts} times");
}

#[test]
fn a_resource_that_does_not_fit_into_a_line_fails_alone() {
    let world = World::new(limits());
    let outcome = world.deploy_with("a", json!({ "mode": "ok", "text": "x".repeat(17 << 20) }));
    assert_eq!(outcome.status, OutcomeStatus::Failed);
    assert!(messages(&outcome).contains("too large to be sent"), "{}", messages(&outcome));
    assert_eq!(world.deploy("a", "ok").status, OutcomeStatus::Deployed);
}
