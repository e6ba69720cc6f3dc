//! Dry runs: what a version would change.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{
    Actions, AttributeChange, DryRun, DryRunChange, Operation, Page, SourcePlace, Transitioning,
};
use orrery_model::{Timestamp, VersionNumber};
use orrery_store::{DryRunRecord, DryRunResult, EnvironmentRecord, StoreError};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::App;
use crate::auth::Caller;
use crate::extract::{InEnvironment, Path, Query, limit_of, page, place};
use crate::problem::ServerError;
use crate::versions::version_info;

use super::{active, environments, offered, operations, time};

fn shown(
    caller: &Caller,
    environment: &EnvironmentRecord,
    record: DryRunRecord,
    counts: Vec<(String, u64)>,
) -> DryRun {
    let mut actions = Actions::new();
    if record.finished.is_some() && !environment.halted && !environment.deleting {
        // Once more, to see what has changed.
        let path = environments::path_of(environment);
        let again = format!("{path}/versions/{}/dry-runs", record.version);
        actions.insert("repeat".to_owned(), again);
    }
    let actions = offered(caller, environment, actions);
    let (transitioning, message) = match record.finished {
        Some(_) => (Transitioning::No, String::new()),
        None => (Transitioning::Yes, format!("{} of {} to do", record.todo, record.total)),
    };
    DryRun {
        id: Uuid::from_bytes(record.uuid),
        version: record.version.0,
        created: time(record.created),
        finished: record.finished.map(time),
        total: record.total,
        todo: record.todo,
        by_status: counts.into_iter().collect(),
        transitioning,
        transitioning_message: message,
        actions,
    }
}

/// Begins to find out what a version would change. The outcome of the operation names the dry run.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/versions/{number}/dry-runs", tag = "dry runs",
    params(("environment" = Uuid, Path), ("number" = u32, Path)),
    responses((status = 202, description = "Begun; `request.dry_run` is the id of the dry run", body = Operation)))]
pub(super) async fn create(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, number)): Path<(Uuid, u32)>,
) -> Result<(StatusCode, HeaderMap, Json<Operation>), ServerError> {
    active(&environment)?;
    if environment.halted {
        return Err(ServerError::Conflict("the environment is halted: resume it first".to_owned()));
    }
    let (key, now) = (environment.key, app.now());
    let ids = (Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes());
    let (_, request) = app
        .change(move |store| store.records().create_dry_run(key, ids, VersionNumber(number), now))
        .await?;
    Ok(operations::accepted(&environment, request))
}

/// A part of a list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// The dry runs of a version, newest first.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/versions/{number}/dry-runs", tag = "dry runs",
    params(("environment" = Uuid, Path), ("number" = u32, Path), Part),
    responses((status = 200, description = "A page of them", body = Page<DryRun>)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, number)): Path<(Uuid, u32)>,
    Query(part): Query<Part>,
) -> Result<Json<Page<DryRun>>, ServerError> {
    let limit = limit_of(part.limit)?;
    let after: Option<(i64, Uuid)> = part.after.as_deref().map(place).transpose()?;
    let (items, next) = app
        .with_store(move |store| {
            let number = VersionNumber(number);
            version_info(store, environment.key, number)?;
            let records = store.records();
            let after = after.map(|(created, id)| (Timestamp(created), id.into_bytes()));
            let found = records.dry_runs_after(environment.key, number, after, limit + 1)?;
            let (found, next) =
                page(found, limit, |run| (run.created.0, Uuid::from_bytes(run.uuid)));
            let mut items = Vec::with_capacity(found.len());
            for record in found {
                let counts = records.dry_run_counts(&record.uuid)?;
                items.push(shown(&caller, &environment, record, counts));
            }
            Ok((items, next))
        })
        .await?;
    Ok(Json(Page { items, next }))
}

