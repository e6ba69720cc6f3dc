//! Contents of files, by their SHA-1. The same content is kept once, whoever uploads it.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use orrery_api::{FileHashes, Problem};
use orrery_store::ContentHash;
use sha1::{Digest as _, Sha1};

use crate::app::App;
use crate::auth::Caller;
use crate::contents;
use crate::extract::{Body, Path, read_bytes};
use crate::problem::ServerError;
use crate::versions::content_hash;

const ASKED_MAX: usize = 10_000;

fn hash_of(text: &str) -> Result<ContentHash, ServerError> {
    content_hash(text).ok_or_else(|| {
        ServerError::BadRequest(format!("{text:?} is no SHA-1 in hexadecimal digits"))
    })
}

/// The content of a file.
#[utoipa::path(get, path = "/api/v1/files/{sha1}", tag = "files", params(("sha1" = String, Path)),
    responses((status = 200, description = "The content", body = Vec<u8>, content_type = "application/octet-stream")))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(sha1): Path<String>,
) -> Result<Response, ServerError> {
    let hash = hash_of(&sha1)?;
    let content = contents::read(&app, &caller, hash).await?;
    let content = content.ok_or(ServerError::NotFound { kind: "file", name: sha1 })?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        // It is what its name says, for ever.
        (header::CACHE_CONTROL, "private, max-age=31536000, immutable"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, Bytes::from(content)).into_response())
}

/// Keeps the content of a file, if it is what its name says. It is deleted after a day unless a version refers to it; what waits for that is
/// limited for each account and for all.
#[utoipa::path(put, path = "/api/v1/files/{sha1}", tag = "files", params(("sha1" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 204, description = "Kept"),
        (status = 409, description = "Another content has the same SHA-1", body = Problem, content_type = "application/problem+json"),
        (status = 507, description = "Too much is kept that no version refers to", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put(
    State(app): State<App>,
    caller: Caller,
    Path(sha1): Path<String>,
    request: Request,
) -> Result<StatusCode, ServerError> {
    let hash = hash_of(&sha1)?;
    let content = read_bytes(request, &app).await?;
    if Sha1::digest(&content).as_slice() != hash.0 {
        let text = format!("the content is not that of {sha1}");
        return Err(ServerError::rule("content-differs", text));
    }
    contents::keep(&app, &caller, hash, content).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which of some files have to be uploaded before a version can refer to them: those that neither the caller uploaded nor an environment uses
/// where the caller may store versions.
#[utoipa::path(post, path = "/api/v1/files/missing", tag = "files", request_body = FileHashes,
    responses((status = 200, description = "Those to upload", body = FileHashes)))]
pub(super) async fn missing(
    State(app): State<App>,
    caller: Caller,
    Body(asked): Body<FileHashes>,
) -> Result<Json<FileHashes>, ServerError> {
    if asked.hashes.len() > ASKED_MAX {
        let text = format!("must not have more than {ASKED_MAX} entries");
        return Err(ServerError::field("hashes", text));
    }
    let mut hashes = Vec::with_capacity(asked.hashes.len());
    for text in &asked.hashes {
        let hash = content_hash(text).ok_or_else(|| {
            ServerError::field("hashes", format!("{text:?} is no SHA-1 in hexadecimal digits"))
        })?;
        hashes.push(hash);
    }
    let missing = contents::missing(&app, &caller, hashes).await?;
    let hashes = missing.into_iter().map(ContentHash::to_hex).collect();
    Ok(Json(FileHashes { hashes }))
}
