//! What holds for every request: how long it may take, which parameters it may have, what its answer carries, and that a repeated
//! one is answered as before.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use orrery_store::{Attempt, KeptAnswer, Repetition};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::app::App;
use crate::auth::{Caller, Noted};
use crate::extract::read_bytes;
use crate::problem::ServerError;

/// How long a request may take until it is answered.
const TIME_MAX: Duration = Duration::from_secs(60);
/// An answer that is to be kept for repetitions is not larger.
const KEPT_MAX: usize = 1024 * 1024;
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const KEY_LENGTH_MAX: usize = 255;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Whoever logs in is not known before, and has no keys.
pub(crate) const KEYLESS_ROUTES: [&str; 6] = [
    "/api/v1/login",
    "/api/v1/setup",
    "/api/v1/renew",
    "/api/v1/webhooks/{environment}",
    "/api/v2/login",
    "/api/v2/login/renew",
];

/// Their answers have secrets in them, of which nothing but digests is kept: that the request was carried out is remembered, and
/// not how it was answered.
pub(crate) const SECRET_ROUTES: [&str; 5] = [
    "/api/v1/tokens",
    "/api/v1/environments/{environment}/webhook",
    "/api/v1/environments/{environment}/remote-agents/invitations",
    "/api/v1/environment_auth",
    "/api/v2/environment_auth",
];

/// What each operation takes beside its body, by method and path.
#[derive(Clone, Debug)]
pub(crate) struct Parameters(Arc<HashMap<(String, String), Known>>);

#[derive(Clone, Debug)]
struct Known {
    /// Parameters after the question mark.
    query: HashSet<String>,
    /// What it changes has a revision.
    if_match: bool,
}

impl Parameters {
    /// Reads them from the description of the API.
    pub(crate) fn of(document: &serde_json::Value) -> Self {
        let mut table = HashMap::new();
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                let names = |place: &str| -> HashSet<String> {
                    let all = operation["parameters"].as_array().into_iter().flatten();
                    let there = all.filter(|parameter| parameter["in"] == place);
                    there.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
                };
                let known =
                    Known { query: names("query"), if_match: names("header").contains("If-Match") };
                table.insert((method.to_ascii_uppercase(), path.clone()), known);
            }
        }
        Parameters(Arc::new(table))
    }

    fn check(&self, method: &Method, path: &str, query: &str) -> Result<(), ServerError> {
        let method = if method == Method::HEAD { "GET" } else { method.as_str() };
        // What is not described, such as pages for people, looks at its parameters by itself.
        let Some(known) = self.0.get(&(method.to_owned(), path.to_owned())) else {
            return Ok(());
        };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let name = part.split('=').next().unwrap_or_default();
            if !known.query.contains(name) {
                let mut known: Vec<&str> = known.query.iter().map(String::as_str).collect();
                known.sort_unstable();
                let known = match &known[..] {
                    [] => "this path takes none".to_owned(),
                    names => format!("known are {}", names.join(", ")),
                };
                return Err(ServerError::rule(
                    "unknown-parameter",
                    format!("there is no parameter {name:?}; {known}"),
                ));
            }
        }
        Ok(())
    }

    /// Whoever says what a change is based on must not be answered as if that had been looked at.
    fn check_if_match(&self, request: &Request, path: &str) -> Result<(), ServerError> {
        if request.method().is_safe() || !request.headers().contains_key(header::IF_MATCH) {
            return Ok(());
        }
        match self.0.get(&(request.method().as_str().to_owned(), path.to_owned())) {
            Some(Known { if_match: false, .. }) => Err(ServerError::PreconditionFailed(
                "this has no revision: leave If-Match out".to_owned(),
            )),
            _ => Ok(()),
        }
    }
}

/// Refuses parameters that an operation does not have, and characters that no database keeps.
pub(crate) async fn check_parameters(
    State(parameters): State<Parameters>,
    request: Request,
    next: Next,
) -> Result<Response, ServerError> {
    let uri = request.uri();
    let query = uri.query().unwrap_or_default();
    if uri.path().contains("%00") || query.contains("%00") {
        return Err(ServerError::BadRequest("a NUL character is in the URL".to_owned()));
    }
    if let Some(matched) = request.extensions().get::<MatchedPath>() {
        parameters.check(request.method(), matched.as_str(), query)?;
        parameters.check_if_match(&request, matched.as_str())?;
    }
    Ok(next.run(request).await)
}

/// Ends what takes too long, names the request, and gives every error the same form.
pub(crate) async fn frame(request: Request, next: Next) -> Response {
    let id = request.headers().get(&REQUEST_ID).filter(|id| {
        let id = id.as_bytes();
        id.len() <= 128 && id.iter().all(|byte| byte.is_ascii_graphic())
    });
    let new_id = || HeaderValue::from_str(&Uuid::new_v4().to_string()).ok();
    let id = id.cloned().or_else(new_id);
    let is_safe = request.method().is_safe();
    let answer = tokio::time::timeout(TIME_MAX, next.run(request)).await;
    let mut response = match answer {
        Ok(response) => formed(response),
        Err(_) => took_too_long(is_safe).into_response(),
    };
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    // Answers are for one caller at one time, and some have secrets in them; what may be kept says so itself.
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(no_store);
    response
}

