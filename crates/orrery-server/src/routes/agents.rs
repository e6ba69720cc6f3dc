//! Agents: what they have to do, and pausing them.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use orrery_api::{Actions, Agent, Page, PlacementAnswer, PlacementRequest, Transitioning};
use orrery_model::{Inventory, Status};
use orrery_store::{AgentRecord, EnvironmentKey, EnvironmentRecord, ServedName, Store, StoreError};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::App;
use crate::auth::{Caller, Noted};
use crate::counts::Counted;
use crate::extract::{Body, InEnvironment, Path, Query, limit_of, page, place as page_place};
use crate::placement::{self, Declared};
use crate::problem::ServerError;

use super::{environments, offered, segment};

fn shown(
    (caller, environment): (&Caller, &EnvironmentRecord),
    record: AgentRecord,
    counted: &Counted,
    around: &Around,
) -> Agent {
    let served = around.served.get(&record.name);
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
    let actions = offered(caller, environment, actions);
    let own = counted.counts.iter().filter(|count| count.agent == record.name);
    let by_status: BTreeMap<String, u64> =
        own.clone().map(|count| (count.status.as_str().to_owned(), count.count)).collect();
    let is_reachable = served.is_none_or(|served| served.gateway.is_some());
    let placement = around.inventory.place(&record.name);
    // An agent is only a queue for resources that need no machine: it is as good as any.
    let lacks_machine = !placement.has_machine()
        && by_status.get(Status::Unavailable.as_str()).is_some_and(|count| *count > 0);
    let placement = placement::shown(&record.name, &placement);
    let status = match (record.paused, around.has_engine && is_reachable) {
        (true, _) => "paused",
        (false, _) if lacks_machine => "unavailable",
        (false, true) => "up",
        (false, false) => "down",
    };
    let runs = by_status.get(Status::Deploying.as_str()).is_some_and(|count| *count > 0);
    let (transitioning, message) = match status {
        "paused" if runs => (Transitioning::Yes, "finishing what runs before it pauses"),
        "unavailable" => (Transitioning::Error, &*placement.reason),
        "down" if !is_reachable => {
            (Transitioning::Error, "the remote agent that serves it is not connected")
        }
        _ => (Transitioning::No, ""),
    };
    let transitioning_message = message.to_owned();
    Agent {
        transitioning,
        transitioning_message,
        placement,
        status: status.to_owned(),
        remote_agent: served.map(|served| Uuid::from_bytes(served.agent)),
        paused: record.paused,
        unpause_on_resume: record.unpause_on_resume,
        resources: own
            .filter(|count| count.status != Status::Orphaned)
            .map(|count| count.count)
            .sum(),
        by_status,
        actions,
        name: record.name,
    }
}

/// What the status of agents depends on.
struct Around {
    has_engine: bool,
    served: BTreeMap<String, ServedName>,
    inventory: Inventory,
}

impl Around {
    fn read(
        store: &dyn Store,
        environment: EnvironmentKey,
        agents: &[&str],
    ) -> Result<Self, StoreError> {
        let served = store.records().served_names(environment)?;
        Ok(Around {
            has_engine: store.lease_holder(environment)?.is_some(),
            inventory: placement::read_inventory(store, environment, None, agents)?,
            served: served.into_iter().map(|one| (one.name.clone(), one)).collect(),
        })
    }
}

/// Which agents to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Agents by name.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/agents", tag = "agents", params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page of them", body = Page<Agent>)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<Agent>>, ServerError> {
    let limit = limit_of(filter.limit)?;
    let after: String = filter.after.as_deref().map(page_place).transpose()?.unwrap_or_default();
    let key = environment.key;
    let (found, around) = app
        .with_store(move |store| {
            let found = store.records().agents(key, &after, limit + 1)?;
            let names: Vec<&str> = found.iter().map(|agent| agent.name.as_str()).collect();
            let around = Around::read(store, key, &names)?;
            Ok((found, around))
        })
        .await?;
    let counted = app.counts().get(&app, key).await?;
    let (found, next) = page(found, limit, |agent| agent.name.clone());
    let of = (&caller, &environment);
    let items = found.into_iter().map(|record| shown(of, record, &counted, &around)).collect();
    Ok(Json(Page { items, next }))
}

