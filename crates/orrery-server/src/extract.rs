//! Extractors of request inputs. An invalid input is a problem that names the field.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequest, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::BodyExt as _;
use orrery_base::byte_size;
use orrery_store::EnvironmentRecord;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::body::{BODY_MAX, BodyError};
use crate::error::ServerError;
use crate::input_errors;

/// A JSON body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<T>(pub(crate) T);

/// Bodies from this size on are parsed on a blocking thread.
const LONG_BODY: usize = 64 * 1024;

/// Limit of concurrent parsers: a parsed body may take many times the memory of its text.
static PARSERS: Semaphore = Semaphore::const_new(4);

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ServerError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ServerError> {
        if !is_json(request.headers()) {
            return Err(ServerError::UnsupportedMediaType);
        }
        read(read_bytes(request, state).await?).await
    }
}

async fn read<T: DeserializeOwned + Send + 'static>(
    bytes: axum::body::Bytes,
) -> Result<Body<T>, ServerError> {
    parse_blocking(bytes, parse_body).await
}

/// Parses a body, on a blocking thread if it is long.
pub async fn parse_blocking<T: Send + 'static>(
    bytes: axum::body::Bytes,
    parse: impl FnOnce(&[u8]) -> Result<T, ServerError> + Send + 'static,
) -> Result<T, ServerError> {
    if bytes.len() < LONG_BODY {
        return parse(&bytes);
    }
    let turn = PARSERS.acquire().await.map_err(|_| ServerError::Stopping)?;
    let parsed = tokio::task::spawn_blocking(move || parse(&bytes)).await;
    drop(turn);
    parsed.map_err(|_| ServerError::Stopping)?
}

/// Parses a body. Errors name the field.
pub(crate) fn parse_body<T: DeserializeOwned>(bytes: &[u8]) -> Result<Body<T>, ServerError> {
    if has_nul(bytes) {
        return Err(ServerError::field("body", "text must not contain NUL characters"));
    }
    serde_json::from_slice(bytes).map(Body).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => match input_errors::invalid_value::<T>(bytes) {
            Some((field, reason)) => ServerError::field(field, reason),
            None => ServerError::field("body", error.to_string()),
        },
        _ => ServerError::BadRequest(format!("the body is not JSON: {error}")),
    })
}

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync> OptionalFromRequest<S> for Body<T> {
    type Rejection = ServerError;

    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, ServerError> {
        if request.headers().get(header::CONTENT_TYPE).is_none() {
            return Ok(None);
        }
        let is_json = is_json(request.headers());
        let bytes = read_bytes(request, state).await?;
        // Some clients send a content type without a body.
        match (bytes.is_empty(), is_json) {
            (true, _) => Ok(None),
            (false, false) => Err(ServerError::UnsupportedMediaType),
            (false, true) => read(bytes).await.map(Some),
        }
    }
}

/// Reads all bytes of a body, within the limits set at admission.
pub async fn read_bytes<S: Send + Sync>(
    request: Request,
    _: &S,
) -> Result<axum::body::Bytes, ServerError> {
    let body = http_body_util::Limited::new(request.into_body(), BODY_MAX);
    let error = match body.collect().await {
        Ok(read) => return Ok(read.to_bytes()),
        Err(error) => error,
    };
    let too_large = |most: usize| {
        let most = byte_size::format_limit(most as u64);
        ServerError::TooLarge(format!("the limit here is {most}, compressed or not"))
    };
    Err(match BodyError::find(&*error) {
        Some(BodyError::TooLarge(most)) => too_large(most),
        Some(error @ BodyError::TooSlow(_)) => ServerError::TooSlow(error.to_string()),
        Some(error @ BodyError::NoRoom) => ServerError::Overloaded(error.to_string()),
        None if error.is::<http_body_util::LengthLimitError>() => too_large(BODY_MAX),
        None => ServerError::BadRequest(
            "the body cannot be read: it ended early, or does not match its Content-Encoding"
                .to_owned(),
        ),
    })
}

pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/json") || media_type.ends_with("+json")
}

/// True if a JSON text has an escaped NUL, which databases cannot store. An unescaped one is not
/// valid JSON.
pub fn has_nul(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &text[at..]) {
        let escape = &text[at + found + 1..];
        if escape.starts_with(b"u0000") {
            return true;
        }
        at = (at + found + 2).min(text.len());
    }
    false
}

