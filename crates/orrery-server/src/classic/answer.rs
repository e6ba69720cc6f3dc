//! Answers in the classic forms: the envelope of the second generation, the loose objects of the first, and errors.

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use orrery_api::Problem;
use orrery_model::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::problem::ServerError;

pub(super) type Answer = Result<Response, ServerError>;

/// An object as it is.
pub(super) fn plain(content: Value) -> Answer {
    Ok(axum::Json(content).into_response())
}

/// In the envelope.
pub(super) fn data(content: Value) -> Answer {
    plain(json!({ "data": content }))
}

/// Long answers that are in memory at once.
static LONG: Semaphore = Semaphore::const_new(4);
/// Bytes of a long answer that are handed on at once.
const PART: usize = 64 << 10;

/// A turn to make a long answer. It ends when the answer has been read.
pub(super) async fn long_turn() -> Result<SemaphorePermit<'static>, ServerError> {
    LONG.acquire().await.map_err(|_| ServerError::Stopping)
}

/// A list or an object on its way to being an answer, as text: its values would take a multiple of that.
#[derive(Debug)]
pub(super) struct LongText {
    text: String,
    is_empty: bool,
}

impl LongText {
    pub(super) fn new(head: String) -> Self {
        LongText { text: head, is_empty: true }
    }

    /// Adds an item of a list.
    pub(super) fn push(&mut self, item: &Value) {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.text.push(',');
        }
        self.text.push_str(&item.to_string());
    }

    /// Adds a member of an object.
    pub(super) fn insert(&mut self, name: &str, item: &Value) {
        self.push(&Value::from(name));
        self.text.push(':');
        self.text.push_str(&item.to_string());
    }

    /// The answer, with what ends it.
    pub(super) fn end(mut self, tail: &str, turn: SemaphorePermit<'static>) -> Answer {
        self.text.push_str(tail);
        let parts = futures_util::stream::unfold(
            (Bytes::from(self.text), turn),
            async |(mut rest, turn)| {
                let part = rest.split_to(PART.min(rest.len()));
                (!part.is_empty())
                    .then_some((Ok::<_, std::convert::Infallible>(part), (rest, turn)))
            },
        );
        // Bodies are asked once more after their end, which an unfolded stream does not bear.
        let body = axum::body::Body::from_stream(parts.fuse());
        Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
    }
}

/// Done, and nothing to say.
pub(super) fn done() -> Answer {
    let mut response = Response::default();
    let media_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    Ok(response)
}

/// A status of its own with a message.
pub(super) fn told(status: StatusCode, content: Value) -> Answer {
    Ok((status, axum::Json(content)).into_response())
}

/// ISO 8601 with a zone.
pub(super) fn time(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{}+00:00", text.trim_end_matches('Z'))
}

pub(super) fn maybe_time(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, |at| json!(time(at)))
}

/// Text with all that is special in a URL written as its number.
pub(super) fn escaped(text: &str) -> String {
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

/// How the message of an error begins.
fn beginning(status: StatusCode) -> &'static str {
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

/// Problems of the classic paths in the form that their clients know.
pub(crate) async fn errors(request: Request, next: Next) -> Response {
    let is_classic = super::is_classic(request.uri().path());
    let mut response = next.run(request).await;
    if !is_classic {
        return response;
    }
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
    // The classic server tells all that is wrong with a request by one status.
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
    let mut content = json!({"message": format!("{}{reason}", beginning(status))});
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
