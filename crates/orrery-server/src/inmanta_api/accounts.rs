//! Logins, users, roles and tokens.

use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse as _;
use orrery_api::PasswordChange;
use orrery_model::{AccountId, Duration, SecretText};
use orrery_store::{
    AccountRecord, EnvironmentRecord, NewAccount, RoleRecord, RoleScope, StoreError, TokenRecord,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::request::{InmantaRequest, bad_request};
use super::response::{ApiResult, data, done, maybe_time, plain, time};
use crate::access::Right;
use crate::auth::{
    AuditNote, AuthMethod, Caller, RandomToken, SESSION_LENGTH, TokenGrants, check_password,
    normalized, role_right,
};
use crate::error::ServerError;
use crate::extract::{ClientAddress, ClientGone};
use crate::extract::{has_nul, read_bytes};
use crate::routes::sessions::open_session;
use crate::routes::users::{change_password, check_name};
use crate::services::ServiceError;
use crate::state::ServerState;

const AT_ONCE: usize = 1_000;

/// A request with its client address.
pub(super) struct WithClientAddress(InmantaRequest, String);

impl FromRequest<ServerState> for WithClientAddress {
    type Rejection = ServerError;

    async fn from_request(request: Request, app: &ServerState) -> Result<Self, ServerError> {
        let address = request.extensions().get::<ClientAddress>().map(|known| known.0.clone());
        let request = InmantaRequest::from_request(request, app).await?;
        Ok(WithClientAddress(request, address.unwrap_or_default()))
    }
}

fn account_json(account: &AccountRecord) -> Value {
    json!({
        "username": account.name,
        "auth_method": if account.issuer.is_some() { "oidc" } else { "database" },
        "is_admin": account.admin,
    })
}

/// Response with a new session; the token is in a header too.
fn session_response(secret: &SecretText, user: Value) -> ApiResult {
    let expires_in = SESSION_LENGTH.as_secs();
    let content = json!({"token": secret.expose(), "user": user, "expires_in": expires_in});
    let mut response = data(content)?;
    if let Ok(value) = HeaderValue::from_str(&format!("Bearer {}", secret.expose())) {
        response.headers_mut().insert(header::AUTHORIZATION, value);
    }
    Ok(response)
}

/// Body of an anonymous request: only these fields are kept in memory.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    username: Option<String>,
    password: Option<SecretText>,
}

pub(super) async fn login(
    State(app): State<ServerState>,
    Extension(ClientAddress(address)): Extension<ClientAddress>,
    Extension(ClientGone(gone)): Extension<ClientGone>,
    request: Request,
) -> ApiResult {
    let bytes = read_bytes(request, &app).await?;
    if has_nul(&bytes) {
        return Err(bad_request("no text may have a NUL character in it"));
    }
    let login: Login = serde_json::from_slice(&bytes)
        .map_err(|error| bad_request(format!("the body is no such JSON object: {error}")))?;
    let needed = |name: &str| bad_request(format!("Field '{name}' is required."));
    let name = login.username.ok_or_else(|| needed("username"))?;
    let password = login.password.ok_or_else(|| needed("password"))?;
    let (identity, RandomToken { secret, .. }, _) =
        open_session(&app, &address, &gone, &name, &password).await?;
    let response = session_response(&secret, account_json(&identity.account))?;
    let actor = Some(format!("user:{}", identity.account.name));
    let note = Extension(AuditNote { actor, ..AuditNote::default() });
    Ok((note, response).into_response())
}

pub(super) async fn renew(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let AuthMethod::Session { hash: old, .. } = request.caller.method else {
        return Err(bad_request("only a session of this server can be renewed"));
    };
    let account = request.caller.need_account()?;
    let RandomToken { secret, hash } = RandomToken::session()?;
    let now = request.app.now();
    let expires = now + SESSION_LENGTH;
    let found = request
        .app
        .change(move |store| {
            store.accounts().renew_session(&old, &hash, expires, now)?;
            store.accounts().get(account.into())
        })
        .await?;
    session_response(&secret, account_json(&found))
}

