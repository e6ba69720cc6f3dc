//! Agents: state, pausing and placement.

use axum::Json;
use axum::extract::State;
use orrery_api::{
    Actions, Agent, AgentConnection, AgentConnectionState, AgentStatus, Page, PlacementAnswer,
    PlacementRequest, Transitioning,
};
use orrery_store::{AgentRecord, EnvironmentRecord};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::agents::{self, AgentCondition, AgentContext, PauseChange};
use crate::auth::{Caller, WithAuditDetail};
use crate::count_cache::CachedCounts;
use crate::error::ServerError;
use crate::extract::{
    Body, InEnvironment, Path, Query, page_limit, parse_cursor as page_place, take_page,
};
use crate::placement;
use crate::state::ServerState;

use super::{environments, permitted_actions, segment, time};

fn connection_view(connection: agents::MachineConnection) -> AgentConnection {
    let agents::MachineConnection { state, latency, retry_at, last_seen, problem } = connection;
    AgentConnection {
        state,
        // Microseconds are exact in a number of milliseconds.
        latency_ms: latency.map(|latency| latency.as_micros() as f64 / 1000.0),
        retry_at: retry_at.map(time),
        last_seen: last_seen.map(time),
        problem,
    }
}

fn agent_view(
    (caller, environment): (&Caller, &EnvironmentRecord),
    record: AgentRecord,
    counted: &CachedCounts,
    around: &AgentContext,
) -> Agent {
    let path = format!("{}/agents/{}", environments::path_of(environment), segment(&record.name));
    let mut actions = Actions::new();
    let possible: &[&str] = match (environment.halted, record.paused) {
        (true, _) if record.unpause_on_resume == Some(true) => &["keep-paused-on-resume"],
        (true, _) => &["unpause-on-resume"],
        (false, true) => &["unpause"],
        (false, false) => &["pause"],
    };
    for name in possible {
        actions.insert((*name).to_owned(), format!("{path}/{name}"));
    }
    let actions = permitted_actions(caller, environment, actions);
    let mut condition = around.condition(&record, counted);
    let placement = placement::to_view(&record.name, &condition.placement);
    let (transitioning, transitioning_message) = match condition.status {
        AgentStatus::Paused if condition.is_deploying() => {
            (Transitioning::Yes, "finishing running handlers before the pause".to_owned())
        }
        AgentStatus::Unavailable => (Transitioning::Error, placement.reason.clone()),
        AgentStatus::Down if !condition.is_reachable => {
            (Transitioning::Error, unreachable_message(&condition))
        }
        _ => (Transitioning::No, String::new()),
    };
    let connection = condition.connection.take().map(connection_view);
    Agent {
        connection,
        transitioning,
        transitioning_message,
        placement,
        status: condition.status,
        remote_agent: condition.served.map(|served| served.agent.uuid()),
        paused: record.paused,
        unpause_on_resume: record.unpause_on_resume,
        resources: condition.resources(),
        by_status: condition.by_status,
        actions,
        name: record.name,
    }
}

/// Reason why the machine of an agent is not reached.
fn unreachable_message(condition: &AgentCondition<'_>) -> String {
    let connection = condition.connection.as_ref();
    match connection.map(|connection| (connection.state, &connection.problem)) {
        Some((AgentConnectionState::Unresponsive, _)) => {
            "its machine does not answer over SSH".to_owned()
        }
        Some((_, Some(problem))) => format!("its machine is not reached over SSH: {problem}"),
        _ => "the remote agent that serves it is not connected".to_owned(),
    }
}

/// Filter of the list of agents.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists agents by name.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/agents", tag = "agents", params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page", body = Page<Agent>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<Agent>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let after: String = filter.after.as_deref().map(page_place).transpose()?.unwrap_or_default();
    let key = environment.key;
    let (found, around) = app
        .with_store(move |store| {
            let found = store.agents().list(key, &after, limit + 1)?;
            let names: Vec<&str> = found.iter().map(|agent| agent.name.as_str()).collect();
            let around = AgentContext::read(store, key, &names)?;
            Ok((found, around))
        })
        .await?;
    let counted = app.count_cache().get(&app, key).await?;
    let (found, next) = take_page(found, limit, |agent| agent.name.clone());
    let of = (&caller, &environment);
    let items = found.into_iter().map(|record| agent_view(of, record, &counted, &around)).collect();
    Ok(Json(Page { items, next }))
}

