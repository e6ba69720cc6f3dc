//! Commands with code of the server: their handlers, their calls, and what is refused.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orrery_agent::journal::{Journal, JournalLimits};
use orrery_agent::protocol::{
    CallReply, CodeReference, Command, FromAgent, HandlerCall, RejectionCode,
};
use orrery_agent::{CodeRunner, Policy};
use orrery_handlers::{Context, Handler, HandlerError};
use orrery_model::{
    Attributes, Change, Fact, LogLevel, Outcome, OutcomeStatus, ResourceId, VersionNumber,
};
use serde_json::{Map, Value, json};

use crate::commands::{Harness, command, file};

/// Calls `get_param`, and logs the reply. With `effect`, it begins one first.
#[derive(Default)]
struct CallingHandler {
    runs: AtomicUsize,
}

impl Handler for CallingHandler {
    fn run(&self, attributes: &Attributes, context: &mut Context<'_>) -> Outcome {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let attributes = attributes.to_object();
        if attributes.contains_key("effect")
            && let Err(error) = context.begin_effect(false)
        {
            return context.finish_with_error(&error);
        }
        if let Some(depth) = attributes.get("depth").and_then(Value::as_u64) {
            let deep = (0..depth).fold(Value::Null, |inner, _| json!([inner]));
            context.log(LogLevel::Info, "deep", [("value", deep)]);
        }
        let arguments = Map::from_iter([("id".to_owned(), json!("price"))]);
        match context.server().unwrap().call("get_param", arguments) {
            Ok(reply) => {
                context.log(LogLevel::Info, "replied", [("result", reply.result)]);
                context.finish(OutcomeStatus::Deployed, Change::default())
            }
            Err(error) => context.finish_with_error(&error),
        }
    }

    fn facts(&self, _: &Attributes, _: &mut Context<'_>) -> Result<Vec<Fact>, HandlerError> {
        Ok(Vec::new())
    }

    fn watched_path<'i>(&self, _: &'i ResourceId) -> Option<&'i str> {
        None
    }
}

struct OneHandler(Arc<CallingHandler>);

impl CodeRunner for OneHandler {
    fn handler(&self, _: &CodeReference, _: VersionNumber) -> Arc<dyn Handler> {
        Arc::clone(&self.0) as _
    }

    fn close(&self) {}
}

fn harness(journal: &Path, policy: Option<Policy>) -> (Harness, Arc<CallingHandler>) {
    let handler = Arc::new(CallingHandler::default());
    let runner = Arc::new(OneHandler(Arc::clone(&handler)));
    (Harness::with_code(journal, policy, Some(runner)), handler)
}

/// A command whose handler is in code, although the type has a native one as well.
fn with_code(path: &Path, attributes: &Value) -> Command {
    let code = CodeReference { manifest: "0".repeat(64), environment: "e".to_owned() };
    Command { code: Some(code), ..file(path, attributes) }
}

