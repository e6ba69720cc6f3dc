//! Contents of files by their SHA-1, in base64.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_store::ContentHash;
use serde_json::json;
use sha1::{Digest as _, Sha1};
use tokio::sync::Semaphore;

use super::answer::{Answer, done, plain};
use super::call::{Call, bad};
use crate::contents;
use crate::problem::ServerError;
use crate::versions::content_hash;

fn hash_of(text: &str) -> Result<ContentHash, ServerError> {
    content_hash(text).ok_or_else(|| bad(format!("{text:?} is no SHA-1 in hexadecimal digits")))
}

async fn content(call: &Call, name: &str) -> Result<Vec<u8>, ServerError> {
    let hash = hash_of(name)?;
    let found = contents::read(&call.app, &call.caller, hash).await?;
    found.ok_or_else(|| ServerError::NotFound { kind: "file", name: name.to_owned() })
}

pub(super) async fn put(call: Call) -> Answer {
    call.only(&["content"])?;
    let hash = hash_of(call.path_text("id"))?;
    let content = STANDARD.decode(call.need_text("content")?);
    let content = content.map_err(|error| bad(format!("the content is not in base64: {error}")))?;
    if Sha1::digest(&content).as_slice() != hash.0 {
        return Err(bad("The hash does not match the content"));
    }
    contents::keep(&call.app, &call.caller, hash, content).await?;
    done()
}

pub(super) async fn get(call: Call) -> Answer {
    call.only(&[])?;
    let content = content(&call, call.path_text("id")).await?;
    plain(json!({"content": STANDARD.encode(content)}))
}

/// Whether a file is there.
pub(super) async fn stat(call: Call) -> Answer {
    let hash = hash_of(call.path_text("id"))?;
    let found = contents::read(&call.app, &call.caller, hash).await?;
    let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    Ok(status.into_response())
}

/// Which files are not there.
pub(super) async fn missing(call: Call) -> Answer {
    call.only(&["files"])?;
    let names = call.texts("files")?.ok_or_else(|| bad("Field 'files' is required."))?;
    let hashes = names.iter().map(|name| hash_of(name)).collect::<Result<Vec<_>, _>>()?;
    let missing = contents::missing(&call.app, &call.caller, hashes).await?;
    let missing = missing.into_iter().map(ContentHash::to_hex);
    plain(json!({"files": missing.collect::<Vec<String>>()}))
}

/// The difference between two files, line by line. A file that is named 0 is empty.
pub(super) async fn diff(call: Call) -> Answer {
    call.only(&["file_id_1", "file_id_2"])?;
    let names = [call.need_text("file_id_1")?, call.need_text("file_id_2")?];
    let mut texts = Vec::new();
    for name in names {
        let content =
            if name.is_empty() || name == "0" { Vec::new() } else { content(&call, name).await? };
        if content.len() > COMPARED_MAX {
            let most = COMPARED_MAX >> 20;
            return Err(ServerError::TooLarge(format!("files of at most {most} MiB are compared")));
        }
        texts.push(String::from_utf8_lossy(&content).into_owned());
    }
    let names = names.map(str::to_owned);
    let turn = COMPARISONS.acquire().await.map_err(|_| ServerError::Stopping)?;
    // With the answer's text, which may have a million lines.
    let compare = move || {
        let lines = unified(&texts[0], &texts[1], [&names[0], &names[1]]);
        serde_json::to_vec(&json!({ "diff": lines }))
    };
    let text = tokio::task::spawn_blocking(compare).await.map_err(|_| ServerError::Stopping)?;
    drop(turn);
    let text = text.map_err(|error| ServerError::Internal(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Files that are larger are not compared.
const COMPARED_MAX: usize = 1 << 20;
/// Time for finding the shortest difference; after it, a longer one is told.
const COMPARED_WITHIN: Duration = Duration::from_secs(1);
/// Comparisons at once.
static COMPARISONS: Semaphore = Semaphore::const_new(2);

/// A unified difference, one entry for each line, as many tools print it.
fn unified(from: &str, to: &str, names: [&str; 2]) -> Vec<String> {
    let mut config = similar::TextDiff::configure();
    let difference = config.timeout(COMPARED_WITHIN).diff_lines(from, to);
    let mut lines = Vec::new();
    for hunk in difference.unified_diff().context_radius(3).iter_hunks() {
        if lines.is_empty() {
            lines.push(format!("--- {}\n", names[0]));
            lines.push(format!("+++ {}\n", names[1]));
        }
        lines.push(format!("{}\n", hunk.header()));
        for change in hunk.iter_changes() {
            let sign = match change.tag() {
                similar::ChangeTag::Delete => '-',
                similar::ChangeTag::Insert => '+',
                similar::ChangeTag::Equal => ' ',
            };
            lines.push(format!("{sign}{}", change.value()));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told_line_by_line() {
        let lines = unified("a\nb\n", "a\nc\n", ["1", "2"]);
        assert_eq!(lines, ["--- 1\n", "+++ 2\n", "@@ -1,2 +1,2 @@\n", " a\n", "-b\n", "+c\n"]);
        assert!(unified("a\n", "a\n", ["1", "2"]).is_empty());
    }
}
