//! Login, logout and the first account.

use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::{Extension, Json};
use orrery_api::{Login, Me, Problem, Session, Setup, User};
use orrery_model::{SecretText, Timestamp};
use orrery_roles::network::network_of;
use orrery_store::{Identity, SessionRecord};
use tokio_util::sync::CancellationToken;

use crate::auth::{
    AuditNote, AuthMethod, Caller, Line, RandomToken, SESSION_LENGTH, cookie_name, normalized,
    redeem_bootstrap_token,
};
use crate::error::ServerError;
use crate::extract::Body;
use crate::extract::{ClientAddress, ClientGone};
use crate::state::ServerState;

use super::time;
use super::users::{check_name, user_view};

/// Creates the first account, with the token from the link that the server prints at its first
/// start.
#[utoipa::path(post, path = "/api/v1/setup", tag = "accounts", request_body = Setup, security(()),
    responses((status = 201, body = User), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn setup(
    State(app): State<ServerState>,
    Body(setup): Body<Setup>,
) -> Result<(StatusCode, Extension<AuditNote>, Json<User>), ServerError> {
    check_name(&setup.name)?;
    let made =
        redeem_bootstrap_token(app.auth(), &setup.token, setup.name, &setup.password).await?;
    let note = audit_actor(&made.name);
    Ok((StatusCode::CREATED, note, Json(user_view(made))))
}

fn audit_actor(name: &str) -> Extension<AuditNote> {
    let actor = Some(format!("user:{name}"));
    Extension(AuditNote { actor, ..AuditNote::default() })
}

fn caller_view(caller: &Caller) -> Me {
    Me { name: caller.name.clone(), id: caller.account, roles: caller.roles() }
}

fn session_caller(identity: &Identity, method: AuthMethod) -> Caller {
    Caller::for_account(format!("user:{}", identity.account.name), identity, method)
}

/// Header that sets the session cookie, or removes it with an age of 0.
fn cookie(app: &ServerState, secret: &str, age: u64) -> Result<HeaderMap, ServerError> {
    let secure = app.settings().auth.secure_cookies;
    let (name, marked) = (cookie_name(secure), if secure { "; Secure" } else { "" });
    let text = format!("{name}={secret}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{marked}");
    let value = HeaderValue::from_str(&text)
        .map_err(|error| ServerError::Internal(format!("a cookie: {error}")))?;
    Ok(HeaderMap::from_iter([(SET_COOKIE, value)]))
}

/// Response for a new session, as a cookie or as text.
fn session_response(
    app: &ServerState,
    caller: &Caller,
    secret: SecretText,
    expires: Timestamp,
    as_cookie: bool,
) -> Result<(HeaderMap, Json<Session>), ServerError> {
    let headers = if as_cookie {
        cookie(app, secret.expose(), SESSION_LENGTH.as_secs())?
    } else {
        HeaderMap::new()
    };
    let token = (!as_cookie).then_some(secret);
    Ok((headers, Json(Session { token, expires: time(expires), user: caller_view(caller) })))
}

/// Opens a session for a name and password.
pub(crate) async fn open_session(
    app: &ServerState,
    address: &str,
    gone: &CancellationToken,
    name: &str,
    password: &SecretText,
) -> Result<(Identity, RandomToken, Timestamp), ServerError> {
    let wrong = || ServerError::Unauthenticated("the name or the password is wrong");
    let now = app.now();
    let (wanted, network) = (name.to_owned(), network_of(address));
    let asked = network.clone();
    let (found, is_familiar) =
        app.with_store(move |store| store.accounts().identity_at(&wanted, &asked, now)).await?;
    let usable = found.filter(|found| !found.account.disabled && found.account.issuer.is_none());
    let kept = usable.as_ref().and_then(|found| found.account.password.clone());
    let line = match is_familiar {
        true => Line::Reserved(format!("{network} {name}")),
        false => Line::Open(network.clone()),
    };
    let auth = app.auth();
    let position = auth.passwords.join(line)?;
    auth.throttle.begin(name, address, is_familiar, now)?;
    let permit =
        position.acquire(gone).await.inspect_err(|_| auth.throttle.withdraw(name, address))?;
    let fits = auth.passwords.verify(permit, kept, normalized(password)).await?;
    let Some(identity) = usable.filter(|_| fits) else { return Err(wrong()) };
    auth.throttle.succeed(name, address);

    let minted = RandomToken::session()?;
    let hash = minted.hash;
    let (account, expires) = (identity.account.uuid, now + SESSION_LENGTH);
    let session = SessionRecord { account, created: now, expires };
    app.change(move |store| store.accounts().create_session(&hash, &session, Some(&network)))
        .await?;
    Ok((identity, minted, expires))
}

/// Opens a session. A failure does not reveal if the name or the password is wrong.
#[utoipa::path(post, path = "/api/v1/login", tag = "accounts", request_body = Login, security(()),
    responses((status = 200, body = Session), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn login(
    State(app): State<ServerState>,
    Extension(ClientAddress(address)): Extension<ClientAddress>,
    Extension(ClientGone(gone)): Extension<ClientGone>,
    Body(login): Body<Login>,
) -> Result<(Extension<AuditNote>, HeaderMap, Json<Session>), ServerError> {
    let Login { name, password, cookie } = login;
    let (identity, RandomToken { secret, hash }, expires) =
        open_session(&app, &address, &gone, &name, &password).await?;
    let caller = session_caller(&identity, AuthMethod::Session { hash, expires, cookie });
    let note = audit_actor(&identity.account.name);
    let (headers, session) = session_response(&app, &caller, secret, expires, cookie)?;
    Ok((note, headers, session))
}

/// Ends the session of the request.
#[utoipa::path(post, path = "/api/v1/logout", tag = "accounts",
    responses((status = 204, description = "The session has ended"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn logout(
    State(app): State<ServerState>,
    caller: Caller,
) -> Result<(StatusCode, HeaderMap), ServerError> {
    let AuthMethod::Session { hash, .. } = caller.method else { return Err(no_session()) };
    app.change(move |store| store.accounts().end_session(&hash)).await?;
    Ok((StatusCode::NO_CONTENT, cookie(&app, "", 0)?))
}

fn no_session() -> ServerError {
    ServerError::Conflict("only a session of this server can be renewed or ended".to_owned())
}

/// Replaces the session of the request by a new one, with the current roles.
#[utoipa::path(post, path = "/api/v1/renew", tag = "accounts",
    responses((status = 200, body = Session), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn renew(
    State(app): State<ServerState>,
    caller: Caller,
) -> Result<(HeaderMap, Json<Session>), ServerError> {
    let AuthMethod::Session { hash: old, cookie, .. } = caller.method else {
        return Err(no_session());
    };
    let RandomToken { secret, hash } = RandomToken::session()?;
    let now = app.now();
    let expires = now + SESSION_LENGTH;
    app.change(move |store| store.accounts().renew_session(&old, &hash, expires, now)).await?;
    session_response(&app, &caller, secret, expires, cookie)
}

/// Returns the caller.
#[utoipa::path(get, path = "/api/v1/me", tag = "accounts", operation_id = "who",
    responses((status = 200, body = Me), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn current_account(caller: Caller) -> Json<Me> {
    Json(caller_view(&caller))
}
