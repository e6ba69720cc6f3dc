//! Agents: lists, pausing, and the state of the scheduler.

use std::collections::BTreeSet;

use orrery_model::{AttributeHash, EnvironmentId, ResourceId, Status};
use orrery_server::ServerError;
use orrery_server::app::agents::{self, PauseChange};
use orrery_store::{AgentRecord, EnvironmentKey, ResourceQuery, Store, StoreError};
use serde_json::{Map, Value, json};

use crate::paging::{Form, Key, ListDefinition, ListItem, ListRequest};
use crate::request::{InmantaRequest, bad_request};
use crate::resources::{all_lines, derived_uuid, newest_released};
use crate::response::{ApiResult, data, done, maybe_time, plain, time};

/// Agent that represents the engine in Inmanta.
const ENGINE: &str = "$__scheduler";
const AT_ONCE: usize = 1_000;

/// The agents of an environment, and what their status depends on.
struct AgentList {
    agents: Vec<AgentRecord>,
    /// True if an engine works for the environment.
    has_engine: bool,
    /// Agents whose machines are not reached.
    unreachable: BTreeSet<String>,
}

impl AgentList {
    fn status(&self, agent: &AgentRecord) -> &'static str {
        let is_up = self.has_engine && !self.unreachable.contains(&agent.name);
        match (agent.paused, is_up) {
            (true, _) => "paused",
            (false, true) => "up",
            (false, false) => "down",
        }
    }

    fn to_json(&self, environment: EnvironmentId, agent: &AgentRecord) -> Value {
        json!({
            "environment": environment.uuid().to_string(),
            "name": agent.name,
            "paused": agent.paused,
            "process_id": null,
            "process_name": null,
            "unpause_on_resume": agent.unpause_on_resume,
            "status": self.status(agent),
        })
    }
}

fn read(store: &Store, key: EnvironmentKey) -> Result<AgentList, StoreError> {
    let unreachable = agents::unreachable_agents(store, key)?;
    let mut found: Vec<AgentRecord> = Vec::new();
    loop {
        let after = found.last().map(|agent| agent.name.clone()).unwrap_or_default();
        let part = store.agents().list(key, &after, AT_ONCE)?;
        let is_last = part.len() < AT_ONCE;
        found.extend(part);
        if is_last {
            let has_engine = store.leases().holder(key)?.is_some();
            return Ok(AgentList { agents: found, has_engine, unreachable });
        }
    }
}

const AGENTS: ListDefinition = ListDefinition {
    columns: &[
        ("name", Form::Text),
        ("process_name", Form::Text),
        ("status", Form::Text),
        ("paused", Form::Flag),
    ],
    descending: false,
    filters: &["name", "process_name", "status"],
    with_ids: true,
    others: &[],
};

pub(crate) async fn list(request: InmantaRequest) -> ApiResult {
    let wanted = ListRequest::parse(&request, &AGENTS)?;
    let environment = request.environment()?.uuid;
    let all = request.with_store(read).await?;
    let fits = |agent: &&AgentRecord| {
        wanted.contains("name", &agent.name)
            && wanted.matches("status", all.status(agent))
            // Agents are not processes in Orrery.
            && wanted.filter("process_name").is_none()
    };
    let items = all.agents.iter().filter(fits).map(|agent| {
        let key = match wanted.column {
            "status" => Key::Text(all.status(agent).to_owned()),
            "paused" => Key::Flag(agent.paused),
            "process_name" => Key::Nothing,
            _ => Key::Text(agent.name.clone()),
        };
        ListItem { key, id: agent.name.clone(), shown: all.to_json(environment, agent) }
    });
    wanted.page(items.collect())
}

pub(crate) async fn list_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["start", "end", "limit"])?;
    let (start, end) = (request.text("start")?, request.text("end")?);
    if start.is_some() && end.is_some() {
        return Err(bad_request(
            "Only one of start and end parameters is allowed at the same time.",
        ));
    }
    let limit = request.number("limit")?.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(1000).min(1000);
    let environment = request.environment()?.uuid;
    let all = request.with_store(read).await?;
    let fits = |agent: &&AgentRecord| {
        start.is_none_or(|start| agent.name.as_str() > start)
            && end.is_none_or(|end| agent.name.as_str() < end)
    };
    let listed: Vec<Value> = all
        .agents
        .iter()
        .filter(fits)
        .take(limit)
        .map(|agent| {
            let mut shown = all.to_json(environment, agent);
            shown["state"] = shown["status"].clone();
            shown
        })
        .collect();
    plain(json!({"agents": listed, "servertime": time(request.app.now())}))
}

/// Lists the processes that work for an environment: the lease holder.
pub(crate) async fn processes(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["environment", "expired", "start", "end", "limit"])?;
    let only = request.uuid("environment")?;
    let caller = request.caller.clone();
    let found = request
        .app
        .with_store(move |store| {
            let mut found = Vec::new();
            for environment in store.environments().list(None)? {
                let is_wanted = only.is_none_or(|only| only == environment.uuid.uuid());
                if !is_wanted
                    || !caller.may_in_environment(orrery_server::Right::View, &environment)
                {
                    continue;
                }
                if let Some(holder) = store.leases().holder(environment.key)? {
                    found.push((environment.uuid, holder));
                }
            }
            Ok(found)
        })
        .await?;
    let shown: Vec<Value> = found
        .iter()
        .map(|(environment, holder)| {
            let session = derived_uuid(*environment, "process", &holder.to_string());
            json!({
                "id": session,
                "sid": session,
                "hostname": holder.host,
                "environment": environment.uuid().to_string(),
                "first_seen": time(holder.since),
                "expired": null,
                "endpoints": [],
            })
        })
        .collect();
    plain(json!({ "processes": shown }))
}