async fn read_agent(
    app: &ServerState,
    caller: &Caller,
    environment: &EnvironmentRecord,
    name: String,
) -> Result<Json<Agent>, ServerError> {
    let key = environment.key;
    let (found, around) = app
        .with_store(move |store| {
            Ok((store.agents().get(key, &name)?, AgentContext::read(store, key, &[&name])?))
        })
        .await?;
    let counted = app.count_cache().get(app, key).await?;
    Ok(Json(agent_view((caller, environment), found, &counted, &around)))
}

/// Returns an agent.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/agents/{name}", tag = "agents",
    params(("environment" = Uuid, Path), ("name" = String, Path)),
    responses((status = 200, description = "The agent", body = Agent)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, name)): Path<(Uuid, String)>,
) -> Result<Json<Agent>, ServerError> {
    read_agent(&app, &caller, &environment, name).await
}

/// Action on agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AgentAction {
    /// Finishes running handlers and starts no more.
    Pause,
    /// Resumes.
    Unpause,
    /// In a halted environment: stays paused when the environment resumes.
    KeepPausedOnResume,
    /// In a halted environment: resumes with the environment.
    UnpauseOnResume,
}

impl From<AgentAction> for PauseChange {
    fn from(action: AgentAction) -> Self {
        match action {
            AgentAction::Pause => PauseChange::Pause,
            AgentAction::Unpause => PauseChange::Unpause,
            AgentAction::KeepPausedOnResume => PauseChange::KeepPausedOnResume,
            AgentAction::UnpauseOnResume => PauseChange::UnpauseOnResume,
        }
    }
}

/// Pauses or resumes an agent, now or at the end of a halt.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/agents/{name}/{action}", tag = "agents", operation_id = "act",
    params(("environment" = Uuid, Path), ("name" = String, Path), ("action" = AgentAction, Path)),
    responses((status = 200, description = "Current state", body = Agent)))]
pub(super) async fn act_on_agent(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, name, action)): Path<(Uuid, String, AgentAction)>,
) -> Result<WithAuditDetail<Json<Agent>>, ServerError> {
    agents::change_pause(&app, environment.key, Some(name.clone()), action.into()).await?;
    let detail = format!("agent {name}: {action:?}");
    Ok(WithAuditDetail(detail, read_agent(&app, &caller, &environment, name).await?))
}

/// Pauses or resumes all agents, now or at the end of a halt.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/all-agents/{action}", tag = "agents",
    params(("environment" = Uuid, Path), ("action" = AgentAction, Path)),
    responses((status = 204, description = "Done")))]
pub(super) async fn act_all(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, action)): Path<(Uuid, AgentAction)>,
) -> Result<axum::http::StatusCode, ServerError> {
    agents::change_pause(&app, environment.key, None, action.into()).await?;
    Ok(axum::http::StatusCode::NO_CONTENT)
}

/// Returns the placements of agents, also under hypothetical declarations of a version. Changes
/// nothing.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/placements", tag = "agents", operation_id = "place",
    params(("environment" = Uuid, Path)), request_body = PlacementRequest,
    responses((status = 200, description = "The placements", body = PlacementAnswer)))]
pub(super) async fn resolve_placements(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Body(question): Body<PlacementRequest>,
) -> Result<Json<PlacementAnswer>, ServerError> {
    let agents = question.agents.clone();
    let inventory = agents::inventory_for(&app, &caller, environment.key, question).await?;
    let to_entry = |agent: String| {
        let placement = placement::to_view(&agent, &inventory.placement_of(&agent));
        (agent, placement)
    };
    Ok(Json(PlacementAnswer { placements: agents.into_iter().map(to_entry).collect() }))
}
