//! Drift: files are watched after successful commands, and changes are reported to servers that
//! want to know of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use orrery_agent::protocol::{Drift, FromAgent};
use orrery_model::OutcomeStatus;
use serde_json::json;

use crate::commands::{Harness, file};
use crate::protocol_page;

fn receive_drift(harness: &mut Harness) -> Drift {
    let message = harness.receive();
    protocol_page::check_from_agent(&serde_json::to_value(&message).unwrap());
    match message {
        FromAgent::Drift(drift) => drift,
        other => panic!("{other:?}"),
    }
}

fn deploy(harness: &mut Harness, path: &Path) -> String {
    let command = file(path, &json!({"path": path, "content": "desired", "purged": false}));
    let outcome = harness.run(&command).outcome;
    assert_eq!(outcome.status, OutcomeStatus::Deployed, "{:?}", outcome.log);
    command.resource.id.to_string()
}

#[test]
fn a_changed_file_is_reported_and_a_command_is_not_drift() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let mut harness = Harness::new(&directory.path().join("journal"));
    harness.runner.report_drift();
    assert_eq!(receive_drift(&mut harness), Drift { unwatched: true, ..Drift::default() });
    let id = deploy(&mut harness, &path);
    fs::write(&path, "by hand").unwrap();
    let drift = receive_drift(&mut harness);
    assert_eq!((drift.resources.len(), drift.unwatched), (1, false));
    assert_eq!(drift.resources[0].to_string(), id);
    deploy(&mut harness, &path);
    assert_eq!(fs::read_to_string(&path).unwrap(), "desired");
    // The next report is about the next change: that of the command is none.
    fs::remove_file(&path).unwrap();
    assert_eq!(receive_drift(&mut harness).resources[0].to_string(), id);
}

#[test]
fn a_server_that_does_not_ask_gets_no_drift() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("file"), directory.path().join("other"));
    let mut harness = Harness::new(&directory.path().join("journal"));
    deploy(&mut harness, &path);
    fs::write(&path, "by hand").unwrap();
    // Another command, and nothing but its messages.
    deploy(&mut harness, &other);
    assert!(harness.is_silent());
}

#[test]
fn a_new_session_gets_the_drift_of_the_time_without_one() {
    let directory = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..3).map(|number| directory.path().join(format!("f{number}"))).collect();
    let mut harness = Harness::new(&directory.path().join("journal"));
    harness.runner.report_drift();
    receive_drift(&mut harness);
    let ids: BTreeSet<String> = paths.iter().map(|path| deploy(&mut harness, path)).collect();
    harness.runner.detach();
    paths.iter().for_each(|path| fs::write(path, "by hand").unwrap());
    harness.reconnect();
    // Watched files are there, so nothing else must be verified.
    harness.runner.report_drift();
    let mut reported = BTreeSet::new();
    while reported.len() < ids.len() {
        let drift = receive_drift(&mut harness);
        assert!(!drift.unwatched);
        reported.extend(drift.resources.iter().map(ToString::to_string));
    }
    assert_eq!(reported, ids);
}

#[test]
fn a_failed_command_is_not_watched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing/file");
    let mut harness = Harness::new(&directory.path().join("journal"));
    harness.runner.report_drift();
    receive_drift(&mut harness);
    let command = file(&path, &json!({"path": path, "content": "x", "purged": false}));
    assert_eq!(harness.run(&command).outcome.status, OutcomeStatus::Failed);
    harness.reconnect();
    harness.runner.report_drift();
    assert!(receive_drift(&mut harness).unwatched, "nothing is watched");
}
