//! What becomes of commands: run once, in turn, within bounds, for the newest owner only.

use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use orrery_agent::journal::{Bounds, Journal};
use orrery_agent::protocol::{Content, FromAgent, RejectionCode, Secret, What};
use orrery_agent::running::Limits;
use orrery_model::{ChangeKind, OutcomeStatus, SecretText};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde_json::json;
use uuid::Uuid;

use crate::commands::{Bench, Gate, command, file, pause, shell};

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn journal(&self) -> PathBuf {
        self.path("journal")
    }

    fn bench(&self) -> Bench {
        Bench::new(&self.journal())
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
fn a_repeated_command_is_answered_and_not_run_again() {
    let place = Place::new();
    let mut bench = place.bench();
    let command = appends(&place.path("log"));
    let first = bench.run(&command);
    assert_eq!(first.outcome.status, OutcomeStatus::Deployed);
    assert_eq!(bench.run(&command), first);
    assert_eq!(place.lines("log"), 1);
    // The same after the process began anew.
    drop(bench);
    let mut bench = place.bench();
    assert_eq!(bench.run(&command), first);
    assert_eq!(place.lines("log"), 1);
    // Another command is another run.
    let another = appends(&place.path("log"));
    bench.run(&another);
    assert_eq!(place.lines("log"), 2);
}

#[test]
fn a_command_that_is_underway_is_not_begun_a_second_time() {
    let place = Place::new();
    let mut bench = place.bench();
    let gate = place.gate();
    let command = gate.command("a");
    bench.tell(&command);
    bench.tell(&command);
    let accepted = |message| matches!(message, FromAgent::Accepted { id } if id == command.id);
    assert!(accepted(bench.hear()) && accepted(bench.hear()));
    assert_eq!(bench.runner.underway(), [command.id]);
    gate.open();
    assert_eq!(bench.result().id, command.id);
    assert!(bench.runner.underway().is_empty());
    assert!(bench.is_silent());
    assert_eq!(gate.noted(), ["a begins", "a ends"]);
}

#[test]
fn what_ends_without_a_session_is_told_when_it_is_asked_for_again() {
    let place = Place::new();
    let mut bench = place.bench();
    let command = appends(&place.path("log"));
    bench.runner.detach();
    bench.tell(&command);
    assert!(bench.runner.wait(std::time::Duration::from_secs(20)));
    bench.reconnect();
    assert!(bench.is_silent());
    assert_eq!(bench.run(&command).outcome.status, OutcomeStatus::Deployed);
    assert_eq!(place.lines("log"), 1);
}

#[test]
fn a_command_that_had_begun_before_a_restart_is_run_again_and_says_so() {
    let place = Place::new();
    let command = file(&place.path("motd"), &json!({"content": "hello\n", "mode": 644}));
    Journal::open(&place.journal(), Bounds::default()).unwrap().started(command.id).unwrap();
    let mut bench = place.bench();
    let answer = bench.run(&command);
    assert!(answer.repeated);
    assert_eq!(answer.outcome.change.kind, ChangeKind::Created);
    // Its answer is kept as it is, and the next command is no repetition.
    assert!(bench.run(&command).repeated);
    assert!(!bench.run(&pause("a", 0)).repeated);
}

#[test]
fn whoever_acts_under_an_older_epoch_is_refused_also_after_a_restart() {
    let place = Place::new();
    let mut bench = place.bench();
    let with_epoch = |epoch| {
        let mut command = appends(&place.path("log"));
        command.epoch = epoch;
        command
    };
    bench.run(&with_epoch(Some(5)));
    let old = with_epoch(Some(4));
    for mut bench in [bench, place.bench()] {
        bench.tell(&old);
        let (id, code, reason) = rejected(bench.hear());
        assert_eq!((id, code), (old.id, RejectionCode::Fenced));
        assert!(reason.contains('5'), "{reason}");
    }
    let mut bench = place.bench();
    bench.tell(&with_epoch(None));
    assert_eq!(rejected(bench.hear()).1, RejectionCode::Unreadable);
    bench.run(&with_epoch(Some(5)));
    // A dry run changes nothing, whoever asks for it.
    let mut dry = with_epoch(None);
    dry.what = What::DryRun;
    assert_eq!(bench.run(&dry).outcome.status, OutcomeStatus::Deployed);
    assert_eq!(place.lines("log"), 2);
}

#[test]
fn a_new_owner_ends_what_an_older_one_asked_for() {
    let place = Place::new();
    let limits = Limits { running_max: 1, queued_max: 10 };
    let mut bench = Bench::with_limits(&place.journal(), limits);
    let gate = place.gate();
    let (running, waiting) = (gate.command("a"), pause("b", 0));
    bench.tell(&running);
    gate.wait_for(1);
    bench.tell(&waiting);
    let mut newer = pause("c", 0);
    newer.epoch = Some(2);
    bench.tell(&newer);
    let mut said: Vec<FromAgent> = (0..6).map(|_| bench.hear()).collect();
    said.retain(|message| !matches!(message, FromAgent::Accepted { .. }));
    let [fenced, cancelled, done] = <[_; 3]>::try_from(said).unwrap();
    assert_eq!(rejected(fenced).0, waiting.id);
    let FromAgent::Result(cancelled) = cancelled else { panic!("{cancelled:?}") };
    assert_eq!((cancelled.id, cancelled.outcome.status), (running.id, OutcomeStatus::Skipped));
    let FromAgent::Result(done) = done else { panic!("{done:?}") };
    assert_eq!((done.id, done.outcome.status), (newer.id, OutcomeStatus::Deployed));
}

#[test]
fn who_has_too_much_to_do_says_so() {
    let place = Place::new();
    let mut bench = Bench::with_limits(&place.journal(), Limits { running_max: 1, queued_max: 1 });
    let commands = [pause("a", 60_000), pause("b", 0), pause("c", 0)];
    commands.iter().for_each(|command| bench.tell(command));
    assert!(matches!(bench.hear(), FromAgent::Accepted { .. }));
    assert!(matches!(bench.hear(), FromAgent::Accepted { .. }));
    assert!(matches!(bench.hear(), FromAgent::Busy { id } if id == commands[2].id));
    bench.runner.cancel(commands[0].id);
    assert_eq!(bench.result().outcome.status, OutcomeStatus::Skipped);
    assert_eq!(bench.result().id, commands[1].id);
    assert_eq!(bench.run(&commands[2]).outcome.status, OutcomeStatus::Deployed);
    bench.runner.close();
    bench.tell(&pause("d", 0));
    assert!(matches!(bench.hear(), FromAgent::Busy { .. }));
}

#[test]
fn who_waits_and_is_cancelled_is_answered_at_once() {
    let place = Place::new();
    let limits = Limits { running_max: 1, queued_max: 10 };
    let mut bench = Bench::with_limits(&place.journal(), limits);
    let (running, waiting) = (pause("a", 60_000), appends(&place.path("log")));
    bench.tell(&running);
    bench.tell(&waiting);
    bench.runner.cancel(waiting.id);
    let answer = bench.result();
    assert_eq!((answer.id, answer.outcome.status), (waiting.id, OutcomeStatus::Skipped));
    assert_eq!(bench.runner.underway(), [running.id]);
    bench.tell(&pause("c", 0));
    bench.runner.cancel_all();
    let ended = [bench.result(), bench.result()];
    assert!(ended.iter().all(|answer| answer.outcome.status == OutcomeStatus::Skipped));
    assert_eq!(place.lines("log"), 0);
}

#[test]
fn commands_for_one_resource_never_overlap_and_others_run_beside_them() {
    let place = Place::new();
    let mut bench = place.bench();
    let gate = place.gate();
    let names = ["a", "a", "a", "b", "c"];
    names.iter().for_each(|name| bench.tell(&gate.command(name)));
    // One of each resource: nobody waits for a command of another one.
    gate.wait_for(3);
    let mut begun = gate.noted();
    begun.sort();
    assert_eq!(begun, ["a begins", "b begins", "c begins"]);
    gate.open();
    for _ in names {
        assert_eq!(bench.result().outcome.status, OutcomeStatus::Deployed);
    }
    let mut noted = gate.noted();
    noted.retain(|line| line.starts_with('a'));
    assert_eq!(noted, ["a begins", "a ends"].repeat(3));
}

#[test]
fn commands_that_come_at_once_run_at_once_though_only_one_worker_is_there() {
    // Whether they come before the worker is awake is chance, mostly a good one.
    for _ in 0..5 {
        let place = Place::new();
        let mut bench = place.bench();
        // From now on there is a worker that waits.
        bench.run(&pause("first", 0));
        let gate = place.gate();
        let count = Limits::default().running_max;
        (0..count).for_each(|at| bench.tell(&gate.command(&format!("c{at}"))));
        gate.wait_for(count);
        gate.open();
        for _ in 0..count {
            assert_eq!(bench.result().outcome.status, OutcomeStatus::Deployed);
        }
    }
}

#[test]
fn what_an_agent_cannot_do_is_rejected() {
    let place = Place::new();
    let mut bench = place.bench();
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
        bench.tell(&command);
        assert_eq!(rejected(bench.hear()).1, code, "{:?}", command.resource);
    }
}

