//! Deploys, repairs and dry runs.

use axum::http::StatusCode;
use orrery_model::{EnvironmentId, ResourceState};
use orrery_server::ServerError;
use orrery_server::app;
use orrery_store::{
    DryRunRecord, DryRunResult, EnvironmentKey, RequestKind, ResourceLine, ResourceQuery, Store,
    StoreError,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::request::{InmantaRequest, bad_request};
use crate::resources::{all_lines, newest_released};
use crate::response::{ApiResult, LongText, data, long_response_permit, plain, time, with_status};

/// Maximum number of dry runs in a list.
const DRY_RUNS_MAX: usize = 1_000;
const RESULTS_AT_ONCE: usize = 10_000;

/// Parses `agent_trigger_method`: true for a full deploy, the default; false for an incremental one.
fn is_full(request: &InmantaRequest) -> Result<bool, ServerError> {
    match request.text("agent_trigger_method")? {
        None | Some("push_full_deploy") => Ok(true),
        Some("push_incremental_deploy") => Ok(false),
        Some(other) => Err(bad_request(format!(
            "agent_trigger_method: {other:?} is none of push_incremental_deploy, push_full_deploy"
        ))),
    }
}

async fn request_deploy(
    request: &InmantaRequest,
    full: bool,
    selection: orrery_store::Selection,
) -> Result<(), ServerError> {
    let kind = RequestKind::Deploy { selection, verify: full };
    app::operations::add(&request.app, request.environment()?, kind).await.map(drop)
}

/// Deploys or repairs all resources, or those of some agents.
pub(crate) async fn deploy(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["agent_trigger_method", "agents"])?;
    let full = is_full(&request)?;
    let named = request.texts("agents")?;
    let (number, known) = request
        .with_store(|store, key| {
            let Some(released) = newest_released(store, key)? else {
                return Ok((None, Vec::new()));
            };
            Ok((Some(released.number), store.agents().states(key)?))
        })
        .await?;
    let missing = |what: &str| ServerError::NotFound { kind: "version", name: what.to_owned() };
    let number = number.ok_or_else(|| missing("that is released"))?;
    let known: Vec<String> = known.into_iter().map(|agent| agent.name).collect();
    let (agents, strange): (Vec<String>, Vec<String>) = match named {
        None => (known, Vec::new()),
        Some(named) => named.into_iter().partition(|name| known.contains(name)),
    };
    let warning = (!strange.is_empty()).then(|| {
        format!("Model version {number} does not contain agents named [{}]", strange.join(", "))
    });
    if agents.is_empty() {
        let mut content = json!({"message": "No agent could be reached"});
        if let Some(warning) = warning {
            content["metadata"] = json!({"warnings": [warning]});
        }
        return with_status(StatusCode::NOT_FOUND, content);
    }
    request_deploy(&request, full, orrery_store::Selection::of_agents(agents.clone())).await?;
    let mut content = json!({ "agents": agents });
    if let Some(warning) = warning {
        content["metadata"] = json!({"warnings": [warning]});
    }
    plain(content)
}

/// A filter for texts. All given conditions must hold.
#[derive(Debug, Default)]
struct TextFilter {
    equal: Option<Vec<String>>,
    unequal: Vec<String>,
    like: Vec<String>,
    unlike: Vec<String>,
}

impl TextFilter {
    fn read(name: &str, given: Option<&Value>) -> Result<Self, ServerError> {
        let Some(given) = given.filter(|given| !given.is_null()) else {
            return Ok(Self::default());
        };
        let wrong = || {
            bad_request(format!(
                "filter: {name} must be an object of eq, neq, contains, notContains"
            ))
        };
        let object = given.as_object().ok_or_else(wrong)?;
        let mut filter = TextFilter::default();
        for (relation, values) in object {
            let texts: Vec<String> = match values {
                Value::Null => continue,
                Value::String(text) => vec![text.clone()],
                Value::Array(items) => {
                    let text = |item: &Value| item.as_str().map(str::to_owned).ok_or_else(wrong);
                    items.iter().map(text).collect::<Result<_, _>>()?
                }
                _ => return Err(wrong()),
            };
            match relation.as_str() {
                "eq" => filter.equal = Some(texts),
                "neq" => filter.unequal = texts,
                "contains" => filter.like = texts,
                "notContains" => filter.unlike = texts,
                _ => return Err(wrong()),
            }
        }
        Ok(filter)
    }

