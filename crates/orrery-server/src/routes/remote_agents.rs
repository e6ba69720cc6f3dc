//! Remote agents: inviting them, what they are, and revoking them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use orrery_api::{Actions, Invitation, NewInvitation, Page, Problem, RemoteAgent, Transitioning};
use orrery_model::{Duration, Timestamp};
use orrery_store::{EnvironmentRecord, RemoteAgentRecord, Store, StoreError};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::App;
use crate::auth::{Caller, hash_of};
use crate::extract::{Body, InEnvironment, Path, Query, limit_of, page, place};
use crate::gateway::{ALIVE_WITHIN, Authority, AuthorityError};
use crate::problem::ServerError;
use crate::vault::VaultError;

use super::{active, environments, offered, time};

const EXPIRES_IN: u32 = 60 * 60;
const EXPIRES_IN_MAX: u32 = 7 * 24 * 60 * 60;
const NAMES_MAX: usize = 1000;

fn shown(
    caller: &Caller,
    environment: &EnvironmentRecord,
    record: RemoteAgentRecord,
) -> RemoteAgent {
    let id = Uuid::from_bytes(record.uuid);
    let status = match (record.revoked, record.gateway) {
        (Some(_), _) => "revoked",
        (None, Some(_)) => "connected",
        (None, None) => "disconnected",
    };
    let (transitioning, message) = match status {
        "disconnected" if record.session == 0 => {
            (Transitioning::Yes, "it joined, and is waited for: orrery agent run")
        }
        "disconnected" => {
            (Transitioning::Error, "it is not connected: its agents cannot be reached")
        }
        _ => (Transitioning::No, ""),
    };
    let mut actions = Actions::new();
    // Who is revoked can still release its agents.
    if record.revoked.is_none() || !record.names.is_empty() {
        let path = environments::path_of(environment);
        actions.insert("revoke".to_owned(), format!("{path}/remote-agents/{id}/revoke"));
    }
    let actions = offered(caller, environment, actions);
    RemoteAgent {
        id,
        names: record.names,
        status: status.to_owned(),
        machine: record.facts,
        program_version: record.version,
        joined: time(record.joined),
        connected: record.connected.map(time),
        last_seen: record.seen.map(time),
        revoked: record.revoked.map(time),
        session: record.session,
        transitioning,
        transitioning_message: message.to_owned(),
        actions,
    }
}

