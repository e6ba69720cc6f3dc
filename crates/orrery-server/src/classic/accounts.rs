//! Logging in, users, roles and tokens.

use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse as _;
use orrery_api::PasswordChange;
use orrery_model::{Duration, SecretText};
use orrery_store::{
    AccountRecord, EnvironmentRecord, NewAccount, RoleRecord, RoleScope, StoreError, TokenRecord,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::answer::{Answer, data, done, maybe_time, plain, time};
use super::call::{Call, bad};
use crate::access::{ClientAddress, ClientGone, Right};
use crate::app::App;
use crate::auth::{
    AuditNote, Caller, How, Minted, SESSION_LENGTH, TokenGrants, check_password, normalized,
    role_right,
};
use crate::extract::{has_nul, read_bytes};
use crate::problem::ServerError;
use crate::routes::sessions::enter;
use crate::routes::users::{change_password, check_name};

const AT_ONCE: usize = 1_000;

/// A call, and where it comes from.
pub(super) struct Addressed(Call, String);

impl FromRequest<App> for Addressed {
    type Rejection = ServerError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ServerError> {
        let address = request.extensions().get::<ClientAddress>().map(|known| known.0.clone());
        let call = Call::from_request(request, app).await?;
        Ok(Addressed(call, address.unwrap_or_default()))
    }
}

fn shown(account: &AccountRecord) -> Value {
    json!({
        "username": account.name,
        "auth_method": if account.issuer.is_some() { "oidc" } else { "database" },
        "is_admin": account.admin,
    })
}

/// The answer that hands out a session; the token is in a header too.
fn session(secret: &SecretText, user: Value) -> Answer {
    let expires_in = SESSION_LENGTH.as_secs();
    let content = json!({"token": secret.expose(), "user": user, "expires_in": expires_in});
    let mut response = data(content)?;
    if let Ok(value) = HeaderValue::from_str(&format!("Bearer {}", secret.expose())) {
        response.headers_mut().insert(header::AUTHORIZATION, value);
    }
    Ok(response)
}

/// What a stranger sends: nothing but these fields is kept in memory.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    username: Option<String>,
    password: Option<SecretText>,
}

pub(super) async fn login(
    State(app): State<App>,
    Extension(ClientAddress(address)): Extension<ClientAddress>,
    Extension(ClientGone(gone)): Extension<ClientGone>,
    request: Request,
) -> Answer {
    let bytes = read_bytes(request, &app).await?;
    if has_nul(&bytes) {
        return Err(bad("no text may have a NUL character in it"));
    }
    let login: Login = serde_json::from_slice(&bytes)
        .map_err(|error| bad(format!("the body is no such JSON object: {error}")))?;
    let needed = |name: &str| bad(format!("Field '{name}' is required."));
    let name = login.username.ok_or_else(|| needed("username"))?;
    let password = login.password.ok_or_else(|| needed("password"))?;
    let (identity, Minted { secret, .. }, _) =
        enter(&app, &address, &gone, &name, &password).await?;
    let response = session(&secret, shown(&identity.account))?;
    let actor = Some(format!("user:{}", identity.account.name));
    let note = Extension(AuditNote { actor, ..AuditNote::default() });
    Ok((note, response).into_response())
}

pub(super) async fn renew(call: Call) -> Answer {
    call.only(&[])?;
    let How::Session { hash: old, .. } = call.caller.how else {
        return Err(bad("only a session of this server can be renewed"));
    };
    let account = call.caller.need_account()?;
    let Minted { secret, hash } = Minted::session()?;
    let now = call.app.now();
    let expires = now + SESSION_LENGTH;
    let found = call
        .app
        .change(move |store| {
            store.records().renew_session(&old, &hash, expires, now)?;
            store.records().account(account.as_bytes())
        })
        .await?;
    session(&secret, shown(&found))
}

pub(super) async fn current_user(call: Call) -> Answer {
    call.only(&[])?;
    // A token is for a program.
    let name = match call.caller.how {
        How::Nothing | How::Token => None,
        How::Session { .. } | How::Issuer => call.caller.name.split_once(':').map(|(_, name)| name),
    };
    let name = name.ok_or_else(|| ServerError::NotFound {
        kind: "current user",
        name: "behind this token".to_owned(),
    })?;
    data(json!({ "username": name }))
}

/// Roles by environment, as far as they are for one environment.
fn by_environment(roles: &[RoleRecord], account: &[u8; 16]) -> Map<String, Value> {
    let mut found: std::collections::BTreeMap<String, Vec<&str>> = Default::default();
    for role in roles.iter().filter(|role| role.account == *account) {
        if let RoleScope::Environment(id) = role.scope {
            found.entry(Uuid::from_bytes(id).to_string()).or_default().push(&role.role);
        }
    }
    found.into_iter().map(|(id, roles)| (id, json!(roles))).collect()
}

