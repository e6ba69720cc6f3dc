//! Limits of bodies before decompression, and of the memory of responses.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::Limited;

use crate::body::BODY_MAX;
use crate::error::ServerError;

use super::admission::drain_body;

/// Marks responses to anonymous clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnonymousResponse;

/// Compression holds memory until the response is read, which anonymous clients could delay.
pub(crate) fn is_for_authenticated(
    _: StatusCode,
    _: Version,
    _: &axum::http::HeaderMap,
    extensions: &axum::http::Extensions,
) -> bool {
    extensions.get::<AnonymousResponse>().is_none()
}

/// Limits the size of a body as sent, before decompression.
pub(crate) async fn limit_compressed_size(
    request: Request,
    next: Next,
) -> Result<Response, ServerError> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > BODY_MAX) {
        return Err(ServerError::TooLarge(format!("the limit is {BODY_MAX} bytes")));
    }
    let encoding = request.headers().get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "gzip" && encoding != "identity") {
        // Keeps the connection usable.
        drain_body(request.into_body()).await;
        return Err(ServerError::UnknownEncoding);
    }
    Ok(next.run(request.map(|body| Body::new(Limited::new(body, BODY_MAX)))).await)
}