    fn matches(&self, text: &str) -> bool {
        self.equal.as_ref().is_none_or(|values| values.iter().any(|value| value == text))
            && !self.unequal.iter().any(|value| value == text)
            && self.like.iter().all(|pattern| matches_like(pattern, text))
            && !self.unlike.iter().any(|pattern| matches_like(pattern, text))
    }
}

/// Matches a pattern with `%` for any text and `_` for any character, case-insensitive.
fn matches_like(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.to_lowercase().chars().collect();
    let text: Vec<char> = text.to_lowercase().chars().collect();
    let (mut at, mut place) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while place < text.len() {
        match pattern.get(at) {
            Some('%') => {
                retry = Some((at + 1, place));
                at += 1;
            }
            Some(c) if *c == '_' || *c == text[place] => (at, place) = (at + 1, place + 1),
            _ => match retry {
                Some((after, from)) => {
                    (at, place) = (after, from + 1);
                    retry = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|c| *c == '%')
}

/// Selection of resources for a deploy.
#[derive(Debug, Default)]
struct Selection {
    entity: TextFilter,
    value: TextFilter,
    agent: TextFilter,
    blocked: TextFilter,
    compliance: TextFilter,
    last_run: TextFilter,
    deploying: Option<bool>,
    purged: Option<bool>,
}

impl Selection {
    fn read(filter: &Map<String, Value>) -> Result<Self, ServerError> {
        for name in filter.keys() {
            match name.as_str() {
                "modelVersion" => {
                    return Err(bad_request(
                        "Cannot deploy a specific model version: 'modelVersion' is not allowed for deploy.",
                    ));
                }
                "isOrphan" => {
                    return Err(bad_request(
                        "Cannot deploy orphans: 'isOrphan' is not allowed for deploy.",
                    ));
                }
                "environment" | "resourceType" | "resourceIdValue" | "agent" | "blocked"
                | "compliance" | "lastHandlerRun" | "isDeploying" | "purged" => {}
                other => return Err(bad_request(format!("filter: there is no {other:?}"))),
            }
        }
        let flag = |name: &str| match filter.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(bad_request(format!("filter: {name} must be true or false"))),
        };
        let text = |name: &str| TextFilter::read(name, filter.get(name));
        Ok(Selection {
            entity: text("resourceType")?,
            value: text("resourceIdValue")?,
            agent: text("agent")?,
            blocked: lower(text("blocked")?),
            compliance: lower(text("compliance")?),
            last_run: lower(text("lastHandlerRun")?),
            deploying: flag("isDeploying")?,
            purged: flag("purged")?,
        })
    }

    fn matches(&self, line: &ResourceLine) -> bool {
        let (id, state) = (&line.summary.id, &line.summary.state);
        self.entity.matches(id.entity())
            && self.value.matches(id.value())
            && self.agent.matches(id.agent())
            && self.matches_state(state)
    }

    fn matches_state(&self, state: &ResourceState) -> bool {
        let word = |value: Value| value.as_str().unwrap_or_default().to_owned();
        self.blocked.matches(&word(json!(state.blocked)))
            && self.compliance.matches(&word(json!(state.compliance())))
            && self.last_run.matches(&word(json!(state.last_run)))
            && self.deploying.is_none_or(|deploying| deploying == state.deploying)
    }
}

/// Converts the values of a filter to lower case.
fn lower(filter: TextFilter) -> TextFilter {
    let all = |texts: Vec<String>| texts.iter().map(|text| text.to_lowercase()).collect();
    TextFilter {
        equal: filter.equal.map(all),
        unequal: all(filter.unequal),
        like: filter.like,
        unlike: filter.unlike,
    }
}

/// Returns the ids of the resources that the released version purges.
fn purged(
    store: &Store,
    key: EnvironmentKey,
) -> Result<std::collections::BTreeSet<String>, StoreError> {
    let mut found = std::collections::BTreeSet::new();
    if let Some(released) = newest_released(store, key)? {
        store.versions().read(key, released.number, &mut |row| {
            let attributes: Value = serde_json::from_str(row.attributes).unwrap_or_default();
            if attributes["purged"] == json!(true) {
                found.insert(row.id.to_owned());
            }
        })?;
    }
    Ok(found)
}

/// Deploys or repairs the resources that match a filter, and returns their ids.
pub(crate) async fn deploy_filtered(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["filter", "agent_trigger_method"])?;
    let full = is_full(&request)?;
    let none = Map::new();
    let selection = Selection::read(request.object("filter")?.unwrap_or(&none))?;
    app::environments::check_takes_requests(request.environment()?)?;
    let ids = request
        .with_store(move |store, key| {
            // Without orphans.
            let lines = all_lines(store, key, &ResourceQuery::default())?;
            let gone =
                if selection.purged.is_some() { purged(store, key)? } else { Default::default() };
            let fits = |line: &&ResourceLine| {
                let is_purged = || gone.contains(line.summary.id.as_str());
                selection.matches(line)
                    && selection.purged.is_none_or(|purged| purged == is_purged())
            };
            Ok(lines
                .iter()
                .filter(fits)
                .map(|line| line.summary.id.to_string())
                .collect::<Vec<_>>())
        })
        .await?;
    if !ids.is_empty() {
        request_deploy(&request, full, orrery_store::Selection::of_ids(ids.clone())).await?;
    }
    data(json!(ids))
}

fn dry_run_json(environment: EnvironmentId, run: &DryRunRecord) -> Value {
    json!({
        "id": run.uuid.uuid(),
        "model": run.version.0,
        "environment": environment.uuid().to_string(),
        "date": time(run.created),
        "total": run.total,
        "todo": run.todo,
        "resource_filter": null,
        "context": null,
    })
}

async fn start_dry_run(request: &InmantaRequest) -> Result<DryRunRecord, ServerError> {
    request.allow_only(&[])?;
    let environment = request.environment()?;
    if environment.halted {
        let text = format!("The environment {} is halted", environment.name);
        return Err(ServerError::Conflict(text));
    }
    let number = request.path_version("version")?;
    let (run, _) = app::dry_runs::begin(&request.app, environment, number).await?;
    Ok(run)
}

pub(crate) async fn begin_dry_run(request: InmantaRequest) -> ApiResult {
    data(json!(start_dry_run(&request).await?.uuid))
}

pub(crate) async fn begin_dry_run_v1(request: InmantaRequest) -> ApiResult {
    let run = start_dry_run(&request).await?;
    let mut content = dry_run_json(request.environment()?.uuid, &run);
    content["resources"] = json!({});
    plain(json!({ "dryrun": content }))
}

pub(crate) async fn dry_runs(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let number = request.path_version("version")?;
    let environment = request.environment()?.uuid;
    let found = request
        .with_store(move |store, key| {
            orrery_server::versions::version_info(store, key, number)?;
            store.dry_runs().list(key, number, DRY_RUNS_MAX)
        })
        .await?;
    data(found.iter().map(|run| dry_run_json(environment, run)).collect())
}

pub(crate) async fn dry_runs_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["version"])?;
    let only = request.number("version")?;
    let found = request
        .with_store(move |store, key| {
            let mut found = Vec::new();
            for version in store.versions().list(key)?.iter().rev() {
                if only.is_none_or(|only| i64::from(version.number.0) == only) {
                    found.extend(store.dry_runs().list(key, version.number, DRY_RUNS_MAX)?);
                }
            }
            Ok(found)
        })
        .await?;
    let shown = found.iter().map(|run| {
        json!({
            "id": run.uuid.uuid(), "version": run.version.0, "date": time(run.created),
            "total": run.total, "todo": run.todo,
        })
    });
    plain(json!({"dryruns": shown.collect::<Vec<_>>()}))
}

