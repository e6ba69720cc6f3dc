//! Thousands of targets that never answer, beside one that does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orrery_agent::protocol::{FromAgent, ToAgent};
use orrery_model::OutcomeStatus;
use serde_json::{Value, json};

use super::commands::{EngineWorld, answer};

const SLOW_TARGETS: usize = 2_000;
/// Names of one remote agent.
const NAMES: usize = 50;
/// Memory of one waiting run, with the buffers of its command.
const MEMORY_MAX_KIB: usize = 256;

/// A field of the status of this process.
fn process_status(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn null_resource(agent: &str, value: &str) -> Value {
    json!({
        "id": format!("std::testing::NullResource[{agent},name=a]"),
        "attributes": {"name": "a", "value": value, "agentname": agent},
        "requires": [],
    })
}

/// Accepts all commands and answers none.
fn hang(working: &EngineWorld, names: &[String], received: &Arc<AtomicUsize>) {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let machine = working.world.enrolled(&names);
    let (mut session, _) = machine.open(&working.world.address);
    let received = Arc::clone(received);
    std::thread::spawn(move || {
        while let Some(message) = session.receive_patiently() {
            let ToAgent::Command(command) = message else { continue };
            if command.resource.id.value() == "epoch" {
                session.send(&answer(&command, OutcomeStatus::Deployed));
            } else {
                session.send(&FromAgent::Accepted { id: command.id });
                received.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
}

#[test]
fn two_thousand_targets_that_hang_delay_no_other() {
    let working = EngineWorld::new();
    let received = Arc::new(AtomicUsize::new(0));
    let names: Vec<String> = (0..SLOW_TARGETS).map(|number| format!("slow{number}")).collect();
    names.chunks(NAMES).for_each(|names| hang(&working, names, &received));
    let machine = working.world.enrolled(&["web1"]);
    let (mut quick, _) = machine.open(&working.world.address);
    let post = |resources: Vec<Value>| {
        let body = json!({"resources": resources});
        working.world.served.admin.post(&working.world.path("/versions"), &body).good();
    };
    let slow = || names.iter().map(|name| null_resource(name, "1")).collect::<Vec<_>>();
    let before = (process_status("VmRSS"), process_status("Threads"));
    let began = Instant::now();
    post(slow());
    working.world.until("all targets hang", |_| received.load(Ordering::Relaxed) >= SLOW_TARGETS);
    let filled = began.elapsed();
    let after = (process_status("VmRSS"), process_status("Threads"));
    let memory_kib = after.0.saturating_sub(before.0) / SLOW_TARGETS;
    let began = Instant::now();
    let mut all = slow();
    all.push(null_resource("web1", "1"));
    post(all);
    let command = quick.command();
    let delay = began.elapsed();
    quick.send(&answer(&command, OutcomeStatus::Deployed));
    assert_eq!(command.resource.id.agent(), "web1");
    eprintln!(
        "filled in {filled:?}, {memory_kib} KiB per run, {} threads, unrelated after {delay:?}",
        after.1.saturating_sub(before.1)
    );
    assert!(delay < Duration::from_secs(20), "the unrelated target waited for {delay:?}");
    assert!(memory_kib < MEMORY_MAX_KIB, "{memory_kib} KiB for each waiting run");
}
