//! Resources: lists, details, history, logs, compliance.

use orrery_model::{EnvironmentId, Resource, ResourceId, Status, VersionNumber};
use orrery_server::ServerError;
use orrery_store::{
    EnvironmentKey, ResourceFilter, ResourceLine, ResourceQuery, Store, StoreError, VersionEntry,
    VersionInfo,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::actions::{action_json, action_name};
use crate::paging::{Form, Key, ListDefinition, ListItem, ListRequest, Page};
use crate::request::{InmantaRequest, bad_request};
use crate::resource_pages::typed_page;
use crate::response::{ApiResult, data, maybe_time, plain, time};

/// Number of resources to read at a time.
const AT_ONCE: usize = 10_000;

/// Returns the parts of an id.
pub(crate) fn id_details(id: &ResourceId) -> Value {
    json!({
        "resource_type": id.entity(),
        "agent": id.agent(),
        "attribute": id.attribute(),
        "resource_id_value": id.value(),
    })
}

/// Returns a stable UUID for an object without one.
pub(crate) fn derived_uuid(environment: EnvironmentId, kind: &str, name: &str) -> Uuid {
    use sha2::Digest as _;
    let mut digest = sha2::Sha256::new();
    for part in [&environment.into_bytes()[..], kind.as_bytes(), b"\0", name.as_bytes()] {
        digest.update(part);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// Returns attributes in the form of Inmanta, which includes the requirements.
fn attributes_of(text: &str, requires: &[String]) -> Value {
    let mut attributes: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    attributes.insert("requires".to_owned(), json!(requires));
    Value::Object(attributes)
}

/// Returns the newest released version.
pub(crate) fn newest_released(
    store: &Store,
    key: EnvironmentKey,
) -> Result<Option<VersionInfo>, StoreError> {
    Ok(store.versions().list(key)?.into_iter().rfind(|version| version.released))
}

/// Returns the desired state of a resource in a version.
pub(crate) fn in_version(
    store: &Store,
    key: EnvironmentKey,
    number: VersionNumber,
    id: &ResourceId,
) -> Result<Option<VersionEntry>, StoreError> {
    let filter = ResourceFilter {
        agent: Some(id.agent().to_owned()),
        entity: Some(id.entity().to_owned()),
        ..ResourceFilter::default()
    };
    // Directly before the id in order; all ids end with a bracket.
    let text = id.as_str();
    let before = format!("{}\\{}", &text[..text.len() - 1], char::MAX);
    let (found, _) = store.versions().resources(key, number, &filter, Some(&before), 1)?;
    Ok(found.into_iter().next().filter(|found| found.id == text))
}

/// Returns a resource of a version in the v1 form.
pub(crate) fn resource_v1_json(
    resource: &Resource,
    environment: EnvironmentId,
    number: VersionNumber,
) -> Value {
    let requires: Vec<String> = resource.requires.iter().map(ToString::to_string).collect();
    json!({
        "environment": environment.uuid().to_string(),
        "resource_id": resource.id.as_str(),
        "resource_version_id": format!("{},v={number}", resource.id),
        "agent": resource.id.agent(),
        "attributes": attributes_of(resource.attributes.as_str(), &requires),
        "attribute_hash": resource.hash.to_string(),
        "resource_type": resource.id.entity(),
        "resource_id_value": resource.id.value(),
        "is_undefined": resource.flags.undefined,
        "resource_set": derived_uuid(environment, "set", resource.set.as_deref().unwrap_or("")),
    })
}

/// Returns the latest actions on a resource.
pub(crate) fn actions_of(
    store: &Store,
    key: EnvironmentKey,
    environment: EnvironmentId,
    id: &str,
    limit: usize,
) -> Result<Vec<Value>, StoreError> {
    let actions = store.actions().of_resource(key, id, None, limit)?;
    Ok(actions.iter().map(|action| action_json(environment, id, action)).collect())
}

/// Returns all resources that match a query, including orphans.
pub(crate) fn all_lines(
    store: &Store,
    key: EnvironmentKey,
    query: &ResourceQuery,
) -> Result<Vec<ResourceLine>, StoreError> {
    let mut found: Vec<ResourceLine> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let part = store.resources().list(key, query, after.as_deref(), AT_ONCE)?;
        found.extend(part.lines);
        match part.next {
            Some(next) => after = Some(next),
            None => return Ok(found),
        }
    }
}

const RESOURCES: ListDefinition = ListDefinition {
    columns: &[
        ("resource_type", Form::Text),
        ("agent", Form::Text),
        ("resource_id_value", Form::Text),
        ("status", Form::Text),
    ],
    descending: true,
    filters: &["agent", "resource_type", "resource_id_value", "status"],
    with_ids: true,
    others: &["deploy_summary"],
};

/// Parses a status filter: the named statuses, without those after an exclamation mark.
fn statuses(wanted: &ListRequest) -> Result<Vec<Status>, ServerError> {
    let Some(values) = wanted.filter("status") else { return Ok(Status::ALL.to_vec()) };
    let find = |name: &str| {
        let found = Status::ALL.into_iter().find(|status| status.as_str() == name);
        found.ok_or_else(|| bad_request(format!("Filter status: there is no status {name:?}")))
    };
    let (mut named, mut without) = (Vec::new(), Vec::new());
    for value in values {
        match value.strip_prefix('!') {
            Some(name) => without.push(find(name)?),
            None => named.push(find(value)?),
        }
    }
    let all = if named.is_empty() { Status::ALL.to_vec() } else { named };
    Ok(all.into_iter().filter(|status| !without.contains(status)).collect())
}

/// Returns a page in an order that the store does not support: reads and sorts everything.
fn sorted_page(
    store: &Store,
    key: EnvironmentKey,
    wanted: &ListRequest,
    statuses: Vec<Status>,
) -> Result<Page, StoreError> {
    let query = ResourceQuery { statuses, ..ResourceQuery::default() };
    let lines = if query.statuses.is_empty() { Vec::new() } else { all_lines(store, key, &query)? };
    let fits = |line: &ResourceLine| {
        let id = &line.summary.id;
        wanted.contains("agent", id.agent())
            && wanted.contains("resource_type", id.entity())
            && wanted.contains("resource_id_value", id.value())
    };
    let items = lines.into_iter().filter(fits).map(|line| {
        let id = &line.summary.id;
        let key = match wanted.column {
            "agent" => id.agent(),
            "resource_id_value" => id.value(),
            "status" => line.summary.status.as_str(),
            _ => id.entity(),
        };
        let shown = json!(line.summary.status.as_str());
        ListItem { key: Key::Text(key.to_owned()), id: id.to_string(), shown }
    });
    Ok(wanted.cut(items.collect()))
}

pub(crate) async fn list(request: InmantaRequest) -> ApiResult {
    let wanted = ListRequest::parse(&request, &RESOURCES)?;
    let with_summary = request.flag("deploy_summary")?.unwrap_or(false);
    let statuses = statuses(&wanted)?;
    let (page, summary) = request
        .with_store(move |store, key| {
            let mut page = match typed_page(store, key, &wanted, &statuses)? {
                Some(page) => page,
                None => sorted_page(store, key, &wanted, statuses)?,
            };
            read_details(store, key, &mut page.items)?;
            let counts =
                if with_summary { Some(store.resources().count_statuses(key)?) } else { None };
            Ok((page, counts))
        })
        .await?;
    let mut more = Map::new();
    if let Some(counts) = summary {
        let shown = Status::ALL.into_iter().filter(|status| *status != Status::Orphaned);
        let mut by_state: Map<String, Value> = shown
            .map(|status| (status.as_str().to_owned(), json!(counts.get(&status).unwrap_or(&0))))
            .collect();
        by_state.insert("cancelled".to_owned(), json!(0));
        let total: u64 = by_state.values().filter_map(Value::as_u64).sum();
        more.insert("deploy_summary".to_owned(), json!({"total": total, "by_state": by_state}));
    }
    page.answer(more)
}

/// Reads the fields of a page beside ids and statuses.
fn read_details(
    store: &Store,
    key: EnvironmentKey,
    items: &mut [ListItem],
) -> Result<(), StoreError> {
    let ids: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
    let standings = store.versions().newest_revisions(key, &ids)?;
    let newest = newest_released(store, key)?.map_or(0, |version| version.number.0);
    for (item, standing) in items.iter_mut().zip(standings) {
        let status = item.shown.take();
        let (version, requires) = match standing {
            Some(standing) if status != json!("orphaned") => (newest, standing.requires),
            _ => {
                let history = store.resources().history(key, &item.id)?;
                let last = history.into_iter().next();
                last.map_or((0, Vec::new()), |last| (last.version.0, last.requires))
            }
        };
        let id: ResourceId = item
            .id
            .parse()
            .map_err(|_| StoreError::Unreadable(format!("a resource {:?}", item.id)))?;
        item.shown = json!({
            "resource_id": item.id,
            "resource_version_id": format!("{},v={version}", item.id),
            "id_details": id_details(&id),
            "requires": requires,
            "status": status,
        });
    }
    Ok(())
}

fn parse_id(text: &str) -> Result<ResourceId, ServerError> {
    let unknown = |_| ServerError::NotFound { kind: "resource", name: text.to_owned() };
    text.parse().map_err(unknown)
}

fn no_resource(id: &ResourceId) -> StoreError {
    StoreError::NoResource(id.to_string())
}

pub(crate) async fn details(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let id = parse_id(request.path_text("rid"))?;
    let shown = request
        .with_store(move |store, key| {
            let line = store.resources().line(key, id.as_str())?;
            let history = store.resources().history(key, id.as_str())?;
            let released = newest_released(store, key)?.ok_or_else(|| no_resource(&id))?;
            let wanted = in_version(store, key, released.number, &id)?;
            let (attributes, requires) = match (wanted, history.first()) {
                (Some(wanted), _) => (wanted.attributes, wanted.requires),
                // Orphaned: the last desired state.
                (None, Some(last)) if line.summary.status == Status::Orphaned => {
                    (last.attributes.clone(), last.requires.clone())
                }
                (None, _) => return Err(no_resource(&id)),
            };
            let mut statuses = Map::new();
            for required in &requires {
                let line = store.resources().line(key, required)?;
                statuses.insert(required.clone(), json!(line.summary.status.as_str()));
            }
            Ok(json!({
                "resource_id": id.as_str(),
                "resource_type": id.entity(),
                "agent": id.agent(),
                "id_attribute": id.attribute(),
                "id_attribute_value": id.value(),
                "attributes": attributes_of(&attributes, &requires),
                "last_deploy": maybe_time(line.summary.state.last_run_at),
                "first_generated_time": maybe_time(history.last().map(|first| first.at)),
                "status": line.summary.status.as_str(),
                "requires_status": statuses,
            }))
        })
        .await?;
    data(shown)
}

/// Returns the desired state of a resource in a version.
pub(crate) async fn versioned(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let (number, id) = (request.path_version("version")?, parse_id(request.path_text("rid"))?);
    let (found, id) = request
        .with_store(move |store, key| {
            let found = in_version(store, key, number, &id)?;
            Ok((found.ok_or_else(|| no_resource(&id))?, id))
        })
        .await?;
    data(json!({
        "resource_id": id.as_str(),
        "resource_type": id.entity(),
        "agent": id.agent(),
        "id_attribute": id.attribute(),
        "id_attribute_value": id.value(),
        "attributes": attributes_of(&found.attributes, &found.requires),
        "resource_version_id": format!("{id},v={number}"),
        "version": number.0,
    }))
}

const HISTORY: ListDefinition = ListDefinition {
    columns: &[("date", Form::Time)],
    descending: true,
    filters: &[],
    with_ids: true,
    others: &[],
};

pub(crate) async fn history(request: InmantaRequest) -> ApiResult {
    let wanted = ListRequest::parse(&request, &HISTORY)?;
    let id = request.path_text("rid").to_owned();
    let asked = id.clone();
    let found = request
        .with_store(move |store, key| match store.resources().history(key, &asked) {
            Err(StoreError::NoResource(_)) => Ok(Vec::new()),
            found => found,
        })
        .await?;
    let items = found.into_iter().map(|entry| {
        let hash = entry.hash.to_string();
        let shown = json!({
            "resource_id": id,
            "date": time(entry.at),
            "attributes": attributes_of(&entry.attributes, &entry.requires),
            "attribute_hash": hash,
            "requires": entry.requires,
        });
        ListItem { key: Key::Time(entry.at), id: hash, shown }
    });
    wanted.page(items.collect())
}

/// Returns a resource of a version with its actions, in the v1 form.
pub(crate) async fn get_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["logs", "status", "log_action", "log_limit"])?;
    let text = request.path_text("rid");
    let wrong = |error: orrery_model::InvalidId| {
        bad_request(format!("{text:?} is no id with a version: {error}"))
    };
    let versioned: orrery_model::VersionedId = text.parse().map_err(wrong)?;
    let with_logs = request.flag("logs")?.unwrap_or(false);
    let only = request.text("log_action")?.map(str::to_owned);
    let limit = request.number("log_limit")?.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(1000).min(1000);
    let environment = request.environment()?.uuid;
    let (resource, logs) = request
        .with_store(move |store, key| {
            let found = in_version(store, key, versioned.version, &versioned.id)?;
            let found = found.ok_or_else(|| no_resource(&versioned.id))?;
            let attributes = orrery_model::Attributes::from_canonical(found.attributes.as_str());
            let resource = json!({
                "attributes": attributes_of(&found.attributes, &found.requires),
                "is_undefined": found.undefined,
                "environment": environment.uuid().to_string(),
                "resource_id": found.id,
                "resource_type": versioned.id.entity(),
                "resource_id_value": versioned.id.value(),
                "agent": versioned.id.agent(),
                "attribute_hash": attributes.hash(&versioned.id).to_string(),
                "resource_set": derived_uuid(environment, "set", found.set.as_deref().unwrap_or("")),
            });
            let mut logs = Vec::new();
            if with_logs {
                let actions = store.actions().of_resource(key, versioned.id.as_str(), None, limit)?;
                let fits = |kind| only.as_deref().is_none_or(|only| only == action_name(kind));
                let fitting = actions.iter().filter(|action| fits(action.kind));
                let id = versioned.id.as_str();
                logs = fitting.map(|action| action_json(environment, id, action)).collect();
            }
            Ok((resource, logs))
        })
        .await?;
    plain(json!({"resource": resource, "logs": logs}))
}