pub(super) async fn current_user(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    // Tokens belong to programs, not users.
    let name = match request.caller.method {
        AuthMethod::Nothing | AuthMethod::Token => None,
        AuthMethod::Session { .. } | AuthMethod::Issuer => {
            request.caller.name.split_once(':').map(|(_, name)| name)
        }
    };
    let name = name.ok_or_else(|| ServerError::NotFound {
        kind: "current user",
        name: "behind this token".to_owned(),
    })?;
    data(json!({ "username": name }))
}

/// Returns the roles in single environments, by environment.
fn by_environment(roles: &[RoleRecord], account: AccountId) -> Map<String, Value> {
    let mut found: std::collections::BTreeMap<String, Vec<&str>> = Default::default();
    for role in roles.iter().filter(|role| role.account == account) {
        if let RoleScope::Environment(id) = role.scope {
            found.entry(id.uuid().to_string()).or_default().push(&role.role);
        }
    }
    found.into_iter().map(|(id, roles)| (id, json!(roles))).collect()
}

pub(super) async fn users(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let (accounts, roles) = request
        .app
        .with_store(|store| {
            let mut found: Vec<AccountRecord> = Vec::new();
            loop {
                let after = found.last().map(|last| last.name.clone()).unwrap_or_default();
                let part = store.accounts().list(&after, AT_ONCE)?;
                let is_last = part.len() < AT_ONCE;
                found.extend(part);
                if is_last {
                    return Ok((found, store.accounts().role_assignments(None)?));
                }
            }
        })
        .await?;
    let listed = accounts.iter().map(|account| {
        let mut shown = account_json(account);
        shown["roles"] = Value::Object(by_environment(&roles, account.uuid));
        shown
    });
    data(listed.collect())
}

pub(super) async fn add_user(request: InmantaRequest) -> ApiResult {
    request.caller.need_interactive_login()?;
    request.allow_only(&["username", "password"])?;
    let name = request.need_text("username")?.to_owned();
    check_name(&name)?;
    let password = normalized(&SecretText::new(request.need_text("password")?));
    check_password("password", &password)?;
    let hash = request.app.auth().passwords.hash(&request.caller.name, password).await?;
    let (id, now) = (Uuid::new_v4().into(), request.app.now());
    let made = request
        .app
        .change(move |store| {
            let new = NewAccount {
                uuid: id,
                name: &name,
                password: Some(&hash),
                issuer: None,
                admin: false,
            };
            store.accounts().create(&new, now)
        })
        .await?;
    data(account_json(&made))
}

/// Finds an account by name.
async fn find_account(request: &InmantaRequest, name: &str) -> Result<AccountRecord, ServerError> {
    let wanted = name.to_owned();
    let found = request.app.with_store(move |store| store.accounts().named(&wanted)).await?;
    found.ok_or_else(|| ServerError::NotFound { kind: "user", name: name.to_owned() })
}

pub(super) async fn delete_user(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let account = find_account(&request, request.path_text("username")).await?.uuid;
    let now = request.app.now();
    request.app.change(move |store| store.accounts().delete(account, None, now)).await?;
    done()
}

pub(super) async fn set_password(
    WithClientAddress(request, address): WithClientAddress,
) -> ApiResult {
    request.allow_only(&["password", "current_password"])?;
    let name = request.path_text("username");
    // Other callers must not learn which names exist.
    let own = match request.caller.account {
        Some(id) => {
            let own = request.app.with_store(move |store| store.accounts().get(id.into())).await?;
            own.name == name
        }
        None => false,
    };
    if !own {
        request.caller.need_everywhere(Right::Administer)?;
    }
    let account = find_account(&request, name).await?;
    let change = PasswordChange {
        current: request.text("current_password")?.map(SecretText::new),
        password: SecretText::new(request.need_text("password")?),
    };
    let user = account.uuid.uuid();
    change_password(&request.app, &request.caller, &address, user, &change).await?;
    done()
}

