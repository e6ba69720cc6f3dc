//! Storing versions: numbers, full ones, changes of some sets; releasing and deleting them.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse as _;
use futures_util::StreamExt as _;
use orrery_api::{ResourceUpload, UnknownUpload, UploadScope, VersionUpload};
use orrery_model::{Attributes, Resource, VersionNumber, VersionedId};
use orrery_store::{EnvironmentKey, PutVersion, StoreError, VersionInfo};
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

use super::answer::{Answer, data, done, plain, time};
use super::call::{Call, bad};
use super::{code, resources};
use crate::app::App;
use crate::contents::Pusher;
use crate::problem::ServerError;
use crate::routes::pushes::check_push;
use crate::settings::EnvironmentSettings;
use crate::versions::{store_upload, version_info};

/// What of a classic version is kept beside what everybody has: under this name in the version's information.
pub(super) const KEPT: &str = "classic";

/// Hands out the next number.
pub(super) async fn reserve(call: Call) -> Answer {
    call.only(&[])?;
    let environment = call.environment()?.clone();
    let reserved = call.change(move |store, key, _| match check_push(store, &environment) {
        Ok(()) => store.reserve_version(key).map(Ok),
        Err(refused) => Ok(Err(refused)),
    });
    let number = reserved.await??;
    data(json!(number.0))
}

/// Which resources are in which set, by id.
fn sets_of(call: &Call) -> Result<&Map<String, Value>, ServerError> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    Ok(call.object("resource_sets")?.unwrap_or(&NONE))
}

/// The id without the version that it may carry, and that version.
fn plain_id(text: &str) -> Result<(String, Option<u32>), ServerError> {
    let wrong =
        |error: orrery_model::InvalidId| bad(format!("{text:?} is no resource id: {error}"));
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
        return Err(bad("a resource must be an object"));
    };
    let id = attributes.get("id").and_then(Value::as_str);
    let id = id.ok_or_else(|| bad("a resource has no id"))?;
    let (plain, version) = plain_id(id)?;
    match (version, number) {
        (Some(0) | None, _) => {}
        (Some(version), Some(number)) if version == number => {}
        (Some(version), _) => {
            return Err(bad(format!(
                "{id} has the version {version}, which is not that of the request"
            )));
        }
    }
    let mut requires = Vec::new();
    for required in attributes.get("requires").and_then(Value::as_array).into_iter().flatten() {
        let text = required.as_str().ok_or_else(|| bad(format!("{id}: requires has no ids")))?;
        requires.push(plain_id(text)?.0);
    }
    let set = match sets.get(&plain) {
        None | Some(Value::Null) => None,
        Some(Value::String(set)) => Some(set.clone()),
        Some(_) => return Err(bad(format!("the set of {plain} must be a string or null"))),
    };
    let undefined = states.get(&plain).and_then(Value::as_str) == Some("undefined");
    let attributes = Attributes::from_object(attributes.clone());
    Ok(ResourceUpload { id: plain, attributes, requires, set, undefined, source: None })
}

fn unknown(given: &Value) -> Result<UnknownUpload, ServerError> {
    let text = |name: &str| given.get(name).and_then(Value::as_str).map(str::to_owned);
    let name = text("parameter").ok_or_else(|| bad("an unknown has no parameter"))?;
    let resource = text("resource").filter(|id| !id.is_empty());
    Ok(UnknownUpload {
        name,
        resource,
        source: text("source").unwrap_or_else(|| "fact".to_owned()),
    })
}

/// A classic request as an upload of our own.
fn upload(
    call: &Call,
    number: Option<u32>,
    scope: UploadScope,
) -> Result<VersionUpload, ServerError> {
    let list = |name: &str| match call.value(name) {
        None => Ok(&[][..]),
        Some(Value::Array(items)) => Ok(items.as_slice()),
        Some(_) => Err(bad(format!("Field '{name}' must be a list."))),
    };
    let none = Map::new();
    let sets = sets_of(call)?;
    let states = call.object("resource_state")?.unwrap_or(&none);
    let unknowns = list("unknowns")?.iter().map(unknown).collect::<Result<Vec<_>, _>>()?;
    let given = list("resources")?.iter();
    let found = given.map(|one| resource(one, sets, states, number));
    let resources = found.collect::<Result<Vec<_>, _>>()?;
    let known: std::collections::BTreeSet<&str> =
        resources.iter().map(|resource| resource.id.as_str()).collect();
    if let Some(id) = sets.keys().find(|id| !known.contains(id.as_str())) {
        return Err(bad(format!("The resource set of {id} is given, but that resource is not.")));
    }
    let mut info = call.object("version_info")?.cloned().unwrap_or_default();
    info.insert(
        KEPT.to_owned(),
        json!({
            "pip_config": call.value("pip_config"),
            "project_constraints": call.value("project_constraints"),
            "modules": call.value("module_version_info"),
        }),
    );
    Ok(VersionUpload {
        number: number.map(u64::from),
        scope,
        removed_sets: call.texts("removed_resource_sets")?.unwrap_or_default(),
        resources,
        unknowns,
        info,
        code: None,
        ..VersionUpload::default()
    })
}