/// One dry run.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/versions/{number}/dry-runs/{id}", tag = "dry runs",
    params(("environment" = Uuid, Path), ("number" = u32, Path), ("id" = Uuid, Path)),
    responses((status = 200, description = "The dry run", body = DryRun)))]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, number, id)): Path<(Uuid, u32, Uuid)>,
) -> Result<Json<DryRun>, ServerError> {
    let found = app
        .with_store(move |store| {
            let record = store.records().dry_run(environment.key, id.as_bytes())?;
            check_version(&record, number)?;
            let counts = store.records().dry_run_counts(id.as_bytes())?;
            Ok(shown(&caller, &environment, record, counts))
        })
        .await?;
    Ok(Json(found))
}

fn check_version(record: &DryRunRecord, number: u32) -> Result<(), StoreError> {
    if record.version.0 == number {
        return Ok(());
    }
    let name = Uuid::from_bytes(record.uuid).to_string();
    Err(StoreError::NotFound { kind: "dry run", name })
}

/// Which results of a dry run to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangesFilter {
    /// Only those: `added`, `deleted`, `modified`, `unmodified`, `agent_down`, `undefined`, `skipped_for_undefined`, `failed`.
    status: Option<String>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before.
    after: Option<String>,
}

const STATUSES: [&str; 8] = [
    "added",
    "deleted",
    "modified",
    "unmodified",
    "agent_down",
    "undefined",
    "skipped_for_undefined",
    "failed",
];

/// What is kept of a resource as a whole, beside its attributes.
#[derive(Debug, Default, Deserialize)]
struct Whole {
    cause: Option<String>,
    risk: Option<String>,
    source: Option<SourcePlace>,
}

/// Attributes in either form in which they are kept: a list, or an object of pairs by name. In a list, what has no name tells of the
/// resource as a whole.
fn changes(value: Value) -> (Vec<AttributeChange>, Whole) {
    let mut whole = Whole::default();
    let attributes = match value {
        Value::Object(object) => object
            .into_iter()
            .map(|(name, mut pair)| AttributeChange {
                name,
                current: pair["current"].take(),
                desired: pair["desired"].take(),
            })
            .collect(),
        Value::Array(list) => {
            let (named, other): (Vec<Value>, Vec<Value>) =
                list.into_iter().partition(|one| one.get("name").is_some());
            if let Some(other) = other.into_iter().next() {
                whole = serde_json::from_value(other).unwrap_or_default();
            }
            serde_json::from_value(Value::Array(named)).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    (attributes, whole)
}

fn change(result: DryRunResult) -> DryRunChange {
    let (changes, Whole { cause, risk, source }) = changes(result.changes);
    DryRunChange { resource: result.resource, status: result.status, changes, cause, risk, source }
}

/// What a dry run found, in the order of ids.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/versions/{number}/dry-runs/{id}/changes", tag = "dry runs",
    params(("environment" = Uuid, Path), ("number" = u32, Path), ("id" = Uuid, Path), ChangesFilter),
    responses((status = 200, description = "A page of it", body = Page<DryRunChange>)))]
pub(super) async fn results(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Path((_, number, id)): Path<(Uuid, u32, Uuid)>,
    Query(filter): Query<ChangesFilter>,
) -> Result<Json<Page<DryRunChange>>, ServerError> {
    let limit = limit_of(filter.limit)?;
    let after: String = filter.after.as_deref().map(place).transpose()?.unwrap_or_default();
    if let Some(status) = filter.status.as_deref().filter(|status| !STATUSES.contains(status)) {
        let text = format!("status: {status:?} is none of {}", STATUSES.join(", "));
        return Err(ServerError::rule("bad-filter", text));
    }
    let found = app
        .with_store(move |store| {
            let record = store.records().dry_run(environment.key, id.as_bytes())?;
            check_version(&record, number)?;
            let status = filter.status.as_deref();
            store.records().dry_run_results(id.as_bytes(), status, &after, limit + 1)
        })
        .await?;
    let (found, next) = page(found, limit, |result| result.resource.clone());
    Ok(Json(Page { items: found.into_iter().map(change).collect(), next }))
}