pub(super) async fn set_is_admin(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["username", "is_admin"])?;
    let account = find_account(&request, request.need_text("username")?).await?.uuid;
    let admin =
        request.flag("is_admin")?.ok_or_else(|| bad_request("Field 'is_admin' is required."))?;
    if admin {
        request.caller.need_interactive_login()?;
    }
    let now = request.app.now();
    request
        .app
        .change(move |store| store.accounts().update(account, None, Some(admin), None, now))
        .await?;
    done()
}

/// Lists the roles, which are fixed.
pub(super) async fn roles(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    data(Right::ALL.into_iter().map(|right| json!(right.role())).collect())
}

pub(super) async fn change_roles(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["name"])?;
    let names: Vec<&str> = Right::ALL.into_iter().map(|right| right.role().as_str()).collect();
    Err(bad_request(format!(
        "the roles are {}; they are neither made nor deleted",
        names.join(", ")
    )))
}

pub(super) async fn roles_of(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let account = find_account(&request, request.path_text("username")).await?;
    let roles = request.app.with_store(|store| store.accounts().role_assignments(None)).await?;
    data(json!({"assignments": by_environment(&roles, account.uuid)}))
}

/// Parses a role and its environment.
fn assignment(request: &InmantaRequest) -> Result<(RoleScope, String), ServerError> {
    request.allow_only(&["environment", "role"])?;
    let environment = request
        .uuid("environment")?
        .ok_or_else(|| bad_request("Field 'environment' is required."))?;
    let role = request.need_text("role")?;
    if role_right(role).is_none() {
        return Err(bad_request(format!("there is no role {role:?}")));
    }
    Ok((RoleScope::Environment(environment.into()), role.to_owned()))
}

pub(super) async fn assign_role(request: InmantaRequest) -> ApiResult {
    request.caller.need_interactive_login()?;
    let (scope, role) = assignment(&request)?;
    let account = find_account(&request, request.path_text("username")).await?.uuid;
    let now = request.app.now();
    request
        .app
        .change(move |store| store.accounts().assign_role(account, scope, &role, now))
        .await?;
    done()
}

pub(super) async fn unassign_role(request: InmantaRequest) -> ApiResult {
    let (scope, role) = assignment(&request)?;
    let account = find_account(&request, request.path_text("username")).await?.uuid;
    let now = request.app.now();
    request
        .app
        .change(move |store| store.accounts().revoke_role(account, scope, &role, now))
        .await?;
    done()
}

/// Returns the maximum right of a token, by its client types.
fn token_role(client_types: &[String]) -> Result<Right, ServerError> {
    let mut most = None;
    for kind in client_types {
        let right = match kind.as_str() {
            "api" => Right::Administer,
            "compiler" | "agent" => Right::Develop,
            other => {
                return Err(bad_request(format!(
                    "client_types: {other:?} is none of api, agent, compiler"
                )));
            }
        };
        most = most.max(Some(right));
    }
    most.ok_or_else(|| bad_request("Field 'client_types' must name at least one."))
}

/// Creates a token for one environment. Its rights never exceed those of its creator.
async fn create_environment_token(
    request: &InmantaRequest,
    client_types: &[String],
    expires: Option<i64>,
) -> Result<SecretText, ServerError> {
    request.caller.need_interactive_login()?;
    let account = request.caller.need_account()?;
    let role = token_role(client_types)?.role().to_string();
    let grants = TokenGrants { role, verbs: None, groups: None };
    let grants = serde_json::to_value(grants)
        .map_err(|error| ServerError::Internal(format!("the limits of a token: {error}")))?;
    let now = request.app.now();
    let expires = match expires {
        None => None,
        Some(seconds) => {
            let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            let seconds =
                seconds.ok_or_else(|| bad_request("Field 'expire' must be a positive number."))?;
            Some(now + Duration::from_secs(seconds))
        }
    };
    let token = TokenRecord {
        uuid: Uuid::new_v4().into(),
        name: format!("classic: {}", client_types.join(", ")),
        account: account.into(),
        scope: RoleScope::Environment(request.environment()?.uuid),
        grants,
        created: now,
        expires,
        revoked: None,
        last_used: None,
    };
    let RandomToken { secret, hash } = RandomToken::token()?;
    request.app.change(move |store| store.tokens().create(&hash, &token)).await?;
    Ok(secret)
}

