//! Middleware: everything that happens around handlers.
//!
//! | module | contents |
//! |---|---|
//! | `admission` | authentication, rights, audit log |
//! | `body_limits` | sizes of bodies, memory of responses |
//! | `idempotency` | repeated requests |
//! | `query_params` | unknown parameters |
//! | `measure` | metrics and traces of requests |
//!
//! The timeout, the request id and the error form of all requests are here.

mod admission;
mod body_limits;
mod idempotency;
mod measure;
mod query_params;

use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use uuid::Uuid;

pub(crate) use admission::{Admission, admit_request};
pub(crate) use body_limits::{AnonymousResponse, is_for_authenticated, limit_compressed_size};
pub(crate) use idempotency::replay_repeated;
pub(crate) use measure::measure;
pub(crate) use query_params::{RouteParameters, check_parameters};

use crate::error::ServerError;

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Applies the timeout, sets the request id, and gives every error the same form.
pub(crate) async fn finalize_response(request: Request, next: Next) -> Response {
    let id = request.headers().get(&REQUEST_ID).filter(|id| {
        let id = id.as_bytes();
        id.len() <= 128 && id.iter().all(|byte| byte.is_ascii_graphic())
    });
    let new_id = || HeaderValue::from_str(&random_id().to_string()).ok();
    let id = id.cloned().or_else(new_id);
    let is_safe = request.method().is_safe();
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await;
    let mut response = match answer {
        Ok(response) => into_problem(response),
        Err(_) => timeout_error(is_safe).into_response(),
    };
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    // Responses depend on the caller and may contain secrets; cacheable ones set the header
    // themselves.
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(no_store);
    response
}

/// A random id, from the generator of the thread: a system call per request would cost more.
fn random_id() -> Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}

/// A change continues after the timeout: 503 would claim that nothing was done.
fn timeout_error(is_safe: bool) -> ServerError {
    let text = format!("this took longer than {} s", REQUEST_TIMEOUT.as_secs());
    if is_safe { ServerError::Unavailable(text) } else { ServerError::OutcomeUnknown(text) }
}

/// Converts error responses of libraries to problems.
fn into_problem(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let has_form = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().ends_with(b"json"));
    if !is_error || has_form {
        return response;
    }
    let error = match status {
        StatusCode::PAYLOAD_TOO_LARGE => ServerError::TooLarge("see the limits".to_owned()),
        // From the decompression layer; handlers use their own form.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ServerError::UnknownEncoding,
        StatusCode::NOT_FOUND => ServerError::NoRoute,
        StatusCode::METHOD_NOT_ALLOWED => ServerError::MethodNotAllowed,
        status if status.is_client_error() => {
            ServerError::BadRequest("the request is not understood".to_owned())
        }
        status => ServerError::Internal(format!("a response with the status {status}")),
    };
    error.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timed_out_change_has_an_unknown_outcome() {
        assert_eq!(timeout_error(true).status(), StatusCode::SERVICE_UNAVAILABLE);
        let error = timeout_error(false);
        assert_eq!(error.status(), StatusCode::GATEWAY_TIMEOUT);
        let problem = error.problem();
        assert_eq!(problem.code, "outcome-unknown");
        assert!(problem.detail.contains("the outcome is unknown"), "{problem:?}");
        let (place, reason) = ("db".to_owned(), "cut off".to_owned());
        let lost = orrery_store::StoreError::ConnectionLost { database: place, reason };
        assert_eq!(ServerError::from(lost).problem().code, "outcome-unknown");
    }
}