/// Visits all results of a dry run, in batches.
fn visit_results(
    store: &Store,
    id: Uuid,
    visit: &mut dyn FnMut(&DryRunResult),
) -> Result<(), StoreError> {
    let mut after = String::new();
    loop {
        let part = store.dry_runs().results(id.into(), None, &after, RESULTS_AT_ONCE)?;
        part.iter().for_each(&mut *visit);
        match part.last() {
            Some(last) if part.len() == RESULTS_AT_ONCE => after.clone_from(&last.resource),
            _ => return Ok(()),
        }
    }
}

/// Returns attributes by name, each with its current and desired values.
fn pairs(result: &DryRunResult) -> Map<String, Value> {
    if result.status == "failed" {
        let reason = match &result.changes {
            Value::String(text) => text.clone(),
            Value::Array(list) if list.iter().any(|one| one["name"] == "handler") => {
                let handler = list.iter().find(|one| one["name"] == "handler");
                let desired = handler.map(|one| &one["desired"]);
                desired.and_then(Value::as_str).unwrap_or("the handler failed").to_owned()
            }
            other => other
                .get("error")
                .and_then(Value::as_str)
                .map_or_else(|| other.to_string(), str::to_owned),
        };
        return Map::from_iter([(
            "handler".to_owned(),
            json!({"current": "FAILED", "desired": reason}),
        )]);
    }
    match &result.changes {
        Value::Object(object) => object.clone(),
        Value::Array(list) => list
            .iter()
            .filter_map(|one| {
                let name = one["name"].as_str()?.to_owned();
                Some((name, json!({"current": one["current"], "desired": one["desired"]})))
            })
            .collect(),
        _ => Map::new(),
    }
}

