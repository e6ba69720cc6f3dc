//! Login, logout and the first account.

use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::{Extension, Json};
use orrery_api::{Login, Me, Problem, Session, Setup, User};
use orrery_model::{SecretText, Timestamp};
use orrery_store::Identity;

use crate::app::accounts::{self, LoginSession};
use crate::auth::{
    AuditNote, AuthMethod, Caller, SESSION_LENGTH, cookie_name, redeem_bootstrap_token,
};
use crate::error::ServerError;
use crate::extract::Body;
use crate::extract::{ClientAddress, ClientGone};
use crate::state::ServerState;

use super::time;
use super::users::user_view;

/// Creates the first account, with the token from the link that the server prints at its first
/// start.
#[utoipa::path(post, path = "/api/v1/setup", tag = "accounts", request_body = Setup, security(()),
    responses((status = 201, body = User), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn setup(
    State(app): State<ServerState>,
    Body(setup): Body<Setup>,
) -> Result<(StatusCode, Extension<AuditNote>, Json<User>), ServerError> {
    accounts::check_name(&setup.name)?;
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
    let LoginSession { identity, secret, hash, expires } =
        accounts::open_session(&app, &address, &gone, &name, &password).await?;
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
    accounts::end_session(&app, hash).await?;
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
    let (secret, expires) = accounts::renew_session(&app, old).await?;
    session_response(&app, &caller, secret, expires, cookie)
}

/// Returns the caller.
#[utoipa::path(get, path = "/api/v1/me", tag = "accounts", operation_id = "who",
    responses((status = 200, body = Me), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn current_account(caller: Caller) -> Json<Me> {
    Json(caller_view(&caller))
}
