//! Remote agents: invitations, state and revocation.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use orrery_api::{
    Actions, Invitation, NewInvitation, OfferedResourceType, Page, PendingInvitation, Problem,
    RemoteAgent, RemoteAgentStatus, Transitioning,
};
use orrery_model::{OfferedType, Timestamp};
use orrery_store::{EnvironmentRecord, RemoteAgentRecord};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::remote_agents;
use crate::auth::Caller;
use crate::error::ServerError;
use crate::extract::{Body, InEnvironment, Path, Query, page_limit, parse_cursor, take_page};
use crate::state::ServerState;

use super::{environments, permitted_actions, time};

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
        types: record.offered.into_iter().map(resource_type_view).collect(),
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

fn resource_type_view(offered: OfferedType) -> OfferedResourceType {
    let OfferedType { entity, agent, id_attribute, attributes } = offered;
    OfferedResourceType { entity, agent, id_attribute, attributes }
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
    let found = app
        .with_store(move |store| {
            let found = remote_agents::find(store, &environment, id)?;
            Ok(remote_agent_view(&caller, &environment, found))
        })
        .await?;
    Ok(Json(found))
}

/// Creates an invitation for one machine. Its token is returned only once.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/remote-agents/invitations", tag = "remote agents", params(("environment" = Uuid, Path)), request_body = NewInvitation,
    responses((status = 201, body = Invitation), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn invite(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Body(new): Body<NewInvitation>,
) -> Result<(StatusCode, Json<Invitation>), ServerError> {
    let NewInvitation { names, expires_in } = new;
    let created = remote_agents::invite(&app, &caller, &environment, names, expires_in).await?;
    let made = Invitation {
        token: created.token,
        names: created.names,
        expires: time(created.expires),
        gateway: created.gateway,
        notes: created.notes,
    };
    Ok((StatusCode::CREATED, Json(made)))
}

/// Lists the invitations that no machine has used and that have not expired, oldest first, without
/// their tokens.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/remote-agents/invitations", tag = "remote agents", operation_id = "invitations",
    params(("environment" = Uuid, Path)),
    responses((status = 200, description = "All of them", body = Page<PendingInvitation>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn invitations(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<Page<PendingInvitation>>, ServerError> {
    let (key, now) = (environment.key, app.now());
    let found = app.with_store(move |store| store.invitations().open(key, now)).await?;
    let items = found.into_iter().map(|open| PendingInvitation {
        id: open.uuid.uuid(),
        names: open.names,
        created: time(open.created),
        expires: time(open.expires),
    });
    Ok(Json(Page { items: items.collect(), next: None }))
}

/// Withdraws an invitation: its token is refused from now on.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/remote-agents/invitations/{id}", tag = "remote agents", operation_id = "withdraw_invitation",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)),
    responses((status = 204, description = "Withdrawn"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn withdraw(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
) -> Result<StatusCode, ServerError> {
    remote_agents::withdraw_invitation(&app, environment.key, id).await?;
    Ok(StatusCode::NO_CONTENT)
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
    let release = release.unwrap_or(false);
    let revoked = remote_agents::revoke(&app, environment.clone(), id, release).await?;
    let revoked = remote_agent_view(&caller, &environment, revoked);
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
