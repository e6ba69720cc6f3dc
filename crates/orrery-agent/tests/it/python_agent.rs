//! The example agent in Python against the small gateway, which validates every message by the
//! schema of the protocol page.

use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};

use orrery_agent::protocol::{
    Command, CommandKind, CommandResult, FromAgent, RejectionCode, ToAgent,
};
use orrery_model::{ChangeKind, OutcomeStatus, ResourceFlags};
use serde_json::json;
use uuid::Uuid;

use crate::commands::{command, pause};
use crate::gateway::{Gateway, TestSession};

fn agent_py() -> Process {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/agent-python/agent.py");
    let mut process = Process::new("python3");
    process.arg(path).stdin(Stdio::null());
    process
}

/// The running agent; ends with this value.
struct Running(Child);

impl Running {
    fn start(directory: &Path) -> Self {
        let mut run = agent_py();
        run.arg("run").arg("--state").arg(directory.join("state"));
        Running(run.arg("--notes").arg(directory.join("notes")).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn note(title: &str, text: &str) -> Command {
    let attributes = json!({"title": title, "text": text, "purged": false});
    let command = command("notes::Note", "title", title, &attributes);
    Command { wants_announcement: true, ..command }
}

/// Next message that is about a command, without the acknowledgement.
async fn reply(session: &mut TestSession) -> FromAgent {
    loop {
        match session.receive().await.unwrap() {
            FromAgent::Accepted { .. } | FromAgent::Pong => {}
            other => return other,
        }
    }
}

async fn announcement(session: &mut TestSession, id: Uuid) {
    let announced = reply(session).await;
    assert!(matches!(announced, FromAgent::Announce { id: of } if of == id), "{announced:?}");
}

async fn result(session: &mut TestSession) -> CommandResult {
    match reply(session).await {
        FromAgent::Result(result) => *result,
        other => panic!("{other:?}"),
    }
}

/// Runs a command, with its announcement if it makes one.
async fn run(session: &mut TestSession, command: Command) -> CommandResult {
    let id = command.id;
    session.send(ToAgent::Command(Box::new(command)));
    match reply(session).await {
        FromAgent::Announce { id: of } if of == id => {
            session.send(ToAgent::Announced { id });
            result(session).await
        }
        FromAgent::Result(result) => *result,
        other => panic!("{other:?}"),
    }
}

fn kinds(result: &CommandResult) -> (OutcomeStatus, ChangeKind) {
    (result.outcome.status, result.outcome.change.kind)
}

async fn joined() -> (Gateway, tempfile::TempDir, PathBuf) {
    let gateway = Gateway::start().await;
    let directory = tempfile::tempdir().unwrap();
    let mut join = agent_py();
    join.arg("join").arg(gateway.address.to_string()).arg("--state");
    join.arg(directory.path().join("state"));
    join.env("ORRERY_AGENT_TOKEN", gateway.token().text().expose());
    let done = tokio::task::spawn_blocking(move || join.output()).await.unwrap().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let notes = directory.path().join("notes");
    (gateway, directory, notes)
}

#[tokio::test]
async fn an_agent_in_python_serves_a_type_of_its_own() {
    let (mut gateway, directory, notes) = joined().await;
    let _running = Running::start(directory.path());
    let mut session = gateway.next_session().await;
    let offered = &session.hello.types[0];
    assert_eq!((&*offered.entity, &*offered.id_attribute), ("notes::Note", "title"));
    offered.check().unwrap();

    // Nothing changes before the announcement is confirmed.
    let first = note("todo", "buy milk");
    session.send(ToAgent::Command(Box::new(first.clone())));
    announcement(&mut session, first.id).await;
    assert!(!notes.join("todo.txt").exists());
    session.send(ToAgent::Announced { id: first.id });
    let created = result(&mut session).await;
    assert_eq!(kinds(&created), (OutcomeStatus::Deployed, ChangeKind::Created));
    assert!(created.announced);
    let read = || std::fs::read_to_string(notes.join("todo.txt")).unwrap();
    assert_eq!(read(), "buy milk");

    // A dry run and a report change nothing; a deploy does, once.
    let changed = note("todo", "buy bread");
    let dry =
        Command { what: CommandKind::DryRun, epoch: None, id: Uuid::new_v4(), ..changed.clone() };
    let dry = run(&mut session, dry).await;
    assert_eq!(kinds(&dry), (OutcomeStatus::Deployed, ChangeKind::Updated));
    assert_eq!(dry.outcome.change.attributes[0].desired, "buy bread");
    let mut report = Command { id: Uuid::new_v4(), ..changed.clone() };
    report.resource.flags = ResourceFlags { report_only: true, ..ResourceFlags::default() };
    assert_eq!(run(&mut session, report).await.outcome.status, OutcomeStatus::NonCompliant);
    assert_eq!(read(), "buy milk");
    assert_eq!(run(&mut session, changed).await.outcome.change.kind, ChangeKind::Updated);
    let same = run(&mut session, note("todo", "buy bread")).await;
    assert_eq!(
        (kinds(&same), same.announced),
        ((OutcomeStatus::Deployed, ChangeKind::NoChange), false)
    );
    let facts = Command { what: CommandKind::Facts, ..note("todo", "") };
    assert_eq!(run(&mut session, facts).await.outcome.facts[0].value, "9");

    // A handler's failure is an outcome, and a cancelled command changes nothing.
    let bad = run(&mut session, note("../todo", "x")).await;
    assert_eq!(bad.outcome.status, OutcomeStatus::Failed);
    let cancelled = note("cancelled", "x");
    session.send(ToAgent::Command(Box::new(cancelled.clone())));
    announcement(&mut session, cancelled.id).await;
    session.send(ToAgent::Cancel { id: cancelled.id });
    assert_eq!(result(&mut session).await.outcome.status, OutcomeStatus::Skipped);
    assert!(!notes.join("cancelled.txt").exists());
    session.send(ToAgent::Ping);
    assert!(matches!(session.receive().await, Some(FromAgent::Pong)));

    let mut purge = note("todo", "");
    purge.resource.attributes = json!({"title": "todo", "text": "", "purged": true}).to_string();
    assert_eq!(run(&mut session, purge).await.outcome.change.kind, ChangeKind::Purged);
    assert!(!notes.join("todo.txt").exists());
}

#[tokio::test]
async fn an_agent_in_python_rejects_what_is_not_for_it() {
    let (mut gateway, directory, notes) = joined().await;
    let _running = Running::start(directory.path());
    let mut session = gateway.next_session().await;
    let code = async |session: &mut TestSession, command: Command| {
        session.send(ToAgent::Command(Box::new(command)));
        match reply(session).await {
            FromAgent::Rejected { code, .. } => code,
            other => panic!("{other:?}"),
        }
    };
    // The epoch counts also if the type is unknown.
    let newer = Command { epoch: Some(5), ..pause("epoch", 0) };
    assert_eq!(code(&mut session, newer).await, RejectionCode::UnknownType);
    assert_eq!(code(&mut session, note("stale", "x")).await, RejectionCode::Fenced);
    let elsewhere = Command { environment: Uuid::nil(), ..note("stale", "x") };
    assert_eq!(code(&mut session, elsewhere).await, RejectionCode::Unreadable);
    assert!(!notes.exists());
}

#[tokio::test]
async fn an_agent_in_python_runs_a_command_once_over_its_own_restart() {
    let (mut gateway, directory, notes) = joined().await;
    let running = Running::start(directory.path());
    let mut session = gateway.next_session().await;
    let once = Command { wants_announcement: false, ..note("once", "1") };
    let before = run(&mut session, once.clone()).await;
    let interrupted = note("interrupted", "x");
    session.send(ToAgent::Command(Box::new(interrupted.clone())));
    announcement(&mut session, interrupted.id).await;
    let boot = session.hello.boot;
    drop(running);

    std::fs::remove_file(notes.join("once.txt")).unwrap();
    let _running = Running::start(directory.path());
    let mut session = gateway.next_session().await;
    assert_ne!(session.hello.boot, boot);
    assert_eq!(run(&mut session, once).await, before);
    assert!(!notes.join("once.txt").exists(), "the command ran again");
    // One that had begun is repeated from its read, and says so.
    let repeated = run(&mut session, interrupted).await;
    assert_eq!((repeated.outcome.status, repeated.repeated), (OutcomeStatus::Deployed, true));
    let older = Command { epoch: Some(0), ..note("older", "x") };
    session.send(ToAgent::Command(Box::new(older)));
    let fenced = reply(&mut session).await;
    assert!(
        matches!(fenced, FromAgent::Rejected { code: RejectionCode::Fenced, .. }),
        "{fenced:?}"
    );
}