/// Returns the compliance of resources.
pub(crate) async fn compliance(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["resource_ids"])?;
    let ids = request
        .texts("resource_ids")?
        .ok_or_else(|| bad_request("Field 'resource_ids' is required."))?;
    let report = request
        .with_store(move |store, key| {
            let mut report = Map::new();
            let newest = newest_released(store, key)?;
            for id in ids {
                let line = store.resources().line(key, &id)?;
                let state = &line.summary.state;
                let wanted = match &newest {
                    Some(newest) => in_version(store, key, newest.number, &line.summary.id)?,
                    None => None,
                };
                let attributes: Map<String, Value> = wanted
                    .map(|wanted| serde_json::from_str(&wanted.attributes).unwrap_or_default())
                    .unwrap_or_default();
                let differs = line.summary.status == Status::NonCompliant;
                let latest = if differs {
                    store.actions().of_resource(key, &id, None, 1)?
                } else {
                    Vec::new()
                };
                let diff =
                    latest.first().map(|action| super::actions::attribute_changes(&action.change));
                let shown = json!({
                    "report_only": attributes.get("report_only") == Some(&json!(true)),
                    "compliance": state.compliance(),
                    "last_handler_run": state.last_run,
                    "last_handler_run_at": maybe_time(state.last_run_at),
                    "attribute_diff": diff,
                });
                report.insert(id, shown);
            }
            Ok(report)
        })
        .await?;
    data(Value::Object(report))
}
