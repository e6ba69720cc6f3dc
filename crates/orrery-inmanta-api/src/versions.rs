//! Versions: numbers, full and partial uploads, release and deletion.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse as _;
use futures_util::StreamExt as _;
use orrery_api::{ReleaseRequest, ResourceUpload, UnknownUpload, UploadScope, VersionUpload};
use orrery_model::{Attributes, EnvironmentId, Resource, VersionNumber, VersionedId};
use orrery_server::app::versions;
use orrery_server::contents::VersionAuthor;
use orrery_server::versions::version_info;
use orrery_server::{ServerError, ServerState};
use orrery_store::{EnvironmentKey, PutOutcome, Store, StoreError, VersionInfo};
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::client_info::{INMANTA_INFO, inmanta_info};
use crate::request::{InmantaRequest, bad_request};
use crate::response::{ApiResult, data, done, plain, time};
use crate::{code, resources};

/// Reserves the next number.
pub(crate) async fn reserve(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let environment = request.environment()?.clone();
    let number = versions::reserve(&request.app, environment).await?;
    data(json!(number.0))
}

/// Parses the resource sets, by resource id.
fn sets_of(request: &InmantaRequest) -> Result<&Map<String, Value>, ServerError> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    Ok(request.object("resource_sets")?.unwrap_or(&NONE))
}

/// Splits a resource id from its optional version suffix.
fn plain_id(text: &str) -> Result<(String, Option<u32>), ServerError> {
    let wrong = |error: orrery_model::InvalidId| {
        bad_request(format!("{text:?} is no resource id: {error}"))
    };
    match text.rsplit_once(",v=") {
        Some((_, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            let id: VersionedId = text.parse().map_err(wrong)?;
            Ok((id.id.to_string(), Some(id.version.0)))
        }
        _ => Ok((text.parse::<orrery_model::ResourceId>().map_err(wrong)?.to_string(), None)),
    }
}

fn resource(
    given: &Value,
    sets: &Map<String, Value>,
    states: &Map<String, Value>,
    number: Option<u32>,
) -> Result<ResourceUpload, ServerError> {
    let Value::Object(attributes) = given else {
        return Err(bad_request("a resource must be an object"));
    };
    let id = attributes.get("id").and_then(Value::as_str);
    let id = id.ok_or_else(|| bad_request("a resource has no id"))?;
    let (plain, version) = plain_id(id)?;
    match (version, number) {
        (Some(0) | None, _) => {}
        (Some(version), Some(number)) if version == number => {}
        (Some(version), _) => {
            return Err(bad_request(format!(
                "{id} has the version {version}, which is not that of the request"
            )));
        }
    }
    let mut requires = Vec::new();
    for required in attributes.get("requires").and_then(Value::as_array).into_iter().flatten() {
        let text =
            required.as_str().ok_or_else(|| bad_request(format!("{id}: requires has no ids")))?;
        requires.push(plain_id(text)?.0);
    }
    let set = match sets.get(&plain) {
        None | Some(Value::Null) => None,
        Some(Value::String(set)) => Some(set.clone()),
        Some(_) => return Err(bad_request(format!("the set of {plain} must be a string or null"))),
    };
    let undefined = states.get(&plain).and_then(Value::as_str) == Some("undefined");
    let attributes = Attributes::from_object(attributes.clone());
    Ok(ResourceUpload { id: plain, attributes, requires, set, undefined, source: None })
}

fn unknown(given: &Value) -> Result<UnknownUpload, ServerError> {
    let text = |name: &str| given.get(name).and_then(Value::as_str).map(str::to_owned);
    let name = text("parameter").ok_or_else(|| bad_request("an unknown has no parameter"))?;
    let resource = text("resource").filter(|id| !id.is_empty());
    Ok(UnknownUpload {
        name,
        resource,
        source: text("source").unwrap_or_else(|| "fact".to_owned()),
    })
}

/// Converts a request to an upload.
fn upload(
    request: &InmantaRequest,
    number: Option<u32>,
    scope: UploadScope,
) -> Result<VersionUpload, ServerError> {
    let list = |name: &str| match request.value(name) {
        None => Ok(&[][..]),
        Some(Value::Array(items)) => Ok(items.as_slice()),
        Some(_) => Err(bad_request(format!("Field '{name}' must be a list."))),
    };
    let none = Map::new();
    let sets = sets_of(request)?;
    let states = request.object("resource_state")?.unwrap_or(&none);
    let unknowns = list("unknowns")?.iter().map(unknown).collect::<Result<Vec<_>, _>>()?;
    let given = list("resources")?.iter();
    let found = given.map(|one| resource(one, sets, states, number));
    let resources = found.collect::<Result<Vec<_>, _>>()?;
    let known: std::collections::BTreeSet<&str> =
        resources.iter().map(|resource| resource.id.as_str()).collect();
    if let Some(id) = sets.keys().find(|id| !known.contains(id.as_str())) {
        return Err(bad_request(format!(
            "The resource set of {id} is given, but that resource is not."
        )));
    }
    let mut info = request.object("version_info")?.cloned().unwrap_or_default();
    info.insert(
        INMANTA_INFO.to_owned(),
        json!({
            "pip_config": request.value("pip_config"),
            "project_constraints": request.value("project_constraints"),
            "modules": request.value("module_version_info"),
        }),
    );
    Ok(VersionUpload {
        number: number.map(u64::from),
        scope,
        removed_sets: request.texts("removed_resource_sets")?.unwrap_or_default(),
        resources,
        unknowns,
        info,
        code: None,
        ..VersionUpload::default()
    })
}

/// Stores an upload with its code.
async fn store(request: &InmantaRequest, upload: VersionUpload) -> Result<PutOutcome, ServerError> {
    let modules = code::Modules::parse(request.value("module_version_info"))?;
    let environment = request.environment()?.clone();
    let key = environment.key;
    let bundle = move |store: &Store, author: &VersionAuthor, upload: &mut VersionUpload| {
        modules.bundle(store, key, author, upload)
    };
    let (app, caller) = (&request.app, &request.caller);
    let stored = versions::push_with_code(app, caller, environment, upload, bundle).await?;
    Ok(stored.put)
}

/// Stores a full version under a reserved number.
pub(crate) async fn put(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[
        "version",
        "resources",
        "resource_state",
        "unknowns",
        "version_info",
        "compiler_version",
        "resource_sets",
        "module_version_info",
        "pip_config",
        "project_constraints",
    ])?;
    let number =
        request.number("version")?.ok_or_else(|| bad_request("Field 'version' is required."))?;
    let number = u32::try_from(number).ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| {
        bad_request("The version number used is not valid. Version numbers should be reserved and higher than 0.")
    })?;
    store(&request, upload(&request, Some(number), UploadScope::Full)?).await?;
    done()
}