pub(super) async fn users(call: Call) -> Answer {
    call.only(&[])?;
    let (accounts, roles) = call
        .app
        .with_store(|store| {
            let mut found: Vec<AccountRecord> = Vec::new();
            loop {
                let after = found.last().map(|last| last.name.clone()).unwrap_or_default();
                let part = store.records().accounts(&after, AT_ONCE)?;
                let is_last = part.len() < AT_ONCE;
                found.extend(part);
                if is_last {
                    return Ok((found, store.records().role_assignments(None)?));
                }
            }
        })
        .await?;
    let listed = accounts.iter().map(|account| {
        let mut shown = shown(account);
        shown["roles"] = Value::Object(by_environment(&roles, &account.uuid));
        shown
    });
    data(listed.collect())
}

pub(super) async fn add_user(call: Call) -> Answer {
    call.caller.need_person()?;
    call.only(&["username", "password"])?;
    let name = call.need_text("username")?.to_owned();
    check_name(&name)?;
    let password = normalized(&SecretText::new(call.need_text("password")?));
    check_password("password", &password)?;
    let hash = call.app.auth().passwords.hash(&call.caller.name, password).await?;
    let (id, now) = (Uuid::new_v4().into_bytes(), call.app.now());
    let made = call
        .app
        .change(move |store| {
            let new = NewAccount {
                uuid: id,
                name: &name,
                password: Some(&hash),
                issuer: None,
                admin: false,
            };
            store.records().create_account(&new, now)
        })
        .await?;
    data(shown(&made))
}

/// The account that a name stands for.
async fn named(call: &Call, name: &str) -> Result<AccountRecord, ServerError> {
    let wanted = name.to_owned();
    let found = call.app.with_store(move |store| store.records().account_named(&wanted)).await?;
    found.ok_or_else(|| ServerError::NotFound { kind: "user", name: name.to_owned() })
}

pub(super) async fn delete_user(call: Call) -> Answer {
    call.only(&[])?;
    let account = named(&call, call.path_text("username")).await?.uuid;
    let now = call.app.now();
    call.app.change(move |store| store.records().delete_account(&account, None, now)).await?;
    done()
}

pub(super) async fn set_password(Addressed(call, address): Addressed) -> Answer {
    call.only(&["password", "current_password"])?;
    let name = call.path_text("username");
    // Others do not learn which names there are.
    let own = match call.caller.account {
        Some(id) => {
            let own =
                call.app.with_store(move |store| store.records().account(id.as_bytes())).await?;
            own.name == name
        }
        None => false,
    };
    if !own {
        call.caller.need_everywhere(Right::Administer)?;
    }
    let account = named(&call, name).await?;
    let change = PasswordChange {
        current: call.text("current_password")?.map(SecretText::new),
        password: SecretText::new(call.need_text("password")?),
    };
    let user = Uuid::from_bytes(account.uuid);
    change_password(&call.app, &call.caller, &address, user, &change).await?;
    done()
}

pub(super) async fn set_is_admin(call: Call) -> Answer {
    call.only(&["username", "is_admin"])?;
    let account = named(&call, call.need_text("username")?).await?.uuid;
    let admin = call.flag("is_admin")?.ok_or_else(|| bad("Field 'is_admin' is required."))?;
    if admin {
        call.caller.need_person()?;
    }
    let now = call.app.now();
    call.app
        .change(move |store| store.records().update_account(&account, None, Some(admin), None, now))
        .await?;
    done()
}

/// The roles that there are; they are fixed.
pub(super) async fn roles(call: Call) -> Answer {
    call.only(&[])?;
    data(Right::ALL.into_iter().map(|right| json!(right.role())).collect())
}

pub(super) async fn change_roles(call: Call) -> Answer {
    call.only(&["name"])?;
    let names: Vec<&str> = Right::ALL.into_iter().map(Right::role).collect();
    Err(bad(format!("the roles are {}; they are neither made nor deleted", names.join(", "))))
}

pub(super) async fn roles_of(call: Call) -> Answer {
    call.only(&[])?;
    let account = named(&call, call.path_text("username")).await?;
    let roles = call.app.with_store(|store| store.records().role_assignments(None)).await?;
    data(json!({"assignments": by_environment(&roles, &account.uuid)}))
}

/// Which role in which environment is meant.
fn assignment(call: &Call) -> Result<(RoleScope, String), ServerError> {
    call.only(&["environment", "role"])?;
    let environment =
        call.uuid("environment")?.ok_or_else(|| bad("Field 'environment' is required."))?;
    let role = call.need_text("role")?;
    if role_right(role).is_none() {
        return Err(bad(format!("there is no role {role:?}")));
    }
    Ok((RoleScope::Environment(environment.into_bytes()), role.to_owned()))
}

pub(super) async fn assign_role(call: Call) -> Answer {
    call.caller.need_person()?;
    let (scope, role) = assignment(&call)?;
    let account = named(&call, call.path_text("username")).await?.uuid;
    let now = call.app.now();
    call.app.change(move |store| store.records().assign_role(&account, scope, &role, now)).await?;
    done()
}

pub(super) async fn unassign_role(call: Call) -> Answer {
    let (scope, role) = assignment(&call)?;
    let account = named(&call, call.path_text("username")).await?.uuid;
    let now = call.app.now();
    call.app.change(move |store| store.records().revoke_role(&account, scope, &role, now)).await?;
    done()
}