async fn one(
    app: &App,
    caller: &Caller,
    environment: &EnvironmentRecord,
    name: String,
) -> Result<Json<Agent>, ServerError> {
    let key = environment.key;
    let (found, around) = app
        .with_store(move |store| {
            Ok((store.records().agent(key, &name)?, Around::read(store, key, &[&name])?))
        })
        .await?;
    let counted = app.counts().get(app, key).await?;
    Ok(Json(shown((caller, environment), found, &counted, &around)))
}

/// One agent.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/agents/{name}", tag = "agents",
    params(("environment" = Uuid, Path), ("name" = String, Path)),
    responses((status = 200, description = "The agent", body = Agent)))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, name)): Path<(Uuid, String)>,
) -> Result<Json<Agent>, ServerError> {
    one(&app, &caller, &environment, name).await
}

/// What can be done with agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AgentAction {
    /// Finish what runs, and begin nothing more.
    Pause,
    /// Go on.
    Unpause,
    /// Only while the environment is halted: stay paused when it resumes.
    KeepPausedOnResume,
    /// Only while the environment is halted: go on when it resumes.
    UnpauseOnResume,
}

async fn carry_out(
    app: &App,
    environment: &EnvironmentRecord,
    agent: Option<String>,
    action: AgentAction,
) -> Result<(), ServerError> {
    let (key, now) = (environment.key, app.now());
    app.change(move |store| {
        let (records, agent) = (store.records(), agent.as_deref());
        match action {
            AgentAction::Pause => records.pause_agent(key, agent, true, now),
            AgentAction::Unpause => records.pause_agent(key, agent, false, now),
            AgentAction::KeepPausedOnResume => records.set_on_resume(key, agent, false, now),
            AgentAction::UnpauseOnResume => records.set_on_resume(key, agent, true, now),
        }
    })
    .await
}

/// Pauses an agent or lets it go on, now or when a halt ends.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/agents/{name}/{action}", tag = "agents",
    params(("environment" = Uuid, Path), ("name" = String, Path), ("action" = AgentAction, Path)),
    responses((status = 200, description = "As it is now", body = Agent)))]
pub(super) async fn act(
    State(app): State<App>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, name, action)): Path<(Uuid, String, AgentAction)>,
) -> Result<Noted<Json<Agent>>, ServerError> {
    carry_out(&app, &environment, Some(name.clone()), action).await?;
    let detail = format!("agent {name}: {action:?}");
    Ok(Noted(detail, one(&app, &caller, &environment, name).await?))
}

/// Pauses all agents or lets them go on, now or when a halt ends.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/all-agents/{action}", tag = "agents",
    params(("environment" = Uuid, Path), ("action" = AgentAction, Path)),
    responses((status = 204, description = "Done")))]
pub(super) async fn act_all(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, action)): Path<(Uuid, AgentAction)>,
) -> Result<axum::http::StatusCode, ServerError> {
    carry_out(&app, &environment, None, action).await?;
    Ok(axum::http::StatusCode::NO_CONTENT)
}

/// Says where agents are, or would be if a version declared what the question says. Nothing is changed.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/placements", tag = "agents",
    params(("environment" = Uuid, Path)), request_body = PlacementRequest,
    responses((status = 200, description = "Where they are", body = PlacementAnswer)))]
pub(super) async fn place(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Body(question): Body<PlacementRequest>,
) -> Result<Json<PlacementAnswer>, ServerError> {
    let PlacementRequest { agents, local_agents, addresses } = question;
    let declared = Declared { addresses, patterns: local_agents };
    let key = environment.key;
    let inventory = app
        .with_store(move |store| placement::read_inventory(store, key, Some(declared), &[]))
        .await?;
    let shown = |agent: String| {
        let placement = placement::shown(&agent, &inventory.place(&agent));
        (agent, placement)
    };
    Ok(Json(PlacementAnswer { placements: agents.into_iter().map(shown).collect() }))
}
