//! Dry runs: predicted changes of a version.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{
    Actions, AttributeChange, DryRun, DryRunCause, DryRunChange, DryRunRisk, DryRunStatus,
    Operation, Page, SourceLocation, Transitioning,
};
use orrery_model::{Timestamp, VersionNumber};
use orrery_store::{DryRunRecord, DryRunResult, EnvironmentRecord, StoreError};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::dry_runs;
use crate::auth::Caller;
use crate::error::ServerError;
use crate::extract::{InEnvironment, Path, Query, page_limit, parse_cursor, take_page};
use crate::state::ServerState;

use super::{environments, operations, parse_filter, parse_stored, permitted_actions, time};

fn dry_run_view(
    caller: &Caller,
    environment: &EnvironmentRecord,
    record: DryRunRecord,
    counts: Vec<(String, u64)>,
) -> Result<DryRun, StoreError> {
    let mut actions = Actions::new();
    if record.finished.is_some() && !environment.halted && !environment.deleting {
        // Repeats the dry run, to see the current differences.
        let path = environments::path_of(environment);
        let again = format!("{path}/versions/{}/dry-runs", record.version);
        actions.insert("repeat".to_owned(), again);
    }
    let actions = permitted_actions(caller, environment, actions);
    let (transitioning, message) = match record.finished {
        Some(_) => (Transitioning::No, String::new()),
        None => (Transitioning::Yes, format!("{} of {} to do", record.todo, record.total)),
    };
    let mut by_status = BTreeMap::new();
    for (status, count) in counts {
        by_status.insert(parse_stored("status of a dry run", &status)?, count);
    }
    Ok(DryRun {
        id: record.uuid.uuid(),
        version: record.version.0,
        created: time(record.created),
        finished: record.finished.map(time),
        total: record.total,
        todo: record.todo,
        by_status,
        transitioning,
        transitioning_message: message,
        actions,
    })
}

/// Starts a dry run of a version. The outcome of the operation contains its id.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/versions/{number}/dry-runs", tag = "dry runs",
    params(("environment" = Uuid, Path), ("number" = u32, Path)),
    responses((status = 202, description = "Started; `request.dry_run` is the id of the dry run", body = Operation)))]
pub(super) async fn create(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, number)): Path<(Uuid, u32)>,
) -> Result<(StatusCode, HeaderMap, Json<Operation>), ServerError> {
    let (_, request) = dry_runs::begin(&app, &environment, VersionNumber(number)).await?;
    let request = crate::app::operations::attribute(&app, request, &caller.name).await?;
    Ok(operations::accepted(&environment, request))
}

/// Pagination parameters.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Pagination {
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists the dry runs of a version, newest first.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/versions/{number}/dry-runs", tag = "dry runs",
    params(("environment" = Uuid, Path), ("number" = u32, Path), Pagination),
    responses((status = 200, description = "A page", body = Page<DryRun>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, number)): Path<(Uuid, u32)>,
    Query(part): Query<Pagination>,
) -> Result<Json<Page<DryRun>>, ServerError> {
    let limit = page_limit(part.limit)?;
    let after: Option<(i64, Uuid)> = part.after.as_deref().map(parse_cursor).transpose()?;
    let after = after.map(|(created, id)| (Timestamp(created), id.into()));
    let (key, number) = (environment.key, VersionNumber(number));
    let found =
        app.with_store(move |store| dry_runs::list(store, key, number, after, limit + 1)).await?;
    let (found, next) = take_page(found, limit, |(run, _)| (run.created.0, run.uuid.uuid()));
    let views = found.into_iter();
    let views = views.map(|(run, counts)| dry_run_view(&caller, &environment, run, counts));
    let items = views.collect::<Result<_, _>>()?;
    Ok(Json(Page { items, next }))
}

/// Returns a dry run.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/versions/{number}/dry-runs/{id}", tag = "dry runs",
    params(("environment" = Uuid, Path), ("number" = u32, Path), ("id" = Uuid, Path)),
    responses((status = 200, description = "The dry run", body = DryRun)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, number, id)): Path<(Uuid, u32, Uuid)>,
) -> Result<Json<DryRun>, ServerError> {
    let (key, number) = (environment.key, VersionNumber(number));
    let (record, counts) = app
        .with_store(move |store| {
            let record = dry_runs::get(store, key, number, id.into())?;
            let counts = store.dry_runs().counts(record.uuid)?;
            Ok((record, counts))
        })
        .await?;
    Ok(Json(dry_run_view(&caller, &environment, record, counts)?))
}

/// Filter of the results of a dry run.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangesFilter {
    /// Status.
    #[param(value_type = Option<DryRunStatus>)]
    status: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Data of a resource as a whole, beside its attributes.
#[derive(Debug, Default, Deserialize)]
struct ResourcePrediction {
    cause: Option<DryRunCause>,
    risk: Option<DryRunRisk>,
    source: Option<SourceLocation>,
}

/// Parses attributes in both stored forms: a list, or an object by name. A list entry without a
/// name describes the resource as a whole.
fn changes(value: Value) -> Result<(Vec<AttributeChange>, ResourcePrediction), StoreError> {
    let unreadable =
        |error: serde_json::Error| StoreError::Unreadable(format!("result of a dry run: {error}"));
    let mut whole = ResourcePrediction::default();
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
                whole = serde_json::from_value(other).map_err(unreadable)?;
            }
            serde_json::from_value(Value::Array(named)).map_err(unreadable)?
        }
        _ => Vec::new(),
    };
    Ok((attributes, whole))
}

fn change_view(result: DryRunResult) -> Result<DryRunChange, StoreError> {
    let (changes, ResourcePrediction { cause, risk, source }) = changes(result.changes)?;
    let status = parse_stored("status of a dry run", &result.status)?;
    Ok(DryRunChange { resource: result.resource, status, changes, cause, risk, source })
}

/// Lists the results of a dry run by resource id.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/versions/{number}/dry-runs/{id}/changes", tag = "dry runs",
    params(("environment" = Uuid, Path), ("number" = u32, Path), ("id" = Uuid, Path), ChangesFilter),
    responses((status = 200, description = "A page", body = Page<DryRunChange>)))]
pub(super) async fn results(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, number, id)): Path<(Uuid, u32, Uuid)>,
    Query(filter): Query<ChangesFilter>,
) -> Result<Json<Page<DryRunChange>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let after: String = filter.after.as_deref().map(parse_cursor).transpose()?.unwrap_or_default();
    let status: Option<DryRunStatus> = parse_filter("status", filter.status.as_deref())?;
    let found = app
        .with_store(move |store| {
            dry_runs::get(store, environment.key, VersionNumber(number), id.into())?;
            let status = status.map(DryRunStatus::as_str);
            store.dry_runs().results(id.into(), status, &after, limit + 1)
        })
        .await?;
    let (found, next) = take_page(found, limit, |result| result.resource.clone());
    let items = found.into_iter().map(change_view).collect::<Result<_, _>>()?;
    Ok(Json(Page { items, next }))
}
