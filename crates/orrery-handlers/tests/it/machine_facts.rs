//! `std::MachineFacts`: facts of a machine in memory, and of this one.

use orrery_handlers::target::Output;
use orrery_handlers::{MemoryTarget, Mode, Target};
use orrery_model::{ChangeKind, Outcome, OutcomeStatus};

use crate::harness::{reason, run};

crate::on_every_machine!(this_machine_reports_its_facts);

const ID: &str = "std::MachineFacts[web1,name=web1]";

fn fact<'o>(outcome: &'o Outcome, name: &str) -> &'o str {
    let found = outcome.facts.iter().find(|fact| fact.name == name);
    &found.unwrap_or_else(|| panic!("no fact {name}: {}", reason(outcome))).value
}

fn this_machine_reports_its_facts(target: &dyn Target) {
    let outcome = run(target, ID, "{}", Mode::Deploy);
    assert_eq!(outcome.status, OutcomeStatus::Deployed, "{}", reason(&outcome));
    assert_eq!(outcome.change.kind, ChangeKind::NoChange);
    assert_eq!(fact(&outcome, "kernel"), "Linux");
    let arch = std::process::Command::new("uname").arg("-m").output().unwrap().stdout;
    assert_eq!(fact(&outcome, "arch"), String::from_utf8(arch).unwrap().trim());
    assert!(fact(&outcome, "memory_bytes").parse::<u64>().unwrap() > 1 << 20);
    assert!(outcome.facts.iter().all(|fact| fact.expires));
    assert!(!outcome.facts.iter().any(|fact| fact.name == "user"));
}

#[test]
fn a_machine_that_reports_nothing_usable_fails() {
    let target = MemoryTarget::new();
    target.on("/bin/sh", |_| Output::new(0, "kernel \u{1b}[31m\nnoise\n", ""));
    let outcome = run(&target, ID, "{}", Mode::Deploy);
    assert_eq!(outcome.status, OutcomeStatus::Failed);
    assert!(reason(&outcome).contains("does not report its facts"), "{}", reason(&outcome));
}

/// A plan runs nothing on the machine.
#[test]
fn a_dry_run_collects_nothing() {
    let target = MemoryTarget::new();
    let outcome = run(&target, ID, "{}", Mode::DryRun);
    assert_eq!((outcome.status, outcome.facts.len()), (OutcomeStatus::Deployed, 0));
}
