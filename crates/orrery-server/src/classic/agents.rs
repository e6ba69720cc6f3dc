//! Agents: lists, pausing, and what the engine of an environment knows.

use orrery_model::{AttributeHash, ResourceId, Status};
use orrery_store::{AgentRecord, EnvironmentKey, ResourceQuery, Store, StoreError};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::answer::{Answer, data, done, maybe_time, plain, time};
use super::call::{Call, bad};
use super::paging::{Form, Item, Key, Offer, Wanted};
use super::resources::{all_lines, derived_uuid, newest_released};
use crate::problem::ServerError;

/// The agent that stands for the engine itself in the classic model.
const ENGINE: &str = "$__scheduler";
const AT_ONCE: usize = 1_000;

/// All agents, and whether an engine works for the environment.
fn read(store: &dyn Store, key: EnvironmentKey) -> Result<(Vec<AgentRecord>, bool), StoreError> {
    let mut found: Vec<AgentRecord> = Vec::new();
    loop {
        let after = found.last().map(|agent| agent.name.clone()).unwrap_or_default();
        let part = store.records().agents(key, &after, AT_ONCE)?;
        let is_last = part.len() < AT_ONCE;
        found.extend(part);
        if is_last {
            return Ok((found, store.lease_holder(key)?.is_some()));
        }
    }
}

fn status(agent: &AgentRecord, has_engine: bool) -> &'static str {
    match (agent.paused, has_engine) {
        (true, _) => "paused",
        (false, true) => "up",
        (false, false) => "down",
    }
}

fn shown(environment: &[u8; 16], agent: &AgentRecord, has_engine: bool) -> Value {
    json!({
        "environment": Uuid::from_bytes(*environment).to_string(),
        "name": agent.name,
        "paused": agent.paused,
        "process_id": null,
        "process_name": null,
        "unpause_on_resume": agent.unpause_on_resume,
        "status": status(agent, has_engine),
    })
}