/// Stores an upload, with the code that came with it.
async fn store(call: &Call, mut upload: VersionUpload) -> Result<PutVersion, ServerError> {
    crate::routes::active(call.environment()?)?;
    let modules = code::Modules::read(call.value("module_version_info"))?;
    let environment = call.environment()?.clone();
    let caller = call.caller.clone();
    call.change(move |store, key, now| {
        let work = || {
            check_push(store, &environment)?;
            let mut pusher = Pusher::of(store, &caller)?;
            upload.code = modules.bundle(store, key, &pusher, &mut upload)?;
            pusher.made = upload.code.clone();
            let settings = store.records().settings(key)?;
            let auto = EnvironmentSettings::from_records(&settings).auto_deploy;
            store_upload(store, key, &pusher, upload, auto, now).map(|stored| stored.put)
        };
        Ok(work())
    })
    .await?
}

/// Stores a full version under a number that was reserved.
pub(super) async fn put(call: Call) -> Answer {
    call.only(&[
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
    let number = call.number("version")?.ok_or_else(|| bad("Field 'version' is required."))?;
    let number = u32::try_from(number).ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| {
        bad("The version number used is not valid. Version numbers should be reserved and higher than 0.")
    })?;
    store(&call, upload(&call, Some(number), UploadScope::Full)?).await?;
    done()
}

/// Stores a change of some sets; answers its number.
pub(super) async fn put_partial(call: Call) -> Answer {
    call.only(&[
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
    let mut upload = upload(&call, None, UploadScope::Partial)?;
    upload.allow_code_update = call.flag("allow_handler_code_update")?.unwrap_or(false);
    let stored = store(&call, upload).await?;
    data(json!(stored.number.0))
}

/// What a client put beside the resources.
pub(super) fn kept(version: &VersionInfo, name: &str) -> Value {
    version.info.get(KEPT).and_then(|kept| kept.get(name)).cloned().unwrap_or(Value::Null)
}

/// The information that the client gave, without what was added here.
fn given_info(version: &VersionInfo) -> Value {
    let Value::Object(mut info) = version.info.clone() else { return version.info.clone() };
    for added in [KEPT, "code", "files", "unsuitable_for_partial", "partial_base"] {
        info.remove(added);
    }
    Value::Object(info)
}

pub(super) fn shown_v1(environment: &[u8; 16], version: &VersionInfo) -> Value {
    let constraints = kept(version, "project_constraints");
    json!({
        "version": version.number.0,
        "environment": Uuid::from_bytes(*environment).to_string(),
        "date": time(version.made_at),
        "released": version.released,
        "version_info": given_info(version),
        "total": version.total,
        "partial_base": version.info.get("partial_base"),
        "pip_config": kept(version, "pip_config"),
        "project_constraints": constraints,
        "undeployable": [],
        "skipped_for_undeployable": [],
        "is_suitable_for_partial_compiles": version.info.get("unsuitable_for_partial") != Some(&json!(true)),
    })
}

/// Versions, newest first.
pub(super) async fn list_v1(call: Call) -> Answer {
    call.only(&["start", "limit"])?;
    let (start, limit) = (call.number("start")?, call.number("limit")?);
    if start.is_some() != limit.is_some() {
        return Err(bad("Start and limit should always be set together."));
    }
    let at = |number: i64| {
        usize::try_from(number).map_err(|_| bad("Start and limit must not be negative."))
    };
    let (start, limit) = (at(start.unwrap_or(0))?, at(limit.unwrap_or(1000))?.min(1000));
    let versions = call.look(|store, key| store.versions(key)).await?;
    let environment = call.environment()?.uuid;
    let shown: Vec<Value> = versions
        .iter()
        .rev()
        .skip(start)
        .take(limit)
        .map(|version| shown_v1(&environment, version))
        .collect();
    plain(json!({"versions": shown, "start": start, "limit": limit, "count": versions.len()}))
}

/// One version with all its resources and what its compile could not know.
pub(super) async fn get_v1(call: Call) -> Answer {
    call.only(&["include_logs", "log_filter", "limit"])?;
    let number = call.path_version("version")?;
    let environment = call.environment()?.uuid;
    let with_logs = call.flag("include_logs")?.unwrap_or(false);
    let limit = call.number("limit")?.and_then(|limit| usize::try_from(limit).ok());
    // Of a large version only some are in memory at once.
    let turn = READS.acquire().await.map_err(|_| ServerError::Stopping)?;
    let (version, rows, unknowns) = call
        .look(move |store, key| {
            let version = version_info(store, key, number)?;
            let mut rows = orrery_store::load_version(store, key, number)?.resources;
            if let Some(limit) = limit.filter(|limit| *limit > 0) {
                rows.truncate(limit);
            }
            Ok((version, rows, store.unknowns(key, number)?))
        })
        .await?;
    let unknowns: Vec<Value> = unknowns
        .into_iter()
        .map(|(unknown, resolved)| {
            json!({
                "environment": Uuid::from_bytes(environment).to_string(),
                "name": unknown.name,
                "resource_id": unknown.resource.map(|id| id.to_string()).unwrap_or_default(),
                "source": unknown.source,
                "version": number.0,
                "resolved": resolved,
                "metadata": {},
            })
        })
        .collect();
    let model = shown_v1(&environment, &version);
    let head = format!(r#"{{"model":{model},"unknowns":{},"resources":["#, Value::from(unknowns));
    let rows = Rows { rows: Arc::new(rows), key: call.key()?, environment, number, with_logs };
    let parts = futures_util::stream::unfold((call.app.clone(), rows, 0, turn), next_part);
    let head = futures_util::stream::iter([Ok(Bytes::from(head))]);
    let tail = futures_util::stream::iter([Ok(Bytes::from_static(b"]}"))]);
    let body = axum::body::Body::from_stream(head.chain(parts).chain(tail));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Whole versions that are read at once, and resources of one that are written at once.
static READS: Semaphore = Semaphore::const_new(4);
const WRITTEN_AT_ONCE: usize = 200;

/// Resources of a version, on their way to a client.
#[derive(Clone)]
struct Rows {
    rows: Arc<Vec<Resource>>,
    key: EnvironmentKey,
    environment: [u8; 16],
    number: VersionNumber,
    with_logs: bool,
}

type Reading = (App, Rows, usize, SemaphorePermit<'static>);

/// The next resources as text, beside the event loop.
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
            let mut row = resources::of_version(resource, environment, number);
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
    Some((written.await, (app, rows, end, turn)))
}

/// Releases a version.
pub(super) async fn release_v1(call: Call) -> Answer {
    call.only(&["push", "agent_trigger_method"])?;
    let number = call.path_version("version")?;
    let environment = call.environment()?.uuid;
    let version = call
        .change(move |store, key, now| {
            store.release_version(key, number, now)?;
            version_info(store, key, number)
        })
        .await?;
    plain(json!({"model": shown_v1(&environment, &version)}))
}

pub(super) async fn promote(call: Call) -> Answer {
    call.only(&["trigger_method"])?;
    let number = call.path_version("version")?;
    call.change(move |store, key, now| store.release_version(key, number, now)).await?;
    done()
}

pub(super) async fn delete(call: Call) -> Answer {
    call.only(&[])?;
    let number = call.path_version("version")?;
    let deleted = call.change(move |store, key, _| store.delete_version(key, number)).await;
    match deleted {
        Err(ServerError::Store(StoreError::VersionInUse(_))) => {
            Err(bad("Cannot delete the active version"))
        }
        Err(error) => Err(error),
        Ok(()) => done(),
    }
}

/// How pip is to be used for a version's code.
pub(super) async fn pip_config(call: Call) -> Answer {
    call.only(&[])?;
    let number = call.path_version("version")?;
    let version = call.look(move |store, key| version_info(store, key, number)).await?;
    data(kept(&version, "pip_config"))
}
