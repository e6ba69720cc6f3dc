//! Responses in the forms of Inmanta: the v2 envelope, the plain v1 objects, and errors.

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use orrery_api::Problem;
use orrery_model::Timestamp;
use orrery_server::ServerError;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

pub(crate) type ApiResult = Result<Response, ServerError>;

/// Responds with a plain object.
pub(crate) fn plain(content: Value) -> ApiResult {
    Ok(axum::Json(content).into_response())
}

/// Responds with the v2 envelope.
pub(crate) fn data(content: Value) -> ApiResult {
    plain(json!({ "data": content }))
}

/// Limit of concurrent long responses in memory.
static LONG: Semaphore = Semaphore::const_new(4);
/// Chunk size of a long response in bytes.
const PART: usize = 64 << 10;

/// Acquires a permit for a long response. It is released when the response has been read.
pub(crate) async fn long_response_permit() -> Result<SemaphorePermit<'static>, ServerError> {
    LONG.acquire().await.map_err(|_| ServerError::Stopping)
}

/// A list or object under construction, as text: parsed values would take a multiple of the memory.
#[derive(Debug)]
pub(crate) struct LongText {
    text: String,
    is_empty: bool,
}

impl LongText {
    pub(crate) fn new(head: String) -> Self {
        LongText { text: head, is_empty: true }
    }

    /// Appends an item to a list.
    pub(crate) fn push(&mut self, item: &Value) {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.text.push(',');
        }
        self.text.push_str(&item.to_string());
    }

    /// Adds a member to an object.
    pub(crate) fn insert(&mut self, name: &str, item: &Value) {
        self.push(&Value::from(name));
        self.text.push(':');
        self.text.push_str(&item.to_string());
    }

    /// Builds the response, with its end.
    pub(crate) fn end(mut self, tail: &str, turn: SemaphorePermit<'static>) -> ApiResult {
        self.text.push_str(tail);
        let parts = futures_util::stream::unfold(
            (Bytes::from(self.text), turn),
            async |(mut rest, turn)| {
                let part = rest.split_to(PART.min(rest.len()));
                (!part.is_empty())
                    .then_some((Ok::<_, std::convert::Infallible>(part), (rest, turn)))
            },
        );
        // Bodies are polled once more after their end, which an unfolded stream does not support.
        let body = axum::body::Body::from_stream(parts.fuse());
        Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
    }
}

/// Responds without content.
pub(crate) fn done() -> ApiResult {
    let mut response = Response::default();
    let media_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    Ok(response)
}

/// Responds with a status and a message.
pub(crate) fn with_status(status: StatusCode, content: Value) -> ApiResult {
    Ok((status, axum::Json(content)).into_response())
}

/// Formats a time as ISO 8601 with a zone.
pub(crate) fn time(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{}+00:00", text.trim_end_matches('Z'))
}

pub(crate) fn maybe_time(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, |at| json!(time(at)))
}

/// Percent-encodes a text for a URL.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Returns the prefix of an error message.
fn message_prefix(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "Invalid request: ",
        StatusCode::UNAUTHORIZED => "Unauthorized: ",
        StatusCode::FORBIDDEN => "Access denied: ",
        StatusCode::NOT_FOUND => "Request or referenced resource does not exist: ",
        StatusCode::CONFLICT => "Request conflicts with the current state of the resource: ",
        StatusCode::INTERNAL_SERVER_ERROR => {
            "An unexpected error occurred in the server while processing the request: "
        }
        _ => "",
    }
}

/// Middleware: converts problems to the error form of Inmanta.
pub(crate) async fn convert_errors(request: Request, next: Next) -> Response {
    let is_inmanta_path = super::is_inmanta_path(request.uri().path());
    let mut response = next.run(request).await;
    if !is_inmanta_path {
        return response;
    }
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
    // Inmanta reports all invalid requests with one status.
    let status = match response.status() {
        StatusCode::UNPROCESSABLE_ENTITY | StatusCode::PRECONDITION_FAILED => {
            StatusCode::BAD_REQUEST
        }
        status => status,
    };
    let mut reason = problem.detail;
    for field in &problem.fields {
        reason.push_str(&format!("; {}: {}", field.name, field.reason));
    }
    let mut content = json!({"message": format!("{}{reason}", message_prefix(status))});
    if !problem.fields.is_empty() {
        let listed =
            problem.fields.iter().map(|field| json!({"loc": [field.name], "msg": field.reason}));
        content["error_details"] = json!({"validation_errors": listed.collect::<Vec<_>>()});
    }
    let mut told = (status, axum::Json(content)).into_response();
    for (name, value) in response.headers() {
        let is_of_body =
            [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING].contains(name);
        if !is_of_body {
            told.headers_mut().insert(name.clone(), value.clone());
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_zone() {
        assert_eq!(time(Timestamp(0)), "1970-01-01T00:00:00.000000+00:00");
    }

    #[test]
    fn ids_are_escaped() {
        assert_eq!(escaped("a::B[c,d=/e]"), "a%3A%3AB%5Bc%2Cd%3D%2Fe%5D");
    }
}