const AGENTS: Offer = Offer {
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

pub(super) async fn list(call: Call) -> Answer {
    let wanted = Wanted::read(&call, &AGENTS)?;
    let environment = call.environment()?.uuid;
    let (agents, has_engine) = call.look(read).await?;
    let fits = |agent: &&AgentRecord| {
        wanted.contains("name", &agent.name)
            && wanted.is_one("status", status(agent, has_engine))
            // Agents are not processes here.
            && wanted.filter("process_name").is_none()
    };
    let items = agents.iter().filter(fits).map(|agent| {
        let key = match wanted.column {
            "status" => Key::Text(status(agent, has_engine).to_owned()),
            "paused" => Key::Flag(agent.paused),
            "process_name" => Key::Nothing,
            _ => Key::Text(agent.name.clone()),
        };
        Item { key, id: agent.name.clone(), shown: shown(&environment, agent, has_engine) }
    });
    wanted.page(items.collect())
}

pub(super) async fn list_v1(call: Call) -> Answer {
    call.only(&["start", "end", "limit"])?;
    let (start, end) = (call.text("start")?, call.text("end")?);
    if start.is_some() && end.is_some() {
        return Err(bad("Only one of start and end parameters is allowed at the same time."));
    }
    let limit = call.number("limit")?.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(1000).min(1000);
    let environment = call.environment()?.uuid;
    let (agents, has_engine) = call.look(read).await?;
    let fits = |agent: &&AgentRecord| {
        start.is_none_or(|start| agent.name.as_str() > start)
            && end.is_none_or(|end| agent.name.as_str() < end)
    };
    let listed: Vec<Value> = agents
        .iter()
        .filter(fits)
        .take(limit)
        .map(|agent| {
            let mut shown = shown(&environment, agent, has_engine);
            shown["state"] = shown["status"].clone();
            shown
        })
        .collect();
    plain(json!({"agents": listed, "servertime": time(call.app.now())}))
}

/// The processes that work for an environment: here, whoever holds its lease.
pub(super) async fn processes(call: Call) -> Answer {
    call.only(&["environment", "expired", "start", "end", "limit"])?;
    let only = call.uuid("environment")?;
    let caller = call.caller.clone();
    let found = call
        .app
        .with_store(move |store| {
            let mut found = Vec::new();
            for environment in store.records().list_environments(None)? {
                let is_wanted = only.is_none_or(|only| only.as_bytes() == &environment.uuid);
                if !is_wanted
                    || !caller.may_in_environment(crate::access::Right::View, &environment)
                {
                    continue;
                }
                if let Some(holder) = store.lease_holder(environment.key)? {
                    found.push((environment.uuid, holder));
                }
            }
            Ok(found)
        })
        .await?;
    let shown: Vec<Value> = found
        .iter()
        .map(|(environment, holder)| {
            let session = derived_uuid(environment, "process", &holder.to_string());
            json!({
                "id": session,
                "sid": session,
                "hostname": holder.host,
                "environment": Uuid::from_bytes(*environment).to_string(),
                "first_seen": time(holder.since),
                "expired": null,
                "endpoints": [],
            })
        })
        .collect();
    plain(json!({ "processes": shown }))
}

/// What is to be done with an agent, or with all.
async fn act(call: &Call, agent: Option<String>, action: &str) -> Result<(), ServerError> {
    if agent.as_deref() == Some(ENGINE) {
        return Err(bad(format!(
            "Particular action cannot be directed towards the {ENGINE} agent."
        )));
    }
    let is_halted = call.environment()?.halted;
    let (paused, on_resume) = match action {
        "pause" => (Some(true), None),
        "unpause" => (Some(false), None),
        "keep_paused_on_resume" => (None, Some(false)),
        "unpause_on_resume" => (None, Some(true)),
        other => {
            return Err(bad(format!(
                "{other:?} is none of pause, unpause, keep_paused_on_resume, unpause_on_resume"
            )));
        }
    };
    if paused.is_some() && is_halted {
        let text = "pause or unpause agents while the environment is halted";
        return Err(ServerError::Forbidden(text.to_owned()));
    }
    if on_resume.is_some() && !is_halted {
        let text = "say what agents do on resume while the environment is not halted";
        return Err(ServerError::Forbidden(text.to_owned()));
    }
    call.change(move |store, key, now| {
        let (records, agent) = (store.records(), agent.as_deref());
        match (paused, on_resume) {
            (Some(paused), _) => records.pause_agent(key, agent, paused, now),
            (None, Some(unpause)) => records.set_on_resume(key, agent, unpause, now),
            (None, None) => Ok(()),
        }
    })
    .await
}

pub(super) async fn act_on_one(call: Call) -> Answer {
    call.only(&[])?;
    let (name, action) = (call.path_text("name").to_owned(), call.path_text("action"));
    act(&call, Some(name), action).await?;
    done()
}

pub(super) async fn act_on_all(call: Call) -> Answer {
    call.only(&[])?;
    match call.path_text("action") {
        // Environments of Python are kept by what they have, shared by all, and cleaned up when nobody used them for a while.
        "remove_all_agent_venvs" => {
            let text = "virtual environments belong to no agent here; those that nobody uses are removed by themselves";
            Err(bad(text))
        }
        action => {
            act(&call, None, action).await?;
            done()
        }
    }
}

/// Compares what is kept of resources with what the processed version wants of them.
pub(super) async fn scheduler_status(call: Call) -> Answer {
    call.only(&[])?;
    let environment = call.environment()?;
    if environment.halted {
        let text = format!(
            "No scheduler is running for environment {}, because the environment is halted.",
            environment.name
        );
        return Err(ServerError::Conflict(text));
    }
    let report = call
        .look(|store, key| {
            let Some(released) = newest_released(store, key)? else { return Ok(None) };
            if store.lease_holder(key)?.is_none() {
                return Ok(None);
            }
            let mut wanted: Map<String, Value> = Map::new();
            let mut hashes: std::collections::BTreeMap<String, AttributeHash> = Default::default();
            store.read_version(key, released.number, &mut |row| {
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
            let is_taken_in = store.processed_version(key)? == Some(released.number);
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
