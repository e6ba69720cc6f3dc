//! Test of the example host in JavaScript.

use std::path::Path;

use orrery_handlers::{CancelToken, Handler, Mode};
use orrery_model::{Attributes, ChangeKind, Outcome, OutcomeStatus};
use serde_json::{Value, json};

use crate::world::{World, limits, messages, script, with_context};

fn world() -> World {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut limits = limits();
    // Node.js reserves more memory than it uses.
    limits.memory_max = None;
    World::with(
        script("node", root.join("../../examples/hosts/javascript/host.mjs")),
        limits,
        |_| {},
    )
}

#[test]
fn the_host_in_javascript_keeps_notes() {
    let world = world();
    let path = world.dir.path().join("note");
    let run = |text: &str, purged: bool, mode| -> Outcome {
        let attributes = json!({ "path": path, "text": text, "purged": purged });
        world.run("notes::Note[a,path=/note]", attributes, mode, &CancelToken::never())
    };
    let change = |outcome: &Outcome| {
        assert_eq!(outcome.status, OutcomeStatus::Deployed, "{}", messages(outcome));
        outcome.change.kind
    };
    assert_eq!(change(&run("one", false, Mode::DryRun)), ChangeKind::Created);
    assert!(!path.exists());
    assert_eq!(change(&run("one", false, Mode::Deploy)), ChangeKind::Created);
    assert_eq!(change(&run("one", false, Mode::Deploy)), ChangeKind::NoChange);
    let dry = run("two", false, Mode::DryRun);
    assert_eq!(change(&dry), ChangeKind::Updated);
    assert_eq!(dry.change.attributes[0].current, Value::from("one"));
    let updated = run("two ü", false, Mode::Deploy);
    assert_eq!(change(&updated), ChangeKind::Updated);
    assert_eq!(messages(&updated), "debug Calling update\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "two ü");
    assert_eq!(change(&run("", true, Mode::Deploy)), ChangeKind::Purged);
    assert!(!path.exists());
    assert_eq!(change(&run("", true, Mode::Deploy)), ChangeKind::NoChange);
}

#[test]
fn the_host_in_javascript_reports_errors_and_facts() {
    let world = world();
    let attributes = json!({ "path": "/nowhere/note", "text": "x" });
    let outcome =
        world.run("notes::Note[a,path=/note]", attributes, Mode::Deploy, &CancelToken::never());
    assert_eq!(outcome.status, OutcomeStatus::Failed);
    assert!(messages(&outcome).contains("error Error: ENOENT"), "{}", messages(&outcome));
    let facts =
        with_context("notes::Note[a,path=/n]", Mode::Deploy, &CancelToken::never(), |context| {
            let attributes = Attributes::parse(r#"{"path":"/n","text":"four"}"#).unwrap();
            world.handler.facts(&attributes, context)
        });
    assert_eq!(facts.unwrap()[0].value, "4");
}