/// Stores a partial version and returns its number.
pub(crate) async fn put_partial(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[
        "resources",
        "resource_state",
        "unknowns",
        "version_info",
        "resource_sets",
        "removed_resource_sets",
        "module_version_info",
        "pip_config",
        "project_constraints",
        "allow_handler_code_update",
    ])?;
    let mut upload = upload(&request, None, UploadScope::Partial)?;
    upload.allow_code_update = request.flag("allow_handler_code_update")?.unwrap_or(false);
    let stored = store(&request, upload).await?;
    data(json!(stored.number.0))
}

/// Returns the info as the client sent it, without additions of the server.
fn given_info(version: &VersionInfo) -> Value {
    let Value::Object(mut info) = version.info.clone() else { return version.info.clone() };
    for added in [INMANTA_INFO, "code", "files", "unsuitable_for_partial", "partial_base"] {
        info.remove(added);
    }
    Value::Object(info)
}

pub(crate) fn version_v1_json(environment: EnvironmentId, version: &VersionInfo) -> Value {
    let constraints = inmanta_info(version, "project_constraints");
    json!({
        "version": version.number.0,
        "environment": environment.uuid().to_string(),
        "date": time(version.made_at),
        "released": version.released,
        "version_info": given_info(version),
        "total": version.total,
        "partial_base": version.info.get("partial_base"),
        "pip_config": inmanta_info(version, "pip_config"),
        "project_constraints": constraints,
        "undeployable": [],
        "skipped_for_undeployable": [],
        "is_suitable_for_partial_compiles": version.info.get("unsuitable_for_partial") != Some(&json!(true)),
    })
}

/// Lists versions, newest first.
pub(crate) async fn list_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["start", "limit"])?;
    let (start, limit) = (request.number("start")?, request.number("limit")?);
    if start.is_some() != limit.is_some() {
        return Err(bad_request("Start and limit should always be set together."));
    }
    let at = |number: i64| {
        usize::try_from(number).map_err(|_| bad_request("Start and limit must not be negative."))
    };
    let (start, limit) = (at(start.unwrap_or(0))?, at(limit.unwrap_or(1000))?.min(1000));
    let versions = request.with_store(|store, key| store.versions().list(key)).await?;
    let environment = request.environment()?.uuid;
    let shown: Vec<Value> = versions
        .iter()
        .rev()
        .skip(start)
        .take(limit)
        .map(|version| version_v1_json(environment, version))
        .collect();
    plain(json!({"versions": shown, "start": start, "limit": limit, "count": versions.len()}))
}