/// Which remote agents to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Only the one that serves this agent, or served it before it was revoked.
    name: Option<String>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Remote agents, in the order in which they joined.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/remote-agents", tag = "remote agents", params(("environment" = Uuid, Path), Filter),
    responses((status = 200, body = Page<RemoteAgent>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<RemoteAgent>>, ServerError> {
    let limit = limit_of(filter.limit)?;
    let after: Option<(i64, Uuid)> = filter.after.as_deref().map(place).transpose()?;
    let after = after.map(|(joined, id)| (Timestamp(joined), id.into_bytes()));
    let key = environment.key;
    let found = app
        .with_store(move |store| match &filter.name {
            None => store.records().remote_agents(key, after, limit + 1),
            Some(name) => {
                let found = store.records().remote_agent_serving(key, name)?.into_iter();
                let place = |agent: &RemoteAgentRecord| (agent.joined, agent.uuid);
                Ok(found.filter(|agent| after.is_none_or(|after| place(agent) > after)).collect())
            }
        })
        .await?;
    let (found, next) = page(found, limit, |agent| (agent.joined.0, Uuid::from_bytes(agent.uuid)));
    let items = found.into_iter().map(|agent| shown(&caller, &environment, agent)).collect();
    Ok(Json(Page { items, next }))
}

/// The remote agent of an environment.
fn one(
    store: &dyn Store,
    caller: &Caller,
    environment: &EnvironmentRecord,
    id: Uuid,
) -> Result<RemoteAgent, StoreError> {
    let found = store.records().remote_agent(id.as_bytes())?;
    if found.environment != environment.key {
        return Err(StoreError::NotFound { kind: "remote agent", name: id.to_string() });
    }
    Ok(shown(caller, environment, found))
}

/// One remote agent.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/remote-agents/{id}", tag = "remote agents",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)),
    responses((status = 200, body = RemoteAgent), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
) -> Result<Json<RemoteAgent>, ServerError> {
    Ok(Json(app.with_store(move |store| one(store, &caller, &environment, id)).await?))
}

fn check(new: &NewInvitation) -> Result<(), ServerError> {
    if new.names.is_empty() || new.names.len() > NAMES_MAX {
        return Err(ServerError::field("names", format!("must be 1 to {NAMES_MAX} names")));
    }
    for name in &new.names {
        // As in ids of resources, where the name of an agent ends at a comma.
        let fits = |c: char| !c.is_control() && !",[]".contains(c);
        if !(1..=255).contains(&name.chars().count()) || !name.chars().all(fits) {
            let reason = format!("{name:?} cannot be the name of an agent");
            return Err(ServerError::field("names", reason));
        }
    }
    if new.expires_in.is_some_and(|seconds| !(1..=EXPIRES_IN_MAX).contains(&seconds)) {
        let reason = format!("must be 1 to {EXPIRES_IN_MAX} seconds");
        return Err(ServerError::field("expires_in", reason));
    }
    Ok(())
}

fn told(error: AuthorityError) -> ServerError {
    match error {
        AuthorityError::Vault(VaultError::Store(error)) => error.into(),
        other => {
            tracing::error!(error = &other as &dyn std::error::Error, "nobody can be invited");
            ServerError::Unavailable(other.to_string())
        }
    }
}

/// Makes an invitation for one machine to join. Its token is told this one time.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/remote-agents/invitations", tag = "remote agents", params(("environment" = Uuid, Path)), request_body = NewInvitation,
    responses((status = 201, body = Invitation), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn invite(
    State(app): State<App>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Body(mut new): Body<NewInvitation>,
) -> Result<(StatusCode, Json<Invitation>), ServerError> {
    // A machine that joined stays: that is for tokens that were made to enrol machines.
    caller.need_named_group("remote-agents")?;
    active(&environment)?;
    check(&new)?;
    new.names.sort();
    new.names.dedup();
    let now = app.now();
    let gateways = app.with_store(|store| store.records().gateways(ALIVE_WITHIN)).await?;
    let Some(gateway) = gateways.into_iter().next() else {
        let reason =
            "no gateway is running that an agent could join: start a server with --role gateway";
        return Err(ServerError::Unavailable(reason.to_owned()));
    };
    let vault = app.vault().clone();
    let opened = tokio::task::spawn_blocking(move || Authority::open_or_make(&vault, now)).await;
    let authority = opened.map_err(|_| ServerError::Stopping)?.map_err(told)?;
    let token = authority.token().map_err(|error| told(error.into()))?;
    let seconds = new.expires_in.unwrap_or(EXPIRES_IN);
    let mut expires = now + Duration::from_secs(seconds.into());
    if let Some(end) = caller.token().and_then(|token| token.expires) {
        expires = expires.min(end);
    }
    let kept = orrery_store::NewInvitation {
        uuid: Uuid::new_v4().into_bytes(),
        hash: hash_of(token.text().expose()),
        names: new.names.clone(),
        created: now,
        expires,
        token: caller.token().map(|token| token.id),
    };
    let key = environment.key;
    app.change(move |store| store.records().create_invitation(key, &kept)).await?;
    let made = Invitation {
        token: token.text().clone(),
        names: new.names,
        expires: time(expires),
        gateway: gateway.address,
    };
    Ok((StatusCode::CREATED, Json(made)))
}

#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Revoking {
    /// The machine that runs the server's handlers serves its agents from now on; else they wait for another remote agent.
    release: Option<bool>,
}

/// Revokes a remote agent: its session ends at once, and its certificate is refused from now on.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/remote-agents/{id}/revoke", tag = "remote agents",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path), Revoking),
    responses((status = 200, description = "Revoked", body = RemoteAgent), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
    Query(Revoking { release }): Query<Revoking>,
) -> Result<Json<RemoteAgent>, ServerError> {
    let now = app.now();
    let release = release.unwrap_or(false).then(|| Uuid::new_v4().into_bytes());
    let revoked = app
        .change(move |store| {
            store.records().revoke_remote_agent(environment.key, id.as_bytes(), release, now)?;
            one(store, &caller, &environment, id)
        })
        .await?;
    Ok(Json(revoked))
}

/// The same as `revoke`, without an answer. What was revoked is kept for 30 days, or as long as its agents wait for another one.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/remote-agents/{id}", tag = "remote agents",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path), Revoking),
    responses((status = 204, description = "Revoked"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    app: State<App>,
    caller: Caller,
    environment: InEnvironment,
    path: Path<(Uuid, Uuid)>,
    how: Query<Revoking>,
) -> Result<StatusCode, ServerError> {
    revoke(app, caller, environment, path, how).await.map(|_| StatusCode::NO_CONTENT)
}
