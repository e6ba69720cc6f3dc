//! File contents by SHA-1, in base64.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_base::byte_size;
use orrery_base::line_diff::hunks;
use orrery_server::ServerError;
use orrery_server::contents;
use orrery_server::versions::content_hash;
use orrery_store::ContentHash;
use serde_json::json;
use sha1::{Digest as _, Sha1};
use tokio::sync::Semaphore;

use crate::request::{InmantaRequest, bad_request};
use crate::response::{ApiResult, done, plain};

fn parse_hash(text: &str) -> Result<ContentHash, ServerError> {
    content_hash(text)
        .ok_or_else(|| bad_request(format!("{text:?} is no SHA-1 in hexadecimal digits")))
}

async fn content(request: &InmantaRequest, name: &str) -> Result<Vec<u8>, ServerError> {
    let hash = parse_hash(name)?;
    let found = contents::read(&request.app, &request.caller, hash).await?;
    found.ok_or_else(|| ServerError::NotFound { kind: "file", name: name.to_owned() })
}

pub(crate) async fn put(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["content"])?;
    let hash = parse_hash(request.path_text("id"))?;
    let content = STANDARD.decode(request.need_text("content")?);
    let content =
        content.map_err(|error| bad_request(format!("the content is not in base64: {error}")))?;
    if Sha1::digest(&content).as_slice() != hash.0 {
        return Err(bad_request("The hash does not match the content"));
    }
    contents::store_upload(
        &request.app,
        &request.caller,
        hash,
        content,
        request.app.settings().contents,
    )
    .await?;
    done()
}

pub(crate) async fn get(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let content = content(&request, request.path_text("id")).await?;
    plain(json!({"content": STANDARD.encode(content)}))
}

/// Checks for the existence of a file.
pub(crate) async fn stat(request: InmantaRequest) -> ApiResult {
    let hash = parse_hash(request.path_text("id"))?;
    let found = contents::read(&request.app, &request.caller, hash).await?;
    let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    Ok(status.into_response())
}

/// Lists the missing files.
pub(crate) async fn missing(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["files"])?;
    let names = request.texts("files")?.ok_or_else(|| bad_request("Field 'files' is required."))?;
    let hashes = names.iter().map(|name| parse_hash(name)).collect::<Result<Vec<_>, _>>()?;
    let missing = contents::find_missing(&request.app, &request.caller, hashes).await?;
    let missing = missing.into_iter().map(ContentHash::to_hex);
    plain(json!({"files": missing.collect::<Vec<String>>()}))
}

/// Compares two files by line. The hash 0 stands for an empty file.
pub(crate) async fn diff(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["file_id_1", "file_id_2"])?;
    let names = [request.need_text("file_id_1")?, request.need_text("file_id_2")?];
    let mut texts = Vec::new();
    for name in names {
        let content = if name.is_empty() || name == "0" {
            Vec::new()
        } else {
            content(&request, name).await?
        };
        if content.len() > COMPARED_MAX {
            let most = byte_size::format_limit(COMPARED_MAX as u64);
            return Err(ServerError::TooLarge(format!("files of at most {most} are compared")));
        }
        texts.push(String::from_utf8_lossy(&content).into_owned());
    }
    let names = names.map(str::to_owned);
    let turn = COMPARISONS.acquire().await.map_err(|_| ServerError::Stopping)?;
    // Includes formatting: the response can have a million lines.
    let compare = move || {
        let lines = unified(&texts[0], &texts[1], [&names[0], &names[1]]);
        serde_json::to_vec(&json!({ "diff": lines }))
    };
    let text = tokio::task::spawn_blocking(compare).await.map_err(|_| ServerError::Stopping)?;
    drop(turn);
    let text = text.map_err(|error| ServerError::Internal(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Maximum size of a file for comparison.
const COMPARED_MAX: usize = 1 << 20;
/// Time limit for finding the shortest difference; after it, the result can be longer.
const COMPARED_WITHIN: Duration = Duration::from_secs(1);
/// Limit of concurrent comparisons.
static COMPARISONS: Semaphore = Semaphore::const_new(2);

/// Returns a unified diff by line.
fn unified(from: &str, to: &str, names: [&str; 2]) -> Vec<String> {
    let mut lines = Vec::new();
    for hunk in hunks(from, to, Some(COMPARED_WITHIN)) {
        if lines.is_empty() {
            lines.push(format!("--- {}\n", names[0]));
            lines.push(format!("+++ {}\n", names[1]));
        }
        lines.push(format!("{}\n", hunk.header));
        let signed = hunk.lines.iter().map(|line| format!("{}{}", line.kind.sign(), line.text));
        lines.extend(signed);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_by_line() {
        let lines = unified("a\nb\n", "a\nc\n", ["1", "2"]);
        assert_eq!(lines, ["--- 1\n", "+++ 2\n", "@@ -1,2 +1,2 @@\n", " a\n", "-b\n", "+c\n"]);
        assert!(unified("a\n", "a\n", ["1", "2"]).is_empty());
    }
}
