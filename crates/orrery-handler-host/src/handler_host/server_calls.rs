//! Callbacks of a handler on another machine than its server: they are passed on to the server.
//! Contents of files are the exception: they are fetched in parts, and stored where the host reads
//! them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use orrery_handlers::{HandlerError, ServerCalls};
use serde_json::{Map, Value, json};

use super::callbacks::Reply;
use super::file_contents::FileContents;

/// Size of a part of a content.
const PART_BYTES: usize = 4 << 20;
/// Maximum size of a content.
const CONTENT_BYTES_MAX: usize = 1 << 30;

/// Answers one call through the server of the run.
pub(super) fn answer(
    server: &dyn ServerCalls,
    files: &FileContents,
    method: String,
    arguments: Map<String, Value>,
) -> Reply {
    let answered = if method == "fetch_file" {
        fetch_file(server, files, &arguments)
    } else {
        pass_on(server, &method, arguments)
    };
    answered.unwrap_or_else(|error| Reply::refused(503, &error.to_string()))
}

fn pass_on(
    server: &dyn ServerCalls,
    method: &str,
    arguments: Map<String, Value>,
) -> Result<Reply, HandlerError> {
    let reply = server.call(method, arguments)?;
    Ok(Reply { code: reply.status, result: reply.result })
}

/// Fetches a content into the directory of files.
fn fetch_file(
    server: &dyn ServerCalls,
    files: &FileContents,
    arguments: &Map<String, Value>,
) -> Result<Reply, HandlerError> {
    let id = arguments.get("id").and_then(Value::as_str).unwrap_or_default();
    if files.has_exact(id) {
        return Ok(Reply::ok(json!({ "file": id })));
    }
    let found = pass_on(server, "fetch_file", arguments.clone())?;
    if found.code != 200 {
        return Ok(found);
    }
    let invalid = || HandlerError::failed("the server answered without a file");
    let name = found.result.get("file").and_then(Value::as_str).ok_or_else(invalid)?;
    if !files.has_exact(name) {
        let mut content = Vec::new();
        loop {
            let part = json!({ "id": name, "offset": content.len(), "bytes": PART_BYTES });
            let Value::Object(part) = part else { return Err(invalid()) };
            let part = pass_on(server, "get_file", part)?;
            if part.code != 200 {
                return Ok(part);
            }
            let text = part.result.get("content").and_then(Value::as_str).ok_or_else(invalid)?;
            let bytes = BASE64.decode(text).map_err(|_| invalid())?;
            let size = part.result.get("size").and_then(Value::as_u64).ok_or_else(invalid)?;
            content.extend_from_slice(&bytes);
            if content.len() as u64 >= size {
                break;
            }
            if bytes.is_empty() || content.len() > CONTENT_BYTES_MAX {
                return Err(invalid());
            }
        }
        let stored = files.store_fetched(name, &content);
        stored.map_err(|error| HandlerError::failed(error.to_string()))?;
    }
    Ok(Reply::ok(json!({ "file": name })))
}