/// Formats a value as text for comparison by line.
pub(crate) fn comparable(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

pub(crate) fn attribute_diff(from: &Value, to: &Value) -> Value {
    json!({
        "from_value": from,
        "to_value": to,
        "from_value_compare": comparable(from),
        "to_value_compare": comparable(to),
    })
}

pub(crate) async fn dry_run(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let (number, id) = (request.path_version("version")?, request.path_uuid("report_id")?);
    let environment = request.environment()?.uuid;
    let turn = long_response_permit().await?;
    let found = request
        .with_store(move |store, key| {
            let run = app::dry_runs::get(store, key, number, id.into())?;
            let summary = dry_run_json(environment, &run);
            let mut found = LongText::new(format!(r#"{{"data":{{"summary":{summary},"diff":["#));
            visit_results(store, id, &mut |result| {
                let attributes: Map<String, Value> = pairs(result)
                    .into_iter()
                    .map(|(name, pair)| (name, attribute_diff(&pair["current"], &pair["desired"])))
                    .collect();
                let status =
                    if result.status == "failed" { "modified" } else { result.status.as_str() };
                found.push(&json!({
                    "resource_id": result.resource, "attributes": attributes, "status": status,
                }));
            })?;
            Ok(found)
        })
        .await?;
    found.end("]}}", turn)
}

pub(crate) async fn dry_run_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let id = request.path_uuid("version")?;
    let environment = request.environment()?.uuid;
    let turn = long_response_permit().await?;
    let found = request
        .with_store(move |store, key| {
            let run = store.dry_runs().get(key, id.into())?;
            let summary = dry_run_json(environment, &run).to_string();
            let summary = summary.trim_end_matches('}');
            let mut found = LongText::new(format!(r#"{{"dryrun":{summary},"resources":{{"#));
            visit_results(store, id, &mut |result| {
                let versioned = format!("{},v={}", result.resource, run.version);
                let Ok(parts) = result.resource.parse::<orrery_model::ResourceId>() else { return };
                let fields = json!({
                    "version": run.version.0, "attribute": parts.attribute(),
                    "agent_name": parts.agent(), "entity_type": parts.entity(),
                    "attribute_value": parts.value(),
                });
                let one = json!({"id": versioned, "changes": pairs(result), "id_fields": fields});
                found.insert(&versioned, &one);
            })?;
            Ok(found)
        })
        .await?;
    found.end("}}}", turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_wildcards_and_ignore_the_case() {
        assert!(matches_like("%file%", "std::File"));
        assert!(matches_like("std::_ile", "std::File"));
        assert!(!matches_like("file", "std::File"));
        assert!(matches_like("%", ""));
        assert!(!matches_like("_", ""));
        assert!(matches_like("a%b%c", "aXbbYc"));
    }

    #[test]
    fn unknown_filters_are_refused() {
        let read = |filter: Value| Selection::read(filter.as_object().unwrap());
        assert!(read(json!({"modelVersion": 1})).is_err());
        assert!(read(json!({"isOrphan": false})).is_err());
        assert!(read(json!({"color": {"eq": ["red"]}})).is_err());
        let filter =
            read(json!({"agent": {"eq": ["a"], "neq": null}, "compliance": {"eq": ["COMPLIANT"]}}));
        let filter = filter.unwrap();
        assert!(filter.agent.matches("a") && !filter.agent.matches("b"));
        assert!(filter.compliance.matches("compliant"));
    }
}
