//! Logins, users, roles and tokens.

use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse as _;
use orrery_api::RoleName;
use orrery_model::{AccountId, Duration, SecretText};
use orrery_server::app::accounts::{self, AccountDraft, LoginSession};
use orrery_server::app::roles;
use orrery_server::app::tokens::{self, TokenDraft};
use orrery_server::further_api::{
    AuditNote, AuthMethod, ClientAddress, ClientGone, SESSION_LENGTH, TokenGrants, has_nul,
    read_bytes,
};
use orrery_server::{Right, ServerError, ServerState};
use orrery_store::{AccountRecord, RoleRecord, RoleScope, TokenRecord};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::request::{InmantaRequest, bad_request};
use crate::response::{ApiResult, data, done, maybe_time, plain, time};

const AT_ONCE: usize = 1_000;

/// A request with its client address.
pub(crate) struct WithClientAddress(InmantaRequest, String);

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

pub(crate) async fn login(
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
    let LoginSession { identity, secret, .. } =
        accounts::open_session(&app, &address, &gone, &name, &password).await?;
    let response = session_response(&secret, account_json(&identity.account))?;
    let actor = Some(format!("user:{}", identity.account.name));
    let note = Extension(AuditNote { actor, ..AuditNote::default() });
    Ok((note, response).into_response())
}

pub(crate) async fn renew(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let AuthMethod::Session { hash: old, .. } = request.caller.method else {
        return Err(bad_request("only a session of this server can be renewed"));
    };
    let account = request.caller.need_account()?;
    let (secret, _) = accounts::renew_session(&request.app, old).await?;
    let found = request.app.with_store(move |store| store.accounts().get(account.into())).await?;
    session_response(&secret, account_json(&found))
}

pub(crate) async fn current_user(request: InmantaRequest) -> ApiResult {
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

pub(crate) async fn users(request: InmantaRequest) -> ApiResult {
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

pub(crate) async fn add_user(request: InmantaRequest) -> ApiResult {
    request.caller.need_interactive_login()?;
    request.allow_only(&["username", "password"])?;
    let draft = AccountDraft {
        name: request.need_text("username")?.to_owned(),
        password: Some(SecretText::new(request.need_text("password")?)),
        issuer: None,
        admin: false,
    };
    let made = accounts::create(&request.app, &request.caller, draft).await?;
    data(account_json(&made))
}

pub(crate) async fn delete_user(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let account = accounts::find(&request.app, request.path_text("username")).await?.uuid;
    accounts::delete(&request.app, account.uuid(), None).await?;
    done()
}

pub(crate) async fn set_password(
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
    let account = accounts::find(&request.app, name).await?;
    let current = request.text("current_password")?.map(SecretText::new);
    let new = SecretText::new(request.need_text("password")?);
    let user = account.uuid.uuid();
    let passwords = (current.as_ref(), &new);
    accounts::change_password(&request.app, &request.caller, &address, user, passwords).await?;
    done()
}

pub(crate) async fn set_is_admin(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["username", "is_admin"])?;
    let account = accounts::find(&request.app, request.need_text("username")?).await?.uuid;
    let admin =
        request.flag("is_admin")?.ok_or_else(|| bad_request("Field 'is_admin' is required."))?;
    let (account, changes) = (account.uuid(), (Some(admin), None));
    accounts::update(&request.app, &request.caller, account, None, changes).await?;
    done()
}

/// Lists the roles, which are fixed.
pub(crate) async fn roles(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    data(Right::ALL.into_iter().map(|right| json!(right.role())).collect())
}

pub(crate) async fn change_roles(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["name"])?;
    let names: Vec<&str> = Right::ALL.into_iter().map(|right| right.role().as_str()).collect();
    Err(bad_request(format!(
        "the roles are {}; they are neither made nor deleted",
        names.join(", ")
    )))
}

pub(crate) async fn roles_of(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let account = accounts::find(&request.app, request.path_text("username")).await?;
    let roles = request.app.with_store(|store| store.accounts().role_assignments(None)).await?;
    data(json!({"assignments": by_environment(&roles, account.uuid)}))
}

/// Parses a role and its environment.
fn assignment(request: &InmantaRequest) -> Result<(RoleScope, RoleName), ServerError> {
    request.allow_only(&["environment", "role"])?;
    let environment = request
        .uuid("environment")?
        .ok_or_else(|| bad_request("Field 'environment' is required."))?;
    let role = request.need_text("role")?;
    let role = role.parse().map_err(|_| bad_request(format!("there is no role {role:?}")))?;
    Ok((RoleScope::Environment(environment.into()), role))
}

pub(crate) async fn assign_role(request: InmantaRequest) -> ApiResult {
    request.caller.need_interactive_login()?;
    let (scope, role) = assignment(&request)?;
    let user = request.path_text("username").to_owned();
    roles::assign(&request.app, &request.caller, user, scope, role).await?;
    done()
}

pub(crate) async fn unassign_role(request: InmantaRequest) -> ApiResult {
    let (scope, role) = assignment(&request)?;
    let account = accounts::find(&request.app, request.path_text("username")).await?.uuid;
    let account = account.uuid();
    roles::revoke(&request.app, account, scope, role.to_string()).await?;
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
    request.caller.need_account()?;
    let role = token_role(client_types)?.role().to_string();
    let expires = match expires {
        None => None,
        Some(seconds) => {
            let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            let seconds =
                seconds.ok_or_else(|| bad_request("Field 'expire' must be a positive number."))?;
            Some(request.app.now() + Duration::from_secs(seconds))
        }
    };
    let draft = TokenDraft {
        name: format!("classic: {}", client_types.join(", ")),
        scope: RoleScope::Environment(request.environment()?.uuid),
        grants: TokenGrants { role, verbs: None, groups: None },
        expires,
    };
    let (secret, _) = tokens::create(&request.app, &request.caller, draft).await?;
    Ok(secret)
}

fn client_types(request: &InmantaRequest) -> Result<Vec<String>, ServerError> {
    request.texts("client_types")?.ok_or_else(|| bad_request("Field 'client_types' is required."))
}

pub(crate) async fn create_token(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["client_types", "idempotent", "expire"])?;
    let (idempotent, expires) =
        (request.flag("idempotent")?.unwrap_or(true), request.number("expire")?);
    if idempotent && expires.is_some() {
        return Err(bad_request("An idempotent token cannot expire."));
    }
    let secret = create_environment_token(&request, &client_types(&request)?, expires).await?;
    data(json!(secret.expose()))
}

pub(crate) async fn create_token_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["client_types", "idempotent"])?;
    request.flag("idempotent")?;
    let secret = create_environment_token(&request, &client_types(&request)?, None).await?;
    plain(json!({"token": secret.expose()}))
}

pub(crate) async fn tokens(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    // Each page is filtered by rights. Tokens of others are not read for callers without
    // administration rights.
    let environment = request.environment()?.clone();
    let caller = request.caller.clone();
    let all = caller.may_in_environment(Right::Administer, &environment);
    let whose = if all { None } else { Some(caller.need_account()?) };
    let is_visible = move |token: &TokenRecord| tokens::may_see_in(&environment, &caller, token);
    let found = tokens::list(&request.app, whose, None, (AT_ONCE, usize::MAX), is_visible).await?;
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

pub(crate) async fn revoke_token(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let id = request.path_uuid("jti")?;
    let environment = request.environment()?;
    let is_visible = |token: &TokenRecord| tokens::may_see_in(environment, &request.caller, token);
    tokens::revoke(&request.app, id, is_visible).await?;
    done()
}