/// Returns a version with all its resources and unknowns.
pub(crate) async fn get_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["include_logs", "log_filter", "limit"])?;
    let number = request.path_version("version")?;
    let environment = request.environment()?.uuid;
    let with_logs = request.flag("include_logs")?.unwrap_or(false);
    let limit = request.number("limit")?.and_then(|limit| usize::try_from(limit).ok());
    // Limits large versions in memory.
    let turn = READS.acquire().await.map_err(|_| ServerError::Stopping)?;
    let (version, rows, unknowns) = request
        .with_store(move |store, key| {
            let version = version_info(store, key, number)?;
            let mut rows = store.versions().load(key, number)?.resources;
            if let Some(limit) = limit.filter(|limit| *limit > 0) {
                rows.truncate(limit);
            }
            Ok((version, rows, store.versions().unknowns(key, number)?))
        })
        .await?;
    let unknowns: Vec<Value> = unknowns
        .into_iter()
        .map(|(unknown, resolved)| {
            json!({
                "environment": environment.uuid().to_string(),
                "name": unknown.name,
                "resource_id": unknown.resource.map(|id| id.to_string()).unwrap_or_default(),
                "source": unknown.source,
                "version": number.0,
                "resolved": resolved,
                "metadata": {},
            })
        })
        .collect();
    let model = version_v1_json(environment, &version);
    let head = format!(r#"{{"model":{model},"unknowns":{},"resources":["#, Value::from(unknowns));
    let rows = Rows { rows: Arc::new(rows), key: request.key()?, environment, number, with_logs };
    let parts = futures_util::stream::unfold((request.app.clone(), rows, 0, turn), next_part);
    let head = futures_util::stream::iter([Ok(Bytes::from(head))]);
    let tail = futures_util::stream::iter([Ok(Bytes::from_static(b"]}"))]);
    let body = axum::body::Body::from_stream(head.chain(parts).chain(tail));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Limits of concurrent reads of whole versions, and of resources per chunk.
static READS: Semaphore = Semaphore::const_new(4);
const WRITTEN_AT_ONCE: usize = 200;

/// Streaming state of the resources of a version.
#[derive(Clone)]
struct Rows {
    rows: Arc<Vec<Resource>>,
    key: EnvironmentKey,
    environment: EnvironmentId,
    number: VersionNumber,
    with_logs: bool,
}

type Reading = (ServerState, Rows, usize, SemaphorePermit<'static>);

/// Formats the next resources on a blocking thread.
async fn next_part(
    (app, rows, at, turn): Reading,
) -> Option<(Result<Bytes, ServerError>, Reading)> {
    let end = (at + WRITTEN_AT_ONCE).min(rows.rows.len());
    if at == end {
        return None;
    }
    let part = rows.clone();
    let written = app.with_store(move |store| {
        let Rows { key, environment, number, with_logs, .. } = part;
        let mut text = String::new();
        for (index, resource) in part.rows[at..end].iter().enumerate() {
            let mut row = resources::resource_v1_json(resource, environment, number);
            if with_logs {
                let id = resource.id.as_str();
                row["actions"] = json!(resources::actions_of(store, key, environment, id, 100)?);
            }
            if at + index > 0 {
                text.push(',');
            }
            text.push_str(&row.to_string());
        }
        Ok(Bytes::from(text))
    });
    Some((written.await.map_err(ServerError::from), (app, rows, end, turn)))
}

async fn release(request: &InmantaRequest) -> Result<VersionInfo, ServerError> {
    let (environment, number) = (request.environment()?, request.path_version("version")?);
    let no_operation = ReleaseRequest::default();
    let (state, _) = versions::release(&request.app, environment, number, no_operation).await?;
    Ok(state.info)
}

/// Releases a version.
pub(crate) async fn release_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["push", "agent_trigger_method"])?;
    let environment = request.environment()?.uuid;
    let version = release(&request).await?;
    plain(json!({"model": version_v1_json(environment, &version)}))
}

pub(crate) async fn promote(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["trigger_method"])?;
    release(&request).await?;
    done()
}

pub(crate) async fn delete(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let number = request.path_version("version")?;
    match versions::delete(&request.app, request.key()?, number).await {
        Err(ServerError::Store(StoreError::VersionInUse(_))) => {
            Err(bad_request("Cannot delete the active version"))
        }
        Err(error) => Err(error),
        Ok(()) => done(),
    }
}

/// Returns the pip settings for the code of a version.
pub(crate) async fn pip_config(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let number = request.path_version("version")?;
    let version = request.with_store(move |store, key| version_info(store, key, number)).await?;
    data(inmanta_info(&version, "pip_config"))
}
