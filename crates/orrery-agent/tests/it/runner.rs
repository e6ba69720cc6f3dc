//! Execution of commands: once, serially per resource, within limits, for the newest epoch only.

use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use orrery_agent::journal::{Journal, JournalLimits};
use orrery_agent::protocol::{CommandKind, FromAgent, RejectionCode, WireContent, WireSecret};
use orrery_agent::runner::Limits;
use orrery_model::{ChangeKind, OutcomeStatus, SecretText};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde_json::json;
use uuid::Uuid;

use crate::commands::{Gate, Harness, command, file, pause, shell};

struct TestDirectory {
    directory: tempfile::TempDir,
}

impl TestDirectory {
    fn new() -> Self {
        TestDirectory { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn journal(&self) -> PathBuf {
        self.path("journal")
    }

    fn harness(&self) -> Harness {
        Harness::new(&self.journal())
    }

    fn gate(&self) -> Gate {
        Gate::new(self.path("gate"))
    }

    fn lines(&self, name: &str) -> usize {
        std::fs::read_to_string(self.path(name)).map_or(0, |text| text.lines().count())
    }
}

fn rejected(message: FromAgent) -> (Uuid, RejectionCode, String) {
    match message {
        FromAgent::Rejected { id, code, reason } => (id, code, reason),
        other => panic!("{other:?}"),
    }
}

fn appends(path: &Path) -> orrery_agent::protocol::Command {
    shell(&format!("echo once >> {}", path.display()))
}

#[test]
fn a_repeated_command_returns_the_stored_result() {
    let directory = TestDirectory::new();
    let mut harness = directory.harness();
    let command = appends(&directory.path("log"));
    let first = harness.run(&command);
    assert_eq!(first.outcome.status, OutcomeStatus::Deployed);
    assert_eq!(harness.run(&command), first);
    assert_eq!(directory.lines("log"), 1);
    // The same after a restart of the process.
    drop(harness);
    let mut harness = directory.harness();
    assert_eq!(harness.run(&command), first);
    assert_eq!(directory.lines("log"), 1);
    // Another command is another run.
    let another = appends(&directory.path("log"));
    harness.run(&another);
    assert_eq!(directory.lines("log"), 2);
}

#[test]
fn an_active_command_is_not_started_twice() {
    let directory = TestDirectory::new();
    let mut harness = directory.harness();
    let gate = directory.gate();
    let command = gate.command("a");
    harness.send(&command);
    harness.send(&command);
    let accepted = |message| matches!(message, FromAgent::Accepted { id } if id == command.id);
    assert!(accepted(harness.receive()) && accepted(harness.receive()));
    assert_eq!(harness.runner.active_commands(), [command.id]);
    gate.open();
    assert_eq!(harness.result().id, command.id);
    assert!(harness.runner.active_commands().is_empty());
    assert!(harness.is_silent());
    assert_eq!(gate.records(), ["a begins", "a ends"]);
}

#[test]
fn a_result_without_a_session_is_sent_on_repetition() {
    let directory = TestDirectory::new();
    let mut harness = directory.harness();
    let command = appends(&directory.path("log"));
    harness.runner.detach();
    harness.send(&command);
    assert!(harness.runner.wait(std::time::Duration::from_secs(20)));
    harness.reconnect();
    assert!(harness.is_silent());
    assert_eq!(harness.run(&command).outcome.status, OutcomeStatus::Deployed);
    assert_eq!(directory.lines("log"), 1);
}

#[test]
fn a_command_interrupted_by_a_restart_is_repeated_and_marked() {
    let directory = TestDirectory::new();
    let command = file(&directory.path("motd"), &json!({"content": "hello\n", "mode": 644}));
    Journal::open(&directory.journal(), JournalLimits::default())
        .unwrap()
        .record_started(command.id)
        .unwrap();
    let mut harness = directory.harness();
    let answer = harness.run(&command);
    assert!(answer.repeated);
    assert_eq!(answer.outcome.change.kind, ChangeKind::Created);
    // Its result is stored unchanged, and the next command is not a repetition.
    assert!(harness.run(&command).repeated);
    assert!(!harness.run(&pause("a", 0)).repeated);
}

#[test]
fn older_epochs_are_rejected_also_after_a_restart() {
    let directory = TestDirectory::new();
    let mut harness = directory.harness();
    let with_epoch = |epoch| {
        let mut command = appends(&directory.path("log"));
        command.epoch = epoch;
        command
    };
    harness.run(&with_epoch(Some(5)));
    let old = with_epoch(Some(4));
    for mut harness in [harness, directory.harness()] {
        harness.send(&old);
        let (id, code, reason) = rejected(harness.receive());
        assert_eq!((id, code), (old.id, RejectionCode::Fenced));
        assert!(reason.contains('5'), "{reason}");
    }
    let mut harness = directory.harness();
    harness.send(&with_epoch(None));
    assert_eq!(rejected(harness.receive()).1, RejectionCode::Unreadable);
    harness.run(&with_epoch(Some(5)));
    // A dry run needs no epoch.
    let mut dry = with_epoch(None);
    dry.what = CommandKind::DryRun;
    assert_eq!(harness.run(&dry).outcome.status, OutcomeStatus::Deployed);
    assert_eq!(directory.lines("log"), 2);
}

#[test]
fn a_newer_epoch_cancels_older_commands() {
    let directory = TestDirectory::new();
    let limits = Limits { running_max: 1, queued_max: 10 };
    let mut harness = Harness::with_limits(&directory.journal(), limits);
    let gate = directory.gate();
    let (running, waiting) = (gate.command("a"), pause("b", 0));
    harness.send(&running);
    gate.wait_for(1);
    harness.send(&waiting);
    let mut newer = pause("c", 0);
    newer.epoch = Some(2);
    harness.send(&newer);
    let mut said: Vec<FromAgent> = (0..6).map(|_| harness.receive()).collect();
    said.retain(|message| !matches!(message, FromAgent::Accepted { .. }));
    let [fenced, cancelled, done] = <[_; 3]>::try_from(said).unwrap();
    assert_eq!(rejected(fenced).0, waiting.id);
    let FromAgent::Result(cancelled) = cancelled else { panic!("{cancelled:?}") };
    assert_eq!((cancelled.id, cancelled.outcome.status), (running.id, OutcomeStatus::Skipped));
    let FromAgent::Result(done) = done else { panic!("{done:?}") };
    assert_eq!((done.id, done.outcome.status), (newer.id, OutcomeStatus::Deployed));
}

#[test]
fn a_full_queue_reports_busy() {
    let directory = TestDirectory::new();
    let mut harness =
        Harness::with_limits(&directory.journal(), Limits { running_max: 1, queued_max: 1 });
    let commands = [pause("a", 60_000), pause("b", 0), pause("c", 0)];
    commands.iter().for_each(|command| harness.send(command));
    assert!(matches!(harness.receive(), FromAgent::Accepted { .. }));
    assert!(matches!(harness.receive(), FromAgent::Accepted { .. }));
    assert!(matches!(harness.receive(), FromAgent::Busy { id } if id == commands[2].id));
    harness.runner.cancel(commands[0].id);
    assert_eq!(harness.result().outcome.status, OutcomeStatus::Skipped);
    assert_eq!(harness.result().id, commands[1].id);
    assert_eq!(harness.run(&commands[2]).outcome.status, OutcomeStatus::Deployed);
    harness.runner.close();
    harness.send(&pause("d", 0));
    assert!(matches!(harness.receive(), FromAgent::Busy { .. }));
}

#[test]
fn a_cancelled_queued_command_ends_at_once() {
    let directory = TestDirectory::new();
    let limits = Limits { running_max: 1, queued_max: 10 };
    let mut harness = Harness::with_limits(&directory.journal(), limits);
    let (running, waiting) = (pause("a", 60_000), appends(&directory.path("log")));
    harness.send(&running);
    harness.send(&waiting);
    harness.runner.cancel(waiting.id);
    let answer = harness.result();
    assert_eq!((answer.id, answer.outcome.status), (waiting.id, OutcomeStatus::Skipped));
    assert_eq!(harness.runner.active_commands(), [running.id]);
    harness.send(&pause("c", 0));
    harness.runner.cancel_all();
    let ended = [harness.result(), harness.result()];
    assert!(ended.iter().all(|answer| answer.outcome.status == OutcomeStatus::Skipped));
    assert_eq!(directory.lines("log"), 0);
}

#[test]
fn commands_for_one_resource_are_serialized() {
    let directory = TestDirectory::new();
    let mut harness = directory.harness();
    let gate = directory.gate();
    let names = ["a", "a", "a", "b", "c"];
    names.iter().for_each(|name| harness.send(&gate.command(name)));
    // One per resource: no command waits for another one.
    gate.wait_for(3);
    let mut begun = gate.records();
    begun.sort();
    assert_eq!(begun, ["a begins", "b begins", "c begins"]);
    gate.open();
    for _ in names {
        assert_eq!(harness.result().outcome.status, OutcomeStatus::Deployed);
    }
    let mut noted = gate.records();
    noted.retain(|line| line.starts_with('a'));
    assert_eq!(noted, ["a begins", "a ends"].repeat(3));
}

#[test]
fn concurrent_commands_get_their_own_workers() {
    // They mostly arrive before the worker is awake, by chance.
    for _ in 0..5 {
        let directory = TestDirectory::new();
        let mut harness = directory.harness();
        // From now on an idle worker exists.
        harness.run(&pause("first", 0));
        let gate = directory.gate();
        let count = Limits::default().running_max;
        (0..count).for_each(|at| harness.send(&gate.command(&format!("c{at}"))));
        gate.wait_for(count);
        gate.open();
        for _ in 0..count {
            assert_eq!(harness.result().outcome.status, OutcomeStatus::Deployed);
        }
    }
}

#[test]
fn unsupported_commands_are_rejected() {
    let directory = TestDirectory::new();
    let mut harness = directory.harness();
    let unknown = command("corp::Thing", "name", "x", &json!({}));
    let mut elsewhere = pause("a", 0);
    elsewhere.environment = Uuid::nil();
    let mut foreign = pause("a", 0);
    foreign.resource.id = "std::testing::ScriptedResource[db1,name=a]".parse().unwrap();
    let mut broken = pause("a", 0);
    broken.resource.attributes = "[]".to_owned();
    for (command, code) in [
        (unknown, RejectionCode::UnknownType),
        (elsewhere, RejectionCode::Unreadable),
        (foreign, RejectionCode::Unreadable),
        (broken, RejectionCode::Unreadable),
    ] {
        harness.send(&command);
        assert_eq!(rejected(harness.receive()).1, code, "{:?}", command.resource);
    }
}

#[test]
fn a_command_without_a_journal_record_is_rejected() {
    // A file in memory that becomes full.
    let file = memfd_create("journal", MemfdFlags::ALLOW_SEALING).unwrap();
    let directory = TestDirectory::new();
    symlink(format!("/proc/self/fd/{}", file.as_raw_fd()), directory.journal()).unwrap();
    let mut harness = directory.harness();
    harness.run(&pause("first", 0));
    fcntl_add_seals(&file, SealFlags::GROW).unwrap();
    for _ in 0..200 {
        let command = appends(&directory.path("log"));
        harness.send(&command);
        assert!(matches!(harness.receive(), FromAgent::Accepted { .. }));
        let (id, code, reason) = rejected(harness.receive());
        assert_eq!((id, code), (command.id, RejectionCode::Unable), "{reason}");
        // A repetition now must not be reported as active.
        assert!(harness.runner.active_commands().is_empty());
    }
    assert_eq!(directory.lines("log"), 0);
}

#[test]
fn nothing_changes_before_the_change_is_recorded() {
    let directory = TestDirectory::new();
    let mut harness = directory.harness();
    let path = directory.path("motd");
    let announcing = || {
        let mut command = file(&path, &json!({"content": "hello\n", "mode": 644}));
        command.wants_announcement = true;
        command
    };
    let asks = |message: FromAgent, id: Uuid| matches!(message, FromAgent::Announce { id: of } if of == id);
    let cancelled = announcing();
    harness.send(&cancelled);
    assert!(matches!(harness.receive(), FromAgent::Accepted { .. }));
    assert!(asks(harness.receive(), cancelled.id));
    harness.runner.cancel(cancelled.id);
    let answer = harness.result();
    assert_eq!((answer.outcome.status, answer.announced), (OutcomeStatus::Skipped, false));
    assert!(!path.exists());

    let command = announcing();
    harness.send(&command);
    assert!(matches!(harness.receive(), FromAgent::Accepted { .. }));
    assert!(asks(harness.receive(), command.id));
    // After a lost session, a repetition reports the pending announcement.
    harness.reconnect();
    harness.send(&command);
    assert!(matches!(harness.receive(), FromAgent::Accepted { .. }));
    assert!(asks(harness.receive(), command.id));
    assert!(!path.exists());
    harness.runner.announced(command.id);
    let answer = harness.result();
    assert_eq!((answer.outcome.status, answer.announced), (OutcomeStatus::Deployed, true));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "hello\n");
    // Without a change there is no announcement.
    let answer = harness.run(&announcing());
    assert_eq!((answer.outcome.change.kind, answer.announced), (ChangeKind::NoChange, false));
}

#[test]
fn a_command_past_its_deadline_is_cancelled() {
    let directory = TestDirectory::new();
    let mut harness = directory.harness();
    let mut command = pause("a", 60_000);
    command.deadline_ms = Some(200);
    let answer = harness.run(&command);
    assert_eq!(answer.outcome.status, OutcomeStatus::Failed);
}

#[test]
fn contents_and_secrets_come_with_the_command_and_secrets_do_not_leak() {
    const CANARY: &str = "hunter2-is-the-canary";
    let directory = TestDirectory::new();
    let mut harness = directory.harness();
    let digest = "9b71d224bd62f3785d96d46ad3ea3d73319bfbc2890caadae2dff72519673ca7";
    let stored = b"from the store of the server\n";
    let digest_of = orrery_handlers::target::Algorithm::Sha1.digest(stored).to_string();
    let mut with_content =
        file(&directory.path("stored"), &json!({"hash": digest_of, "mode": 644}));
    with_content.contents.insert(digest_of, WireContent(stored[..].into()));
    assert_eq!(harness.run(&with_content).outcome.status, OutcomeStatus::Deployed);
    assert_eq!(std::fs::read(directory.path("stored")).unwrap(), stored);
    let without = file(&directory.path("other"), &json!({"hash": digest, "mode": 644}));
    let answer = harness.run(&without);
    assert_eq!(answer.outcome.status, OutcomeStatus::Failed);

    let attributes = json!({
        "content": null, "mode": 600,
        "references": [{"id": "r", "type": "std::Secret", "args": [
            {"name": "name", "type": "literal", "value": "db"},
        ]}],
        "mutators": [{"type": "core::Replace", "args": [
            {"name": "value", "type": "reference", "id": "r"},
            {"name": "destination", "type": "literal", "value": "content"},
        ]}],
    });
    let mut secret = file(&directory.path("secret"), &attributes);
    std::fs::write(directory.path("secret"), format!("old {CANARY}")).unwrap();
    secret.secrets.insert("db".to_owned(), WireSecret(SecretText::new(CANARY)));
    let answer = harness.run(&secret);
    assert_eq!(answer.outcome.status, OutcomeStatus::Deployed);
    assert_eq!(std::fs::read_to_string(directory.path("secret")).unwrap(), CANARY);
    assert!(!serde_json::to_string(&answer).unwrap().contains(CANARY));
    assert!(!std::fs::read_to_string(directory.journal()).unwrap().contains(CANARY));
}

#[test]
fn facts_and_reports_are_returned() {
    let directory = TestDirectory::new();
    let mut harness = directory.harness();
    let attributes = json!({"facts": {"colour": "blue"}});
    let mut facts = command("std::testing::ScriptedResource", "name", "a", &attributes);
    facts.what = CommandKind::Facts;
    let answer = harness.run(&facts);
    assert_eq!(answer.outcome.facts[0].value, "blue");
    let mut report = file(&directory.path("motd"), &json!({"content": "x", "mode": 644}));
    report.resource.flags.report_only = true;
    assert_eq!(harness.run(&report).outcome.status, OutcomeStatus::NonCompliant);
    assert!(!directory.path("motd").exists());
}
