//! Inputs of requests, checked the same way everywhere; what does not fit is a problem that names the place.

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequest, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use serde::de::DeserializeOwned;

use crate::problem::ServerError;

/// A body of JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ServerError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ServerError> {
        let read = <axum::Json<T> as FromRequest<S>>::from_request(request, state).await;
        read.map(|axum::Json(body)| Body(body)).map_err(|rejection| rejected(&rejection))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> OptionalFromRequest<S> for Body<T> {
    type Rejection = ServerError;

    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, ServerError> {
        let empty = request.headers().get(header::CONTENT_TYPE).is_none();
        if empty {
            return Ok(None);
        }
        <Self as FromRequest<S>>::from_request(request, state).await.map(Some)
    }
}

fn rejected(rejection: &JsonRejection) -> ServerError {
    match rejection {
        JsonRejection::MissingJsonContentType(_) => ServerError::UnsupportedMediaType,
        JsonRejection::BytesRejection(error) if error.status() == 413 => {
            ServerError::TooLarge(error.body_text())
        }
        JsonRejection::JsonDataError(error) => ServerError::field("body", error.body_text()),
        other => ServerError::BadRequest(other.body_text()),
    }
}

/// Parts of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ServerError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ServerError> {
        let read = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        let told = |error: PathRejection| ServerError::BadRequest(error.body_text());
        read.map(|axum::extract::Path(value)| Path(value)).map_err(told)
    }
}

/// Parameters after the question mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ServerError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ServerError> {
        let read = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let told = |error: QueryRejection| ServerError::BadRequest(error.body_text());
        read.map(|axum::extract::Query(value)| Query(value)).map_err(told)
    }
}

/// The revision that an update was made from, if the client says.
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
            None => {
                Err(ServerError::PreconditionFailed(format!("{text} is no ETag of this server")))
            }
        }
    }
}

/// The header that tells the revision of what is answered.
pub(crate) fn etag(revision: i64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        headers.insert(header::ETAG, value);
    }
    headers
}