/// Path parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ServerError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ServerError> {
        let read = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        let told = |error: PathRejection| {
            ServerError::BadRequest(input_errors::path_error(&error.body_text()))
        };
        read.map(|axum::extract::Path(value)| Path(value)).map_err(told)
    }
}

/// Query parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ServerError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ServerError> {
        let read = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let told = |error: QueryRejection| {
            ServerError::BadRequest(input_errors::query_error(&error.body_text()))
        };
        read.map(|axum::extract::Query(value)| Query(value)).map_err(told)
    }
}

/// Revision that an update is based on, from `If-Match`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IfMatch(pub(crate) Option<i64>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = ServerError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ServerError> {
        let Some(given) = parts.headers.get(header::IF_MATCH) else { return Ok(IfMatch(None)) };
        let text = given.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(IfMatch(None));
        }
        let number = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let revision = number.and_then(|number| number.parse().ok());
        match revision {
            Some(revision) => Ok(IfMatch(Some(revision))),
            None => Err(ServerError::PreconditionFailed(format!(
                "{text} is not an ETag of this server"
            ))),
        }
    }
}

/// Fails if a decision is based on another revision than the current one.
pub(crate) fn unchanged(expected: Option<i64>, current: i64) -> Result<(), ServerError> {
    match expected {
        Some(expected) if expected != current => {
            Err(ServerError::PreconditionFailed(format!("it has revision {current} now")))
        }
        _ => Ok(()),
    }
}

/// Returns the `ETag` header for a revision.
pub(crate) fn etag(revision: i64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        headers.insert(header::ETAG, value);
    }
    headers
}

/// Environment of the path, found during the access check.
#[derive(Clone, Debug)]
pub(crate) struct InEnvironment(pub(crate) EnvironmentRecord);

impl<S: Send + Sync> FromRequestParts<S> for InEnvironment {
    type Rejection = ServerError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ServerError> {
        let found = parts.extensions.get::<EnvironmentRecord>().cloned();
        let found = found.ok_or_else(|| ServerError::Internal("no environment".to_owned()))?;
        Ok(InEnvironment(found))
    }
}

/// Client address of the request, for handlers.
#[derive(Clone, Debug)]
pub struct ClientAddress(pub String);

/// Cancelled when the client disconnects: work that has not begun is skipped.
#[derive(Clone, Debug)]
pub struct ClientGone(pub CancellationToken);

/// Maximum page size.
pub(crate) const LIMIT_MAX: u32 = 1000;
const LIMIT_DEFAULT: u32 = 100;

/// Validates the page size.
pub(crate) fn page_limit(given: Option<u32>) -> Result<usize, ServerError> {
    match given.unwrap_or(LIMIT_DEFAULT) {
        limit @ 1..=LIMIT_MAX => Ok(limit as usize),
        other => {
            Err(ServerError::BadRequest(format!("limit is {other}: it must be 1 to {LIMIT_MAX}")))
        }
    }
}

/// Encodes a position in a list as an opaque cursor.
pub(crate) fn encode_cursor(place: &impl serde::Serialize) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(place).unwrap_or_default())
}

/// Parses a cursor.
pub(crate) fn parse_cursor<T: DeserializeOwned>(cursor: &str) -> Result<T, ServerError> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).unwrap_or_default();
    serde_json::from_slice(&bytes).map_err(|_| {
        ServerError::BadRequest(format!("after: {cursor:?} is not a cursor of this list"))
    })
}

/// Cuts a list that was read with one extra item to the page size, and returns the cursor of the
/// next page.
pub(crate) fn take_page<T, P: serde::Serialize>(
    mut items: Vec<T>,
    limit: usize,
    place: impl Fn(&T) -> P,
) -> (Vec<T>, Option<String>) {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|last| encode_cursor(&place(last)));
    (items, next)
}

#[cfg(test)]
mod tests {
    use super::has_nul;

    #[test]
    fn escaped_nul_characters_are_found() {
        for text in [r#""\u0000""#, r#"["a","b\\\u0000"]"#] {
            assert!(has_nul(text.as_bytes()), "{text}");
        }
        for text in [r#""\\u0000""#, r#""\u0001""#, r#""\"#, ""] {
            assert!(!has_nul(text.as_bytes()), "{text}");
        }
    }
}