fn call_of(harness: &mut Harness) -> HandlerCall {
    loop {
        match harness.receive() {
            FromAgent::Call(call) => return *call,
            FromAgent::Accepted { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

fn reply(call: &HandlerCall, status: u16, result: Value) -> CallReply {
    CallReply { id: call.id, call: call.call, status, result }
}

#[test]
fn a_call_is_answered_also_after_the_session_was_lost() {
    let directory = tempfile::tempdir().unwrap();
    let (mut harness, handler) = harness(&directory.path().join("journal"), None);
    let path = directory.path().join("f");
    let sent = with_code(&path, &json!({"content": "native", "mode": "0644"}));
    harness.send(&sent);
    let call = call_of(&mut harness);
    assert_eq!((call.id, call.method.as_str()), (sent.id, "get_param"));
    assert_eq!(call.arguments["id"], "price");
    // The reply is lost with the session; the command is sent again, and so is the call.
    harness.reconnect();
    harness.send(&sent);
    assert_eq!(call_of(&mut harness), call);
    let other = CallReply { call: call.call + 1, ..reply(&call, 200, json!("wrong")) };
    harness.runner.reply(other);
    harness.runner.reply(reply(&call, 200, json!({"value": "12"})));
    let result = harness.result();
    assert_eq!(result.outcome.status, OutcomeStatus::Deployed);
    assert_eq!(result.outcome.log[0].values["result"]["value"], "12");
    assert_eq!(handler.runs.load(Ordering::Relaxed), 1);
    assert!(!path.exists(), "the native handler of the type did not run");
}

#[test]
fn a_cancelled_command_waits_for_no_reply() {
    let directory = tempfile::tempdir().unwrap();
    let (mut harness, _) = harness(&directory.path().join("journal"), None);
    let sent = with_code(&directory.path().join("f"), &json!({}));
    harness.send(&sent);
    call_of(&mut harness);
    harness.runner.cancel(sent.id);
    assert_eq!(harness.result().outcome.status, OutcomeStatus::Skipped);
}

#[test]
fn an_effect_begins_only_after_its_record() {
    let directory = tempfile::tempdir().unwrap();
    let (mut harness, _) = harness(&directory.path().join("journal"), None);
    let sent = with_code(&directory.path().join("f"), &json!({"effect": true}));
    harness.send(&sent);
    let call = call_of(&mut harness);
    assert_eq!(call.method, "begin_effect");
    harness.runner.reply(reply(&call, 503, json!({"message": "the store is away"})));
    let result = harness.result();
    assert_eq!(result.outcome.status, OutcomeStatus::Failed);
    assert!(result.outcome.log[0].message.contains("the store is away"));
    // An earlier one may have happened: nothing is asked.
    let unknown = Command {
        unknown_effect: true,
        ..with_code(&directory.path().join("g"), &json!({"effect": true}))
    };
    harness.send(&unknown);
    let call = call_of(&mut harness);
    assert_eq!(call.method, "get_param", "the effect is refused here");
    harness.runner.reply(reply(&call, 200, Value::Null));
    assert!(harness.result().unclear);
}

#[test]
fn an_interrupted_handler_is_not_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal");
    let sent = with_code(&directory.path().join("f"), &json!({}));
    // As a process leaves it that was killed in the handler.
    Journal::open(&journal, JournalLimits::default()).unwrap().record_started(sent.id).unwrap();
    let (mut harness, handler) = harness(&journal, None);
    harness.send(&sent);
    let result = harness.result();
    assert_eq!(result.outcome.status, OutcomeStatus::Failed);
    assert!(result.repeated && result.unclear);
    assert!(result.outcome.log[0].message.contains("not repeated"));
    assert_eq!(handler.runs.load(Ordering::Relaxed), 0);
}

#[test]
fn values_that_parsers_refuse_are_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let (mut harness, _) = harness(&directory.path().join("journal"), None);
    harness.send(&with_code(&directory.path().join("f"), &json!({"depth": 200})));
    let call = call_of(&mut harness);
    harness.runner.reply(reply(&call, 200, Value::Null));
    let result = harness.result();
    assert_eq!(result.outcome.log[0].values["value"], "left out: it is nested too deeply");
    let text = serde_json::to_string(&result).unwrap();
    serde_json::from_str::<Value>(&text).unwrap();
}

fn rejected(harness: &mut Harness, command: &Command) -> (RejectionCode, String) {
    harness.send(command);
    match harness.receive() {
        FromAgent::Rejected { code, reason, .. } => (code, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_policy_refuses_code_unless_it_allows_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let everything = "types = [\"*\"]\npaths = [\"/\"]\ncommands = [\"*\"]\nusers = [\"*\"]\n";
    for (extra, allowed) in [("", false), ("python = false\n", false), ("python = true\n", true)] {
        std::fs::write(&path, format!("{everything}{extra}")).unwrap();
        let policy = Policy::load(Some(&path)).unwrap();
        let journal = directory.path().join(format!("journal-{}", extra.len()));
        let (mut harness, handler) = harness(&journal, policy);
        let sent = with_code(&directory.path().join("f"), &json!({}));
        if allowed {
            harness.send(&sent);
            let call = call_of(&mut harness);
            harness.runner.reply(reply(&call, 200, Value::Null));
            assert_eq!(harness.result().outcome.status, OutcomeStatus::Deployed);
            continue;
        }
        let (code, reason) = rejected(&mut harness, &sent);
        assert_eq!(code, RejectionCode::Policy, "{reason}");
        assert!(reason.contains("python = true"), "{reason}");
        assert_eq!(handler.runs.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn an_agent_without_a_runner_refuses_code() {
    let directory = tempfile::tempdir().unwrap();
    let mut harness = Harness::new(&directory.path().join("journal"));
    let path = directory.path().join("f");
    let (code, reason) = rejected(&mut harness, &with_code(&path, &json!({"content": "x"})));
    assert_eq!(code, RejectionCode::UnknownType, "{reason}");
    let unknown = command("shop::Price", "name", "x", &json!({}));
    assert_eq!(rejected(&mut harness, &unknown).0, RejectionCode::UnknownType);
    assert!(!path.exists());
}
