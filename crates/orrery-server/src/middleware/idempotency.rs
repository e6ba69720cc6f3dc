//! Idempotency keys: a repeated POST with the same key is executed once.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use orrery_store::{IdempotentRequest, KeyState, StoredResponse};
use sha2::{Digest as _, Sha256};

use super::{Admission, REQUEST_TIMEOUT};
use crate::auth::{Caller, WithAuditDetail};
use crate::error::ServerError;
use crate::extract::read_bytes;
use crate::services::for_idempotent_request;

/// Maximum size of a stored response.
const STORED_RESPONSE_MAX: usize = 1024 * 1024;
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const KEY_LENGTH_MAX: usize = 255;
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Replays the response of a POST that is repeated with the same `Idempotency-Key`.
pub(crate) async fn replay_repeated(
    State(Admission { state, table }): State<Admission>,
    request: Request,
    next: Next,
) -> Result<Response, ServerError> {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let gives_secrets = table.gives_secrets(route);
    let has_key = request.headers().contains_key(&KEY) && !table.is_keyless(route);
    if request.method() != Method::POST || !has_key {
        return Ok(next.run(request).await);
    }
    let key = request.headers().get(&KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
    if key.is_empty() || key.len() > KEY_LENGTH_MAX {
        let text = format!("Idempotency-Key must have 1 to {KEY_LENGTH_MAX} visible characters");
        return Err(ServerError::BadRequest(text));
    }
    let key = key.to_owned();
    let actor = request.extensions().get::<Caller>().map(|caller| caller.name.clone());
    let actor = actor.unwrap_or_default();
    let (parts, body) = request.into_parts();
    let body = read_bytes(Request::from_parts(parts.clone(), body), &state).await?;
    let mut digest = Sha256::new();
    let media_type = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    for part in [parts.uri.to_string().as_bytes(), media_type.unwrap_or_default(), &body] {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }
    let digest: [u8; 32] = digest.finalize().into();

    let attempt = Arc::new(IdempotentRequest::new(actor, key, state.now()));
    // Longer than a request can take: the first attempt is dead.
    let abandoned = state.now() - 2 * REQUEST_TIMEOUT;
    let mine = Arc::clone(&attempt);
    let known =
        state.with_store(move |store| store.idempotency().begin(&mine, &digest, abandoned)).await?;
    match known {
        KeyState::First => {}
        KeyState::Answered(kept) => return Ok(replay(kept)),
        KeyState::InProgress => {
            return Err(ServerError::Refused {
                code: "request-under-way",
                detail: "a request with this Idempotency-Key is under way".to_owned(),
            });
        }
        KeyState::Acted(began) => {
            let detail = format!(
                "the request with this Idempotency-Key, of {began}, was executed at least in part, and its response is not \
                 available any more; it is not repeated: check the current state"
            );
            return Err(ServerError::rule("already-carried-out", detail));
        }
        KeyState::Other => {
            return Err(ServerError::Refused {
                code: "key-reused",
                detail: "this Idempotency-Key was used for another request".to_owned(),
            });
        }
    }
    let request = Request::from_parts(parts, Body::from(body));
    let response = for_idempotent_request(Arc::clone(&attempt), next.run(request)).await;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes);
    let bytes = bytes.map_err(|error| ServerError::Internal(error.to_string()))?;
    let secret = gives_secrets && parts.status.is_success();
    let kept = to_stored_response(parts.status, &parts.headers, &bytes).filter(|_| !secret);
    let ended =
        state.with_store(move |store| store.idempotency().finish(&attempt, kept.as_ref())).await;
    if let Err(error) = ended {
        // The client gets the response now; a repetition learns only that the request was executed.
        tracing::error!(error = &error as &dyn std::error::Error, "cannot store a response");
    }
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

/// Converts a final response for storage; `None` if another attempt may have another result.
fn to_stored_response(
    status: StatusCode,
    headers: &HeaderMap,
    body: &Bytes,
) -> Option<StoredResponse> {
    let is_final = !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS;
    if !is_final || body.len() > STORED_RESPONSE_MAX {
        return None;
    }
    let pairs: Vec<(&str, &str)> = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    let headers = serde_json::to_string(&pairs).ok()?;
    Some(StoredResponse { status: status.as_u16(), headers, body: body.to_vec() })
}

fn replay(kept: StoredResponse) -> Response {
    let mut response = Response::new(Body::from(kept.body));
    *response.status_mut() =
        StatusCode::from_u16(kept.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let pairs: Vec<(String, String)> = serde_json::from_str(&kept.headers).unwrap_or_default();
    for (name, value) in pairs {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    WithAuditDetail("repeated; stored response sent".to_owned(), response).into_response()
}