#[test]
fn who_cannot_note_that_a_command_begins_rejects_it_and_has_done_with_it() {
    // A file in memory that is full from some moment on.
    let file = memfd_create("journal", MemfdFlags::ALLOW_SEALING).unwrap();
    let place = Place::new();
    symlink(format!("/proc/self/fd/{}", file.as_raw_fd()), place.journal()).unwrap();
    let mut bench = place.bench();
    bench.run(&pause("first", 0));
    fcntl_add_seals(&file, SealFlags::GROW).unwrap();
    for _ in 0..200 {
        let command = appends(&place.path("log"));
        bench.tell(&command);
        assert!(matches!(bench.hear(), FromAgent::Accepted { .. }));
        let (id, code, reason) = rejected(bench.hear());
        assert_eq!((id, code), (command.id, RejectionCode::Unable), "{reason}");
        // Who sends it again now is not told that it is underway.
        assert!(bench.runner.underway().is_empty());
    }
    assert_eq!(place.lines("log"), 0);
}

#[test]
fn nothing_is_changed_before_it_is_noted() {
    let place = Place::new();
    let mut bench = place.bench();
    let path = place.path("motd");
    let announcing = || {
        let mut command = file(&path, &json!({"content": "hello\n", "mode": 644}));
        command.wants_announcement = true;
        command
    };
    let asks = |message: FromAgent, id: Uuid| matches!(message, FromAgent::Announce { id: of } if of == id);
    let cancelled = announcing();
    bench.tell(&cancelled);
    assert!(matches!(bench.hear(), FromAgent::Accepted { .. }));
    assert!(asks(bench.hear(), cancelled.id));
    bench.runner.cancel(cancelled.id);
    let answer = bench.result();
    assert_eq!((answer.outcome.status, answer.announced), (OutcomeStatus::Skipped, false));
    assert!(!path.exists());

    let command = announcing();
    bench.tell(&command);
    assert!(matches!(bench.hear(), FromAgent::Accepted { .. }));
    assert!(asks(bench.hear(), command.id));
    // A session that broke meanwhile: whoever asks again learns what is waited for.
    bench.reconnect();
    bench.tell(&command);
    assert!(matches!(bench.hear(), FromAgent::Accepted { .. }));
    assert!(asks(bench.hear(), command.id));
    assert!(!path.exists());
    bench.runner.announced(command.id);
    let answer = bench.result();
    assert_eq!((answer.outcome.status, answer.announced), (OutcomeStatus::Deployed, true));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "hello\n");
    // Where nothing is to be changed, nothing is announced.
    let answer = bench.run(&announcing());
    assert_eq!((answer.outcome.change.kind, answer.announced), (ChangeKind::NoChange, false));
}

