//! Answers of the server to the calls of a running command: its code, effects that must not be
//! repeated, and the callbacks of its handler.
//!
//! A command gives access to its own code and environment only: whatever an agent calls, it gets
//! nothing of another command.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use orrery_handlers::run::{RemoteCode, RemoteCommand};
use orrery_handlers::{HandlerError, ServerReply};
use serde_json::{Map, Value, json};

use crate::protocol::{CallReply, HandlerCall};

/// Method that returns parts of the code.
pub const FETCH_CODE: &str = "fetch_code";
/// Method that records the start of an effect that must not be repeated.
pub const BEGIN_EFFECT: &str = "begin_effect";

/// Method that sets a parameter or a fact.
const SET_PARAMETER: &str = "set_param";

/// Maximum size of the parts of one reply, in bytes.
const PARTS_BYTES_MAX: usize = 4 << 20;
/// Maximum number of digests in one call.
pub const DIGESTS_MAX: usize = 1000;
/// Maximum nesting of values in messages: below the limit of parsers.
const DEPTH_MAX: usize = 100;

/// Answers a call about a command.
pub fn answer_call(command: &RemoteCommand<'_>, call: &HandlerCall) -> CallReply {
    let HandlerCall { id, call: number, method, arguments } = call;
    let answered = match (&command.code, method.as_str()) {
        (None, _) => Err((501, "the command has no code".to_owned())),
        (Some(code), FETCH_CODE) => fetch_code(code, arguments),
        (Some(_), BEGIN_EFFECT) => begin_effect(command),
        (Some(_), SET_PARAMETER) if !is_own_fact(command.run.resource.id.as_str(), arguments) => {
            Err((
                403,
                "a handler on another machine sets facts of its own resource only".to_owned(),
            ))
        }
        (Some(code), method) => {
            let changed = !command.run.changed_dependencies.is_empty();
            Ok(code.portable.answer(method, arguments, changed))
        }
    };
    let reply = answered.unwrap_or_else(|(status, message)| refused(status, &message));
    let reply = if is_too_deep(&reply.result) {
        refused(413, "the result is nested too deeply")
    } else {
        reply
    };
    CallReply { id: *id, call: *number, status: reply.status, result: reply.result }
}

/// Returns true for a fact of a resource. Parameters and facts of other resources are inputs of
/// models, which a single machine must not choose for all others.
fn is_own_fact(id: &str, arguments: &Map<String, Value>) -> bool {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let is_own = |named: &str| {
        let rest = named.strip_prefix(id);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(",v="))
    };
    text("source").is_none_or(|source| source == "fact") && text("resource_id").is_some_and(is_own)
}

fn refused(status: u16, message: &str) -> ServerReply {
    ServerReply { status, result: json!({ "message": message }) }
}

/// Returns parts of the named files: as many, in their order, as fit into one message.
fn fetch_code(
    code: &RemoteCode<'_>,
    arguments: &Map<String, Value>,
) -> Result<ServerReply, (u16, String)> {
    let digests = arguments.get("digests").and_then(Value::as_array);
    let digests = digests.filter(|digests| digests.len() <= DIGESTS_MAX);
    let digests =
        digests.ok_or_else(|| (400, format!("`digests` must be a list of up to {DIGESTS_MAX}")))?;
    let mut offset = match arguments.get("offset") {
        None => 0,
        Some(offset) => offset
            .as_u64()
            .ok_or_else(|| (400, "`offset` must be a whole number of bytes".to_owned()))?,
    };
    let mut left = PARTS_BYTES_MAX;
    let mut parts = Vec::new();
    for digest in digests.iter().filter_map(Value::as_str) {
        let read = code.portable.read(digest, offset, left);
        let part = read.map_err(|error| (503, error.to_string()))?;
        let part = part.ok_or_else(|| (404, format!("{digest} is not part of the code")))?;
        left = left.saturating_sub(part.content.len().max(1));
        let is_whole = offset.saturating_add(part.content.len() as u64) >= part.size;
        let content = BASE64.encode(part.content);
        parts.push(json!({ "digest": digest, "size": part.size, "content": content }));
        offset = 0;
        if !is_whole || left == 0 {
            break;
        }
    }
    Ok(ServerReply { status: 200, result: json!({ "parts": parts }) })
}

/// Records the start of an effect. Any status but 200 means that it must not start.
fn begin_effect(command: &RemoteCommand<'_>) -> Result<ServerReply, (u16, String)> {
    let gate = command.run.effects.ok_or_else(|| {
        (403, "an effect must not start in a run that may not change anything".to_owned())
    })?;
    let failed = |error: HandlerError| (503, error.to_string());
    (gate.begin)().map_err(failed)?;
    // Recording may have taken long.
    if command.run.stop.reason().is_some() {
        return Err((410, "the run is over".to_owned()));
    }
    Ok(ServerReply { status: 200, result: Value::Null })
}

/// Returns true for a value that parsers may refuse.
pub(crate) fn is_too_deep(value: &Value) -> bool {
    fn exceeds(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(items) => left == 0 || items.iter().any(|item| exceeds(item, left - 1)),
            Value::Object(items) => left == 0 || items.values().any(|item| exceeds(item, left - 1)),
            _ => false,
        }
    }
    exceeds(value, DEPTH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_facts_of_the_own_resource_are_set() {
        let id = "m::R[a,name=x]";
        let sets = |arguments: Value| is_own_fact(id, arguments.as_object().unwrap());
        assert!(sets(json!({ "id": "size", "source": "fact", "resource_id": id })));
        assert!(sets(json!({ "id": "size", "resource_id": format!("{id},v=3") })));
        assert!(!sets(json!({ "id": "size", "source": "fact", "resource_id": "m::R[b,name=x]" })));
        assert!(!sets(json!({ "id": "size", "resource_id": "m::R[a,name=x]y" })));
        assert!(!sets(json!({ "id": "region", "source": "user", "resource_id": id })));
        assert!(!sets(json!({ "id": "region", "source": "fact" })));
    }

    #[test]
    fn deep_values_are_noticed() {
        let nested = |depth: usize| (0..depth).fold(Value::Null, |inner, _| json!([inner]));
        assert!(!is_too_deep(&nested(DEPTH_MAX)));
        assert!(is_too_deep(&nested(DEPTH_MAX + 1)));
        assert!(is_too_deep(&json!({ "x": nested(DEPTH_MAX) })));
    }
}
