//! Remote agents: invitations, state and revocation.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use orrery_api::{
    Actions, Invitation, NewInvitation, Page, Problem, RemoteAgent, RemoteAgentStatus,
    Transitioning,
};
use orrery_gateway::{AuthorityError, CertificateAuthority, HEARTBEAT_MAX_AGE};
use orrery_model::{Duration, Timestamp};
use orrery_roles::token_hash::hash_of;
use orrery_store::{EnvironmentRecord, RemoteAgentRecord, Store, StoreError};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::environments::check_not_deleting;
use crate::auth::Caller;
use crate::error::ServerError;
use crate::extract::{Body, InEnvironment, Path, Query, page_limit, parse_cursor, take_page};
use crate::state::ServerState;
use crate::vault::VaultError;

use super::{environments, permitted_actions, time};

const EXPIRES_IN: u32 = 60 * 60;
const EXPIRES_IN_MAX: u32 = 7 * 24 * 60 * 60;
const NAMES_MAX: usize = 1000;

fn remote_agent_view(
    caller: &Caller,
    environment: &EnvironmentRecord,
    record: RemoteAgentRecord,
) -> RemoteAgent {
    let id = record.uuid.uuid();
    let status = match (record.revoked, record.gateway) {
        (Some(_), _) => RemoteAgentStatus::Revoked,
        (None, Some(_)) => RemoteAgentStatus::Connected,
        (None, None) => RemoteAgentStatus::Disconnected,
    };
    let (transitioning, message) = match status {
        RemoteAgentStatus::Disconnected if record.session == 0 => {
            (Transitioning::Yes, "joined, not connected yet: start it with orrery agent run")
        }
        RemoteAgentStatus::Disconnected => {
            (Transitioning::Error, "it is not connected: its agents cannot be reached")
        }
        _ => (Transitioning::No, ""),
    };
    let mut actions = Actions::new();
    // The agents of a revoked remote agent can still be released.
    if record.revoked.is_none() || !record.names.is_empty() {
        let path = environments::path_of(environment);
        actions.insert("revoke".to_owned(), format!("{path}/remote-agents/{id}/revoke"));
    }
    let actions = permitted_actions(caller, environment, actions);
    RemoteAgent {
        id,
        names: record.names,
        status,
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

/// Filter of the list of remote agents.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Agent that it serves, or served before it was revoked.
    name: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists remote agents by the time of joining.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/remote-agents", tag = "remote agents", params(("environment" = Uuid, Path), Filter),
    responses((status = 200, body = Page<RemoteAgent>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<RemoteAgent>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let after: Option<(i64, Uuid)> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let after = after.map(|(joined, id)| (Timestamp(joined), id.into()));
    let key = environment.key;
    let found = app
        .with_store(move |store| match &filter.name {
            None => store.remote_agents().list(key, after, limit + 1),
            Some(name) => {
                let found = store.remote_agents().serving(key, name)?.into_iter();
                let place = |agent: &RemoteAgentRecord| (agent.joined, agent.uuid);
                Ok(found.filter(|agent| after.is_none_or(|after| place(agent) > after)).collect())
            }
        })
        .await?;
    let (found, next) = take_page(found, limit, |agent| (agent.joined.0, agent.uuid.uuid()));
    let items =
        found.into_iter().map(|agent| remote_agent_view(&caller, &environment, agent)).collect();
    Ok(Json(Page { items, next }))
}

/// Finds a remote agent of an environment.
fn find_remote_agent(
    store: &Store,
    caller: &Caller,
    environment: &EnvironmentRecord,
    id: Uuid,
) -> Result<RemoteAgent, StoreError> {
    let found = store.remote_agents().get(id.into())?;
    if found.environment != environment.key {
        return Err(StoreError::NotFound { kind: "remote agent", name: id.to_string() });
    }
    Ok(remote_agent_view(caller, environment, found))
}

/// Returns a remote agent.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/remote-agents/{id}", tag = "remote agents",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)),
    responses((status = 200, body = RemoteAgent), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
) -> Result<Json<RemoteAgent>, ServerError> {
    Ok(Json(
        app.with_store(move |store| find_remote_agent(store, &caller, &environment, id)).await?,
    ))
}

fn check(new: &NewInvitation) -> Result<(), ServerError> {
    if new.names.is_empty() || new.names.len() > NAMES_MAX {
        return Err(ServerError::field("names", format!("must be 1 to {NAMES_MAX} names")));
    }
    for name in &new.names {
        // As in resource ids, where the name of an agent ends at a comma.
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

fn invitation_error(error: AuthorityError) -> ServerError {
    match error {
        AuthorityError::Vault(VaultError::Store(error)) => error.into(),
        other => {
            tracing::error!(
                error = &other as &dyn std::error::Error,
                "cannot create an invitation"
            );
            ServerError::Unavailable(other.to_string())
        }
    }
}

/// Creates an invitation for one machine. Its token is returned only once.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/remote-agents/invitations", tag = "remote agents", params(("environment" = Uuid, Path)), request_body = NewInvitation,
    responses((status = 201, body = Invitation), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn invite(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Body(mut new): Body<NewInvitation>,
) -> Result<(StatusCode, Json<Invitation>), ServerError> {
    // A machine outlives the token that invited it: this needs a token created for the group.
    caller.need_named_group("remote-agents")?;
    check_not_deleting(&environment)?;
    check(&new)?;
    new.names.sort();
    new.names.dedup();
    let now = app.now();
    let gateways = app.with_store(|store| store.gateways().list(HEARTBEAT_MAX_AGE)).await?;
    let Some(gateway) = gateways.into_iter().next() else {
        let reason = "no gateway is running: start a server with --role gateway";
        return Err(ServerError::Unavailable(reason.to_owned()));
    };
    let vault = app.vault().clone();
    let opened =
        tokio::task::spawn_blocking(move || CertificateAuthority::open_or_create(&vault, now))
            .await;
    let authority = opened.map_err(|_| ServerError::Stopping)?.map_err(invitation_error)?;
    let token = authority.token().map_err(|error| invitation_error(error.into()))?;
    let seconds = new.expires_in.unwrap_or(EXPIRES_IN);
    let mut expires = now + Duration::from_secs(seconds.into());
    if let Some(end) = caller.token().and_then(|token| token.expires) {
        expires = expires.min(end);
    }
    let kept = orrery_store::NewInvitationRecord {
        uuid: Uuid::new_v4().into(),
        hash: hash_of(token.text().expose()),
        names: new.names.clone(),
        created: now,
        expires,
        token: caller.token().map(|token| token.id),
    };
    let key = environment.key;
    app.change(move |store| store.invitations().create(key, &kept)).await?;
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
pub(super) struct RevokeParameters {
    /// Moves its agents to the machine that runs the server's handlers; otherwise they wait for
    /// another remote agent.
    release: Option<bool>,
}

/// Revokes a remote agent: ends its session at once and refuses its certificate.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/remote-agents/{id}/revoke", tag = "remote agents",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path), RevokeParameters),
    responses((status = 200, description = "Revoked", body = RemoteAgent), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn revoke(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
    Query(RevokeParameters { release }): Query<RevokeParameters>,
) -> Result<Json<RemoteAgent>, ServerError> {
    let now = app.now();
    let release = release.unwrap_or(false).then(|| Uuid::new_v4().into());
    let revoked = app
        .change(move |store| {
            store.remote_agents().revoke(environment.key, id.into(), release, now)?;
            find_remote_agent(store, &caller, &environment, id)
        })
        .await?;
    Ok(Json(revoked))
}

/// Revokes a remote agent, without a response body. Its record is kept for 30 days, or as long as
/// its agents wait for another one.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/remote-agents/{id}", tag = "remote agents",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path), RevokeParameters),
    responses((status = 204, description = "Revoked"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    app: State<ServerState>,
    caller: Caller,
    environment: InEnvironment,
    path: Path<(Uuid, Uuid)>,
    how: Query<RevokeParameters>,
) -> Result<StatusCode, ServerError> {
    revoke(app, caller, environment, path, how).await.map(|_| StatusCode::NO_CONTENT)
}