/// Applies an action to an agent, or to all.
async fn apply_action(
    request: &InmantaRequest,
    agent: Option<String>,
    action: &str,
) -> Result<(), ServerError> {
    if agent.as_deref() == Some(ENGINE) {
        return Err(bad_request(format!(
            "Particular action cannot be directed towards the {ENGINE} agent."
        )));
    }
    let is_halted = request.environment()?.halted;
    let change = match action {
        "pause" => PauseChange::Pause,
        "unpause" => PauseChange::Unpause,
        "keep_paused_on_resume" => PauseChange::KeepPausedOnResume,
        "unpause_on_resume" => PauseChange::UnpauseOnResume,
        other => {
            return Err(bad_request(format!(
                "{other:?} is none of pause, unpause, keep_paused_on_resume, unpause_on_resume"
            )));
        }
    };
    let is_for_now = matches!(change, PauseChange::Pause | PauseChange::Unpause);
    if is_for_now && is_halted {
        let text = "pause or unpause agents while the environment is halted";
        return Err(ServerError::Forbidden(text.to_owned()));
    }
    if !is_for_now && !is_halted {
        let text = "say what agents do on resume while the environment is not halted";
        return Err(ServerError::Forbidden(text.to_owned()));
    }
    let key = request.environment()?.key;
    agents::change_pause(&request.app, key, agent, change).await
}

pub(crate) async fn act_on_one(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let (name, action) = (request.path_text("name").to_owned(), request.path_text("action"));
    apply_action(&request, Some(name), action).await?;
    done()
}

pub(crate) async fn act_on_all(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    match request.path_text("action") {
        // Virtualenvs are stored by content, shared by all, and removed when they are unused.
        "remove_all_agent_venvs" => {
            let text = "virtual environments belong to no agent here; those that nobody uses are removed by themselves";
            Err(bad_request(text))
        }
        action => {
            apply_action(&request, None, action).await?;
            done()
        }
    }
}

/// Compares the stored resource states with the processed version.
pub(crate) async fn scheduler_status(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let environment = request.environment()?;
    if environment.halted {
        let text = format!(
            "No scheduler is running for environment {}, because the environment is halted.",
            environment.name
        );
        return Err(ServerError::Conflict(text));
    }
    let report = request
        .with_store(|store, key| {
            let Some(released) = newest_released(store, key)? else { return Ok(None) };
            if store.leases().holder(key)?.is_none() {
                return Ok(None);
            }
            let mut wanted: Map<String, Value> = Map::new();
            let mut hashes: std::collections::BTreeMap<String, AttributeHash> = Default::default();
            store.versions().read(key, released.number, &mut |row| {
                let attributes: Value = serde_json::from_str(row.attributes).unwrap_or_default();
                let id = row.id.parse::<ResourceId>().map(|id| {
                    json!({
                        "entity_type": id.entity(), "agent_name": id.agent(),
                        "attribute": id.attribute(), "attribute_value": id.value(), "version": 0,
                    })
                });
                let shown = json!({
                    "resource_id": row.id,
                    "attribute_hash": row.hash.to_string(),
                    "attributes": attributes,
                    "id": id.unwrap_or_default(),
                });
                wanted.insert(row.id.to_owned(), shown);
                hashes.insert(row.id.to_owned(), row.hash);
            })?;
            let query =
                ResourceQuery { statuses: Status::ALL.to_vec(), ..ResourceQuery::default() };
            let (mut states, mut statuses, mut differing) = (Map::new(), Map::new(), Map::new());
            let is_taken_in = store.engine().processed_version(key)? == Some(released.number);
            for line in all_lines(store, key, &query)? {
                let (id, state) = (line.summary.id.to_string(), &line.summary.state);
                if line.summary.status == Status::Orphaned {
                    continue;
                }
                let expected = hashes.get(&id);
                if is_taken_in && state.intent.as_ref() != expected {
                    let text = |hash: Option<&AttributeHash>| {
                        hash.map_or_else(|| "none".to_owned(), ToString::to_string)
                    };
                    let found = json!([{
                        "rid": id, "field": "attribute_hash",
                        "expected": text(expected), "actual": text(state.intent.as_ref()),
                    }]);
                    differing.insert(id.clone(), found);
                }
                let shown = json!({
                    "compliance": state.compliance(),
                    "last_handler_run": state.last_run,
                    "blocked": state.blocked,
                    "last_deployed": maybe_time(state.last_run_at),
                    "last_handler_run_compliant": state.last_run_compliant,
                });
                states.insert(id.clone(), shown);
                statuses.insert(id, json!(line.summary.status.as_str()));
            }
            Ok(Some(json!({
                "scheduler_state": states,
                "db_state": wanted,
                "resource_states": statuses,
                "discrepancies": differing,
            })))
        })
        .await?;
    let missing =
        || ServerError::NotFound { kind: "scheduler", name: "for this environment".to_owned() };
    data(report.ok_or_else(missing)?)
}
