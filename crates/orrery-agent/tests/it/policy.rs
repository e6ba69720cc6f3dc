//! Policy of a machine: effects that it does not list do not happen, whatever the server sends.

use std::os::unix::fs::symlink;
use std::path::Path;

use orrery_agent::Policy;
use orrery_agent::protocol::{Command, FromAgent, RejectionCode};
use orrery_agent::runner::Limits;
use orrery_model::OutcomeStatus;
use serde_json::json;

use crate::commands::{Harness, command, file, shell};

fn policy(directory: &Path, text: &str) -> Policy {
    let path = directory.join("policy.toml");
    std::fs::write(&path, text).unwrap();
    Policy::load(Some(&path)).unwrap().unwrap()
}

fn harness(directory: &Path, text: &str) -> Harness {
    let policy = Some(policy(directory, text));
    Harness::with_policy(&directory.join("journal"), Limits::default(), policy)
}

/// Runs a command; returns its status, and the text of its log.
fn run(harness: &mut Harness, command: &Command) -> (OutcomeStatus, String) {
    harness.send(command);
    let outcome = harness.result().outcome;
    let lines = outcome.log.iter().map(|line| format!("{} {:?}\n", line.message, line.values));
    (outcome.status, lines.collect())
}

fn written(path: &Path) -> Command {
    file(path, &json!({"content": "new", "mode": "0644"}))
}