/// What changes something goes on after its time: 503 would say that nothing was done.
fn took_too_long(is_safe: bool) -> ServerError {
    let text = format!("this took longer than {} s", TIME_MAX.as_secs());
    if is_safe { ServerError::Unavailable(text) } else { ServerError::OutcomeUnknown(text) }
}

/// Errors that a library answered with, as problems.
fn formed(response: Response) -> Response {
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
        // Handlers answer with a form of their own; this is who unpacks.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ServerError::UnknownEncoding,
        StatusCode::NOT_FOUND => ServerError::NoRoute,
        StatusCode::METHOD_NOT_ALLOWED => ServerError::MethodNotAllowed,
        status if status.is_client_error() => {
            ServerError::BadRequest("the request is not understood".to_owned())
        }
        status => ServerError::Internal(format!("an answer with the status {status}")),
    };
    error.into_response()
}

tokio::task_local! {
    /// The request that is being carried out, if it is to be carried out once.
    static ATTEMPT: Arc<Attempt>;
}

/// For whom the caller changes the store.
pub(crate) fn attempt() -> Option<Arc<Attempt>> {
    ATTEMPT.try_with(Arc::clone).ok()
}

/// Answers a POST that is repeated with the same `Idempotency-Key` as it was answered before.
pub(crate) async fn repeat(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, ServerError> {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let gives_secrets = SECRET_ROUTES.contains(&route);
    let has_key = request.headers().contains_key(&KEY) && !KEYLESS_ROUTES.contains(&route);
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
    let body = read_bytes(Request::from_parts(parts.clone(), body), &app).await?;
    let mut digest = Sha256::new();
    let media_type = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    for part in [parts.uri.to_string().as_bytes(), media_type.unwrap_or_default(), &body] {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }
    let digest: [u8; 32] = digest.finalize().into();

    let attempt = Arc::new(Attempt::new(actor, key, app.now()));
    // Longer than a request can take: whoever had it is gone.
    let abandoned = app.now() - 2 * TIME_MAX;
    let mine = Arc::clone(&attempt);
    let known = app
        .with_store(move |store| store.records().begin_repeatable(&mine, &digest, abandoned))
        .await?;
    match known {
        Repetition::First => {}
        Repetition::Answered(kept) => return Ok(replayed(kept)),
        Repetition::UnderWay => {
            return Err(ServerError::Refused {
                status: StatusCode::CONFLICT,
                code: "request-under-way",
                detail: "a request with this Idempotency-Key is under way".to_owned(),
            });
        }
        Repetition::Acted(began) => {
            let detail = format!(
                "the request with this Idempotency-Key, of {began}, was carried out at least in part, and its answer is not \
                 known any more; it is not carried out again: look at what is there"
            );
            let (status, code) = (StatusCode::CONFLICT, "already-carried-out");
            return Err(ServerError::Refused { status, code, detail });
        }
        Repetition::Other => {
            return Err(ServerError::Refused {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                code: "key-reused",
                detail: "this Idempotency-Key was used for another request".to_owned(),
            });
        }
    }
    let request = Request::from_parts(parts, Body::from(body));
    let response = ATTEMPT.scope(Arc::clone(&attempt), next.run(request)).await;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes);
    let bytes = bytes.map_err(|error| ServerError::Internal(error.to_string()))?;
    let secret = gives_secrets && parts.status.is_success();
    let kept = keep(parts.status, &parts.headers, &bytes).filter(|_| !secret);
    let ended =
        app.with_store(move |store| store.records().end_repeatable(&attempt, kept.as_ref())).await;
    if let Err(error) = ended {
        // Whoever asks now gets the answer; who asks again learns that it was carried out.
        tracing::error!(error = &error as &dyn std::error::Error, "an answer cannot be kept");
    }
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

/// What is kept of an answer; nothing of one that another attempt may change.
fn keep(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Option<KeptAnswer> {
    let is_final = !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS;
    if !is_final || body.len() > KEPT_MAX {
        return None;
    }
    let pairs: Vec<(&str, &str)> = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    let headers = serde_json::to_string(&pairs).ok()?;
    Some(KeptAnswer { status: status.as_u16(), headers, body: body.to_vec() })
}

fn replayed(kept: KeptAnswer) -> Response {
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
    Noted("repeated, and answered as before".to_owned(), response).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_takes_too_long_is_not_told_as_undone() {
        assert_eq!(took_too_long(true).status(), StatusCode::SERVICE_UNAVAILABLE);
        let error = took_too_long(false);
        assert_eq!(error.status(), StatusCode::GATEWAY_TIMEOUT);
        let problem = error.problem();
        assert_eq!(problem.code, "outcome-unknown");
        assert!(problem.detail.contains("whether it was carried out is not known"), "{problem:?}");
        let (place, reason) = ("db".to_owned(), "cut off".to_owned());
        let lost = orrery_store::StoreError::ConnectionLost { place, reason };
        assert_eq!(ServerError::from(lost).problem().code, "outcome-unknown");
    }
}
