//! From what a request shows to a caller.

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::request::Parts;
use orrery_model::Duration;
use orrery_store::{Identity, TokenRecord};

use crate::app::App;
use crate::auth::issuers::by_issuer;
use crate::auth::remembered::{Credential, Known};
use crate::auth::secrets::{SESSION, TOKEN, hash_of};
use crate::auth::{Caller, How, Limit};
use crate::problem::ServerError;

/// A session ends after this, unless it is renewed.
pub(crate) const SESSION_LENGTH: Duration = Duration::from_secs(12 * 3600);

/// The header by which scripts of our own pages show that they are; other sites cannot send it.
const OWN_SCRIPT: &str = "x-orrery-client";

/// Nothing longer is a credential of ours.
const SHOWN_MAX: usize = 16 * 1024;

/// What a request shows.
struct Shown<'a> {
    secret: &'a str,
    cookie: bool,
}

/// The name of the cookie. With TLS, browsers keep other hosts and paths from setting it.
pub(crate) fn cookie_name(secure: bool) -> &'static str {
    if secure { "__Host-orrery" } else { "orrery" }
}

fn unknown(reason: &'static str) -> ServerError {
    ServerError::Unauthenticated(reason)
}

fn shown<'a>(headers: &'a HeaderMap, cookie: &str) -> Result<Shown<'a>, ServerError> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    if let Some(value) = given.next() {
        if given.next().is_some() {
            return Err(unknown("there is more than one Authorization header"));
        }
        let text = value.to_str().unwrap_or_default();
        let (scheme, secret) = text.split_once(' ').unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unknown("the Authorization header must say Bearer and a token"));
        }
        return Ok(Shown { secret: secret.trim(), cookie: false });
    }
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == cookie).then_some(value)
    });
    match pairs.next() {
        Some(secret) => Ok(Shown { secret, cookie: true }),
        None => Err(unknown("send a token as Authorization: Bearer …")),
    }
}

/// Whether a request could have been made by a page of another site: a browser sends cookies along with those too.
fn needs_proof_of_origin(headers: &HeaderMap) -> bool {
    if headers.contains_key(OWN_SCRIPT) {
        return false;
    }
    headers.get("sec-fetch-site").is_none_or(|site| site != "same-origin")
}

/// Finds out who is calling. For a request that only reads, that may be known from one a moment ago.
pub(crate) async fn authenticate(
    app: &App,
    parts: &Parts,
    only_reads: bool,
) -> Result<Caller, ServerError> {
    let cookie = cookie_name(app.settings().auth.secure_cookies);
    let Shown { secret, cookie } = shown(&parts.headers, cookie)?;
    if secret.len() > SHOWN_MAX {
        return Err(unknown("invalid token"));
    }
    // Not by the method: there is a classic GET that changes something.
    if cookie && !only_reads && needs_proof_of_origin(&parts.headers) {
        let need = format!("change things with a cookie from this site only: send {OWN_SCRIPT}");
        return Err(ServerError::Forbidden(need));
    }
    if secret.starts_with(SESSION) {
        let credential = (hash_of(secret), cookie);
        return remembering(app, only_reads, credential, by_session(app, credential)).await;
    }
    if cookie {
        return Err(unknown("the session has ended; log in again"));
    }
    if secret.starts_with(TOKEN) {
        let credential = (hash_of(secret), cookie);
        return remembering(app, only_reads, credential, by_token(app, credential)).await;
    }
    if secret.split('.').count() == 3 {
        return by_issuer(app, secret).await;
    }
    Err(unknown("invalid token"))
}

/// Remembers who shows a credential, and answers from that if the request only reads.
async fn remembering(
    app: &App,
    only_reads: bool,
    credential: Credential,
    find: impl Future<Output = Result<Known, ServerError>>,
) -> Result<Caller, ServerError> {
    let remembered = &app.auth().remembered;
    if only_reads && let Some(caller) = remembered.caller(&credential, app.now()) {
        return Ok(caller);
    }
    let asked = remembered.moment();
    let known = find.await?;
    remembered.keep_caller(credential, known.clone(), asked);
    Ok(known.0)
}

async fn by_session(app: &App, (hash, cookie): Credential) -> Result<Known, ServerError> {
    let now = app.now();
    let found = app.with_store(move |store| store.records().session(&hash, now)).await?;
    let Some((session, identity)) = found else {
        return Err(unknown("the session has ended; log in again"));
    };
    need_enabled(&identity)?;
    let how = How::Session { hash, expires: session.expires, cookie };
    let caller = Caller::known(format!("user:{}", identity.account.name), &identity, how);
    Ok((caller, Some(session.expires)))
}

async fn by_token(app: &App, (hash, _): Credential) -> Result<Known, ServerError> {
    let found = app.with_store(move |store| store.records().token_with_hash(&hash)).await?;
    let Some((token, identity)) = found else { return Err(unknown("invalid token")) };
    let now = app.now();
    if !token.is_valid(now) {
        return Err(unknown("the token has expired or was revoked"));
    }
    need_enabled(&identity)?;
    let limit = Limit::of(&token)
        .map_err(|error| ServerError::Internal(format!("the limits of a token: {error}")))?;
    note_use(app, &token);
    let name = format!("token:{}/{}", identity.account.name, token.name);
    Ok((Caller::known(name, &identity, How::Token).limited(limit), token.expires))
}

fn need_enabled(identity: &Identity) -> Result<(), ServerError> {
    if identity.account.disabled { Err(unknown("the account is disabled")) } else { Ok(()) }
}

/// Remembers, at most once a minute and beside the request, that a token is in use.
fn note_use(app: &App, token: &TokenRecord) {
    let now = app.now();
    if !app.auth().touched.is_due(&token.uuid, token.last_used, now) {
        return;
    }
    let (app, uuid) = (app.clone(), token.uuid);
    tokio::spawn(async move {
        let noted = app.with_store(move |store| store.records().touch_tokens(&[(uuid, now)])).await;
        if let Err(error) = noted {
            tracing::warn!(%error, "the use of a token is not noted");
        }
    });
}
