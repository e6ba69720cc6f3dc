//! File contents by SHA-1. Equal contents are stored once, for all clients.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use orrery_api::{FileHashes, Problem};
use orrery_store::ContentHash;
use sha1::{Digest as _, Sha1};

use crate::auth::Caller;
use crate::contents;
use crate::error::ServerError;
use crate::extract::{Body, Path, read_bytes};
use crate::state::ServerState;
use crate::versions::content_hash;

const HASHES_MAX: usize = 10_000;

fn parse_hash(text: &str) -> Result<ContentHash, ServerError> {
    content_hash(text)
        .ok_or_else(|| ServerError::BadRequest(format!("{text:?} is not a SHA-1 in hexadecimal")))
}

/// Returns the content of a file.
#[utoipa::path(get, path = "/api/v1/files/{sha1}", tag = "files", params(("sha1" = String, Path)),
    responses((status = 200, description = "The content", body = Vec<u8>, content_type = "application/octet-stream")))]
pub(super) async fn get(
    State(app): State<ServerState>,
    caller: Caller,
    Path(sha1): Path<String>,
) -> Result<Response, ServerError> {
    let hash = parse_hash(&sha1)?;
    let content = contents::read(&app, &caller, hash).await?;
    let content = content.ok_or(ServerError::NotFound { kind: "file", name: sha1 })?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        // Content-addressed: never changes.
        (header::CACHE_CONTROL, "private, max-age=31536000, immutable"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, Bytes::from(content)).into_response())
}

/// Stores the content of a file, if it matches the hash. It is deleted after a day unless a version
/// refers to it; unreferenced contents are limited per account and in total.
#[utoipa::path(put, path = "/api/v1/files/{sha1}", tag = "files", params(("sha1" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 204, description = "Stored"),
        (status = 409, description = "Another content has the same SHA-1", body = Problem, content_type = "application/problem+json"),
        (status = 507, description = "Too many unreferenced contents", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put(
    State(app): State<ServerState>,
    caller: Caller,
    Path(sha1): Path<String>,
    request: Request,
) -> Result<StatusCode, ServerError> {
    let hash = parse_hash(&sha1)?;
    let content = read_bytes(request, &app).await?;
    if Sha1::digest(&content).as_slice() != hash.0 {
        let text = format!("the content is not that of {sha1}");
        return Err(ServerError::rule("content-differs", text));
    }
    contents::store_upload(&app, &caller, hash, content, app.settings().contents).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the hashes of files to upload before a version can refer to them: those that the caller
/// has not uploaded, and that no environment uses in which the caller may store versions.
#[utoipa::path(post, path = "/api/v1/files/missing", tag = "files", request_body = FileHashes,
    responses((status = 200, description = "Hashes to upload", body = FileHashes)))]
pub(super) async fn missing(
    State(app): State<ServerState>,
    caller: Caller,
    Body(asked): Body<FileHashes>,
) -> Result<Json<FileHashes>, ServerError> {
    if asked.hashes.len() > HASHES_MAX {
        let text = format!("must not have more than {HASHES_MAX} entries");
        return Err(ServerError::field("hashes", text));
    }
    let mut hashes = Vec::with_capacity(asked.hashes.len());
    for text in &asked.hashes {
        let hash = content_hash(text).ok_or_else(|| {
            ServerError::field("hashes", format!("{text:?} is not a SHA-1 in hexadecimal"))
        })?;
        hashes.push(hash);
    }
    let missing = contents::find_missing(&app, &caller, hashes).await?;
    let hashes = missing.into_iter().map(ContentHash::to_hex).collect();
    Ok(Json(FileHashes { hashes }))
}