#[test]
fn only_listed_types_are_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let mut harness = harness(directory.path(), "types = [\"std::F*\"]");
    let sent = shell("true");
    harness.send(&sent);
    match harness.receive() {
        FromAgent::Rejected { id, code: RejectionCode::Policy, reason } => {
            assert_eq!(id, sent.id);
            assert!(reason.contains("exec::Run"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

/// The type is enough: a listed shell would allow everything.
#[test]
fn facts_of_the_machine_need_no_listed_command() {
    let directory = tempfile::tempdir().unwrap();
    let mut harness = harness(directory.path(), "types = [\"std::MachineFacts\"]");
    harness.send(&command("std::MachineFacts", "name", "web1", &json!({})));
    let outcome = harness.result().outcome;
    assert_eq!(outcome.status, OutcomeStatus::Deployed, "{:?}", outcome.log);
    assert!(outcome.facts.iter().any(|fact| fact.name == "kernel" && fact.value == "Linux"));
}

#[test]
fn files_are_changed_only_below_listed_paths() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    let (open, closed) = (base.join("open"), base.join("closed"));
    for path in [&open, &closed] {
        std::fs::create_dir(path).unwrap();
        std::fs::write(path.join("old"), "old").unwrap();
    }
    symlink(&closed, open.join("escape")).unwrap();
    symlink("../closed", open.join("relative")).unwrap();
    let text = format!(
        "types = [\"*\"]\nusers = [\"*\"]\ncommands = [\"*\"]\npaths = [{:?}]",
        open.display().to_string()
    );
    let mut harness = harness(&base, &text);
    let (status, log) = run(&mut harness, &written(&open.join("new")));
    assert_eq!(status, OutcomeStatus::Deployed, "{log}");
    let linked = command(
        "std::Symlink",
        "target",
        open.join("late").to_str().unwrap(),
        &json!({"source": closed.display().to_string()}),
    );
    run(&mut harness, &linked);
    for path in
        ["closed/new", "closed/old", "open/escape/old", "open/relative/new", "open/late/new"]
    {
        let path = base.join(path);
        let (status, log) = run(&mut harness, &written(&path));
        assert_eq!(status, OutcomeStatus::Failed, "{}: {log}", path.display());
        assert!(log.contains("policy of the machine"), "{}: {log}", path.display());
        let purged = file(&path, &json!({"content": "", "purged": true}));
        run(&mut harness, &purged);
    }
    let old = std::fs::read_to_string(closed.join("old")).unwrap();
    assert_eq!((old.as_str(), closed.join("new").exists()), ("old", false));
    assert!(open.join("new").exists());
}

#[test]
fn only_listed_commands_run() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("mark");
    let text = "types = [\"*\"]\npaths = [\"/\"]\nusers = [\"*\"]\n\
        commands = [\"/usr/bin/touch *mark*\", \"/bin/touch *mark*\"]";
    let mut harness = harness(directory.path(), text);
    let exec = |line: String| command("exec::Run", "command", &line, &json!({}));
    let (status, log) = run(&mut harness, &exec(format!("touch {}", mark.display())));
    assert_eq!(status, OutcomeStatus::Deployed, "{log}");
    assert!(mark.exists());
    std::fs::remove_file(&mark).unwrap();
    for line in [
        format!("touch {} {}", mark.display(), mark.display()),
        format!("sh -c 'touch {}'", mark.display()),
        format!("cp /dev/null {}", mark.display()),
    ] {
        let (status, log) = run(&mut harness, &exec(line.clone()));
        assert_eq!(status, OutcomeStatus::Failed, "{line}: {log}");
        assert!(log.contains("policy of the machine"), "{line}: {log}");
    }
    let loaded = command(
        "exec::Run",
        "command",
        &format!("touch {}", mark.display()),
        &json!({"environment": {"LD_PRELOAD": "/tmp/x.so"}}),
    );
    assert_eq!(run(&mut harness, &loaded).0, OutcomeStatus::Failed);
    assert!(!mark.exists());
}

/// A command starts in listed directories only, and `creates` tells nothing about other files.
#[test]
fn directories_and_conditions_of_commands_are_listed_paths() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    let (open, closed) = (base.join("open"), base.join("closed"));
    for path in [&open, &closed] {
        std::fs::create_dir(path).unwrap();
        std::fs::write(path.join("old"), "old").unwrap();
    }
    symlink(&closed, open.join("directory")).unwrap();
    symlink("../closed/old", open.join("file")).unwrap();
    for commands in ["*", "/usr/bin/touch *\", \"/bin/touch *"] {
        let text = format!(
            "types = [\"*\"]\nusers = [\"*\"]\ncommands = [\"{commands}\"]\npaths = [{:?}]",
            open.display().to_string()
        );
        let mut harness = harness(&base, &text);
        let mut touch = |cwd: &Path, creates: &Path| {
            let attributes = json!({
                "cwd": cwd.display().to_string(), "creates": creates.display().to_string(),
            });
            run(&mut harness, &command("exec::Run", "command", "touch here", &attributes))
        };
        let (status, log) = touch(&open, &open.join("here"));
        assert_eq!(status, OutcomeStatus::Deployed, "{log}");
        std::fs::remove_file(open.join("here")).unwrap();
        for (cwd, creates) in [
            (&closed, &open.join("here")),
            (&open.join("directory"), &open.join("here")),
            (&open.join("../closed"), &open.join("here")),
            (&open, &closed.join("old")),
            (&open, &closed.join("none")),
            (&open, &open.join("directory/old")),
            (&open, &open.join("file")),
        ] {
            let (status, log) = touch(cwd, creates);
            let place = format!("{} {}: {log}", cwd.display(), creates.display());
            assert_eq!(status, OutcomeStatus::Failed, "{place}");
            assert!(log.contains("policy of the machine") || log.contains(".."), "{place}");
        }
        assert!(!closed.join("here").exists() && !open.join("here").exists());
    }
}

#[test]
fn files_get_only_listed_owners_and_no_rights_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let text = "types = [\"*\"]\npaths = [\"/\"]\ncommands = []\nusers = [\"nobody\"]";
    let mut harness = harness(directory.path(), text);
    let path = directory.path().join("file");
    for attributes in [
        json!({"content": "x", "mode": "0644", "owner": "daemon"}),
        json!({"content": "x", "mode": "4755"}),
    ] {
        let (status, log) = run(&mut harness, &file(&path, &attributes));
        assert_eq!(status, OutcomeStatus::Failed, "{log}");
        assert!(log.contains("policy of the machine"), "{log}");
    }
    assert!(!path.exists());
}

#[test]
fn references_to_the_machine_follow_the_policy() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    std::fs::create_dir(base.join("open")).unwrap();
    std::fs::write(base.join("private"), "hunter2").unwrap();
    let text = format!(
        "types = [\"*\"]\nusers = [\"*\"]\npaths = [{:?}]",
        base.join("open").display().to_string()
    );
    let mut harness = harness(&base, &text);
    for (at, (kind, name, value)) in [
        ("std::SecretFile", "path", json!(base.join("private"))),
        ("std::SecretCommand", "command", json!(["cat", base.join("private")])),
        ("std::Environment", "name", json!("CARGO_MANIFEST_DIR")),
    ]
    .into_iter()
    .enumerate()
    {
        let path = base.join(format!("open/copy{at}"));
        let attributes = json!({
            "content": null, "mode": 600,
            "references": [{"id": "r", "type": kind, "args": [
                {"name": name, "type": "literal", "value": value},
            ]}],
            "mutators": [{"type": "core::Replace", "args": [
                {"name": "value", "type": "reference", "id": "r"},
                {"name": "destination", "type": "literal", "value": "content"},
            ]}],
        });
        let (status, log) = run(&mut harness, &file(&path, &attributes));
        assert_eq!((status, path.exists()), (OutcomeStatus::Failed, false), "{kind}: {log}");
    }
}