/// The most that the holder of a token may do, by what kind of program it is for.
fn token_role(client_types: &[String]) -> Result<Right, ServerError> {
    let mut most = None;
    for kind in client_types {
        let right = match kind.as_str() {
            "api" => Right::Administer,
            "compiler" | "agent" => Right::Develop,
            other => {
                return Err(bad(format!(
                    "client_types: {other:?} is none of api, agent, compiler"
                )));
            }
        };
        most = most.max(Some(right));
    }
    most.ok_or_else(|| bad("Field 'client_types' must name at least one."))
}

/// Makes a token for one environment. It never allows more than its maker may do.
async fn mint(
    call: &Call,
    client_types: &[String],
    expires: Option<i64>,
) -> Result<SecretText, ServerError> {
    call.caller.need_person()?;
    let account = call.caller.need_account()?;
    let role = token_role(client_types)?.role().to_owned();
    let grants = TokenGrants { role, verbs: None, groups: None };
    let grants = serde_json::to_value(grants)
        .map_err(|error| ServerError::Internal(format!("the limits of a token: {error}")))?;
    let now = call.app.now();
    let expires = match expires {
        None => None,
        Some(seconds) => {
            let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            let seconds =
                seconds.ok_or_else(|| bad("Field 'expire' must be a positive number."))?;
            Some(now + Duration::from_secs(seconds))
        }
    };
    let token = TokenRecord {
        uuid: Uuid::new_v4().into_bytes(),
        name: format!("classic: {}", client_types.join(", ")),
        account: account.into_bytes(),
        scope: RoleScope::Environment(call.environment()?.uuid),
        grants,
        created: now,
        expires,
        revoked: None,
        last_used: None,
    };
    let Minted { secret, hash } = Minted::token()?;
    call.app.change(move |store| store.records().create_token(&hash, &token)).await?;
    Ok(secret)
}

fn client_types(call: &Call) -> Result<Vec<String>, ServerError> {
    call.texts("client_types")?.ok_or_else(|| bad("Field 'client_types' is required."))
}

pub(super) async fn create_token(call: Call) -> Answer {
    call.only(&["client_types", "idempotent", "expire"])?;
    let (idempotent, expires) = (call.flag("idempotent")?.unwrap_or(true), call.number("expire")?);
    if idempotent && expires.is_some() {
        return Err(bad("An idempotent token cannot expire."));
    }
    let secret = mint(&call, &client_types(&call)?, expires).await?;
    data(json!(secret.expose()))
}

pub(super) async fn create_token_v1(call: Call) -> Answer {
    call.only(&["client_types", "idempotent"])?;
    call.flag("idempotent")?;
    let secret = mint(&call, &client_types(&call)?, None).await?;
    plain(json!({"token": secret.expose()}))
}

/// Whether the caller may see and revoke a token: an administrator of the environment all, others their own.
fn may_see(environment: &EnvironmentRecord, caller: &Caller, token: &TokenRecord) -> bool {
    let is_own = caller.account.is_some_and(|id| id.as_bytes() == &token.account);
    let is_here = token.scope == RoleScope::Environment(environment.uuid);
    is_here
        && caller.covers_token(token)
        && (is_own || caller.may_in_environment(Right::Administer, environment))
}

pub(super) async fn tokens(call: Call) -> Answer {
    call.only(&[])?;
    // Only what the caller may see is kept of each page; those of others are not even read for who administers nothing here.
    let environment = call.environment()?.clone();
    let caller = call.caller.clone();
    let all = caller.may_in_environment(Right::Administer, &environment);
    let whose = if all { None } else { Some(caller.need_account()?) };
    let found = call
        .app
        .with_store(move |store| {
            let whose = whose.as_ref().map(Uuid::as_bytes);
            let (mut found, mut before) = (Vec::new(), None);
            loop {
                let part = store.records().tokens(whose, before, AT_ONCE)?;
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
            "jti": Uuid::from_bytes(token.uuid),
            "created_by": null,
            "client_types": kinds,
            "environment": Uuid::from_bytes(call.environment()?.uuid),
            "issued_at": time(token.created),
            "expires_at": maybe_time(token.expires),
            "revoked_at": maybe_time(token.revoked),
            "last_used": maybe_time(token.last_used),
        }));
    }
    data(Value::Array(listed))
}

pub(super) async fn revoke_token(call: Call) -> Answer {
    call.only(&[])?;
    let id = call.path_uuid("jti")?;
    let unknown = || ServerError::NotFound { kind: "token", name: id.to_string() };
    let found = call.app.with_store(move |store| store.records().token(id.as_bytes())).await;
    let found = match found {
        Err(ServerError::Store(StoreError::NotFound { .. })) => return Err(unknown()),
        found => found?,
    };
    if !may_see(call.environment()?, &call.caller, &found) {
        return Err(unknown());
    }
    let now = call.app.now();
    call.app.change(move |store| store.records().revoke_token(id.as_bytes(), now)).await?;
    done()
}