#[test]
fn a_command_that_takes_too_long_is_stopped() {
    let place = Place::new();
    let mut bench = place.bench();
    let mut command = pause("a", 60_000);
    command.deadline_ms = Some(200);
    let answer = bench.run(&command);
    assert_eq!(answer.outcome.status, OutcomeStatus::Failed);
}

#[test]
fn contents_and_secrets_come_with_the_command_and_no_secret_leaves_or_stays() {
    const CANARY: &str = "hunter2-is-the-canary";
    let place = Place::new();
    let mut bench = place.bench();
    let digest = "9b71d224bd62f3785d96d46ad3ea3d73319bfbc2890caadae2dff72519673ca7";
    let stored = b"from the store of the server\n";
    let digest_of = orrery_handlers::target::Algorithm::Sha1.digest(stored).to_string();
    let mut with_content = file(&place.path("stored"), &json!({"hash": digest_of, "mode": 644}));
    with_content.contents.insert(digest_of, Content(stored[..].into()));
    assert_eq!(bench.run(&with_content).outcome.status, OutcomeStatus::Deployed);
    assert_eq!(std::fs::read(place.path("stored")).unwrap(), stored);
    let without = file(&place.path("other"), &json!({"hash": digest, "mode": 644}));
    let answer = bench.run(&without);
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
    let mut secret = file(&place.path("secret"), &attributes);
    std::fs::write(place.path("secret"), format!("old {CANARY}")).unwrap();
    secret.secrets.insert("db".to_owned(), Secret(SecretText::new(CANARY)));
    let answer = bench.run(&secret);
    assert_eq!(answer.outcome.status, OutcomeStatus::Deployed);
    assert_eq!(std::fs::read_to_string(place.path("secret")).unwrap(), CANARY);
    assert!(!serde_json::to_string(&answer).unwrap().contains(CANARY));
    assert!(!std::fs::read_to_string(place.journal()).unwrap().contains(CANARY));
}

#[test]
fn facts_and_reports_are_answered() {
    let place = Place::new();
    let mut bench = place.bench();
    let attributes = json!({"facts": {"colour": "blue"}});
    let mut facts = command("std::testing::ScriptedResource", "name", "a", &attributes);
    facts.what = What::Facts;
    let answer = bench.run(&facts);
    assert_eq!(answer.outcome.facts[0].value, "blue");
    let mut report = file(&place.path("motd"), &json!({"content": "x", "mode": 644}));
    report.resource.flags.report_only = true;
    assert_eq!(bench.run(&report).outcome.status, OutcomeStatus::NonCompliant);
    assert!(!place.path("motd").exists());
}