fn client_types(request: &InmantaRequest) -> Result<Vec<String>, ServerError> {
    request.texts("client_types")?.ok_or_else(|| bad_request("Field 'client_types' is required."))
}

pub(super) async fn create_token(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["client_types", "idempotent", "expire"])?;
    let (idempotent, expires) =
        (request.flag("idempotent")?.unwrap_or(true), request.number("expire")?);
    if idempotent && expires.is_some() {
        return Err(bad_request("An idempotent token cannot expire."));
    }
    let secret = create_environment_token(&request, &client_types(&request)?, expires).await?;
    data(json!(secret.expose()))
}

pub(super) async fn create_token_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["client_types", "idempotent"])?;
    request.flag("idempotent")?;
    let secret = create_environment_token(&request, &client_types(&request)?, None).await?;
    plain(json!({"token": secret.expose()}))
}

/// True if the caller may see and revoke a token: its own; administrators of the environment, all.
fn may_see(environment: &EnvironmentRecord, caller: &Caller, token: &TokenRecord) -> bool {
    let is_own = caller.account.is_some_and(|id| id == token.account.uuid());
    let is_here = token.scope == RoleScope::Environment(environment.uuid);
    is_here
        && caller.covers_token(token)
        && (is_own || caller.may_in_environment(Right::Administer, environment))
}

pub(super) async fn tokens(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    // Each page is filtered by rights. Tokens of others are not read for callers without
    // administration rights.
    let environment = request.environment()?.clone();
    let caller = request.caller.clone();
    let all = caller.may_in_environment(Right::Administer, &environment);
    let whose = if all { None } else { Some(caller.need_account()?) };
    let found = request
        .app
        .with_store(move |store| {
            let whose = whose.map(Into::into);
            let (mut found, mut before) = (Vec::new(), None);
            loop {
                let part = store.tokens().list(whose, before, AT_ONCE)?;
                let is_last = part.len() < AT_ONCE;
                before = part.last().map(|last| (last.created, last.uuid));
                found.extend(part.into_iter().filter(|one| may_see(&environment, &caller, one)));
                if is_last {
                    return Ok(found);
                }
            }
        })
        .await?;
    let mut listed = Vec::new();
    for token in &found {
        let kinds: Vec<&str> = token
            .name
            .strip_prefix("classic: ")
            .map_or_else(Vec::new, |kinds| kinds.split(", ").collect());
        listed.push(json!({
            "jti": token.uuid.uuid(),
            "created_by": null,
            "client_types": kinds,
            "environment": request.environment()?.uuid,
            "issued_at": time(token.created),
            "expires_at": maybe_time(token.expires),
            "revoked_at": maybe_time(token.revoked),
            "last_used": maybe_time(token.last_used),
        }));
    }
    data(Value::Array(listed))
}

pub(super) async fn revoke_token(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let id = request.path_uuid("jti")?;
    let unknown = || ServerError::NotFound { kind: "token", name: id.to_string() };
    let found = request.app.with_store(move |store| store.tokens().get(id.into())).await;
    let found = match found {
        Err(ServiceError::Store(StoreError::NotFound { .. })) => return Err(unknown()),
        found => found?,
    };
    if !may_see(request.environment()?, &request.caller, &found) {
        return Err(unknown());
    }
    let now = request.app.now();
    request.app.change(move |store| store.tokens().revoke(id.into(), now)).await?;
    done()
}
