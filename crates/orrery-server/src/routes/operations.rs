//! Operations: requests to the engine of an environment, such as deploys and repairs, with their
//! progress.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use orrery_api::{
    Actions, DeployRequest, Operation, OperationKind, OperationProgress, OutcomeCounts, Page,
    Transitioning,
};
use orrery_store::{
    EnvironmentRecord, ProgressRecord, RequestKey, RequestRecord, RequestResult, RunCounts,
    RunProgress,
};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;
use uuid::Uuid;

use crate::access::Right;
use crate::app::operations;
use crate::auth::Caller;
use crate::error::ServerError;
use crate::extract::{
    Body, InEnvironment, Path, Query, encode_cursor, page_limit, parse_cursor, take_page,
};
use crate::state::ServerState;

use super::{environments, permitted_actions, time};

pub(super) fn operation_view(environment: &EnvironmentRecord, record: RequestRecord) -> Operation {
    let is_engine_work = record.kind.is_engine_work();
    let (transitioning, message) = match (&record.finished, &record.result) {
        (_, Some(RequestResult::Failed { error })) => (Transitioning::Error, error.clone()),
        (Some(_), result) => (Transitioning::No, result.as_ref().map(summary).unwrap_or_default()),
        (None, _) if is_engine_work && environment.halted => {
            (Transitioning::Yes, "waiting: the environment is halted".to_owned())
        }
        (None, _) if is_engine_work && !environment.problem.is_empty() => {
            (Transitioning::Yes, format!("waiting: {}", environment.problem))
        }
        (None, _) if record.taken.is_some() => {
            (Transitioning::Yes, progress_text(record.progress.as_ref()))
        }
        (None, _) => (Transitioning::Yes, "waiting for the engine".to_owned()),
    };
    let runs = record.progress.as_ref().and_then(|progress| progress.runs.as_ref());
    let progress = runs.map(|RunProgress { total, done, running, by_outcome }| OperationProgress {
        total: *total as u64,
        done: *done as u64,
        running: running.clone(),
        by_outcome: outcome_counts(*by_outcome),
    });
    Operation {
        id: record.uuid.uuid(),
        environment: Some(environment.uuid.uuid()),
        kind: record.kind.name().parse().unwrap_or(OperationKind::Unknown),
        request: request_parameters(record.kind.payload()),
        actor: record.actor.clone(),
        created: time(record.created),
        taken: record.taken.map(time),
        finished: record.finished.map(time),
        outcome: record.outcome_json(),
        progress,
        transitioning,
        transitioning_message: message,
        actions: Actions::new(),
    }
}

/// Converts an operation with the actions that the caller may execute.
pub(super) fn operation_for(
    caller: &Caller,
    environment: &EnvironmentRecord,
    record: RequestRecord,
) -> Operation {
    let mut actions = Actions::new();
    if record.finished.is_none() && record.kind.is_cancellable() {
        let path = environments::path_of(environment);
        actions.insert("cancel".to_owned(), format!("{path}/operations/{}/cancel", record.uuid));
    }
    let actions = permitted_actions(caller, environment, actions);
    Operation { actions, ..operation_view(environment, record) }
}

fn outcome_counts(counts: RunCounts) -> OutcomeCounts {
    let RunCounts { deployed, changed, failed, skipped, unavailable, non_compliant, cancelled } =
        counts;
    OutcomeCounts { deployed, changed, failed, skipped, unavailable, non_compliant, cancelled }
}

/// Restores the parameters of a request in API names: sent again, they mean the same.
fn request_parameters(mut payload: Value) -> Value {
    const NAMES: [(&str, &str); 2] = [("entity", "type"), ("statuses", "status")];
    let Some(filter) = payload.get_mut("filter").and_then(Value::as_object_mut) else {
        return payload;
    };
    for (kept, sent) in NAMES {
        if let Some(value) = filter.remove(kept) {
            filter.insert(sent.to_owned(), value);
        }
    }
    filter.retain(|_, value| !value.is_null() && *value != json!([]));
    payload
}

/// Formats the counts of a result.
fn summary(result: &RequestResult) -> String {
    let counts = match result {
        RequestResult::Done(Some(counts)) => counts,
        RequestResult::Forgotten => return "no resource selected".to_owned(),
        _ => return String::new(),
    };
    if counts.matched == 0 {
        return "no resource selected".to_owned();
    }
    let listed = [
        (counts.deployed, "deployed"),
        (counts.failed, "failed"),
        (counts.skipped, "skipped"),
        (counts.unavailable, "unavailable"),
        (counts.non_compliant, "not compliant"),
        (counts.cancelled, "cancelled"),
        (counts.compliant, "unchanged"),
        (counts.blocked, "blocked"),
        (counts.withdrawn, "withdrawn"),
    ];
    let listed = listed.iter().filter(|(count, _)| *count > 0);
    listed.map(|(count, words)| format!("{count} {words}")).collect::<Vec<_>>().join(", ")
}

fn progress_text(progress: Option<&ProgressRecord>) -> String {
    let names = progress.map_or(&[][..], |progress| &progress.paused_agents);
    match names.len() {
        0 => "under way".to_owned(),
        1..=5 => format!("waits for paused agents: {}", names.join(", ")),
        more => format!("waits for {more} paused agents: {}, …", names[..5].join(", ")),
    }
}

/// Response for an accepted request.
pub(super) fn accepted(
    environment: &EnvironmentRecord,
    record: RequestRecord,
) -> (StatusCode, HeaderMap, Json<Operation>) {
    let path = environments::path_of(environment);
    let location = format!("{path}/operations/{}", record.uuid);
    let mut headers = HeaderMap::new();
    if let Ok(location) = HeaderValue::from_str(&location) {
        headers.insert(header::LOCATION, location);
    }
    (StatusCode::ACCEPTED, headers, Json(operation_view(environment, record)))
}

/// Filter of the list of operations.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists operations, newest first.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/operations", tag = "operations",
    params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page", body = Page<Operation>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<Operation>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let before: Option<i64> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let found = app
        .with_store(move |store| {
            let before = before.map(RequestKey);
            let found = store.requests().list(environment.key, before, limit + 1)?;
            Ok((store.environments().by_key(environment.key)?, found))
        })
        .await?;
    let (environment, found) = found;
    let (found, next) = take_page(found, limit, |record| record.key.0);
    let items =
        found.into_iter().map(|record| operation_for(&caller, &environment, record)).collect();
    Ok(Json(Page { items, next }))
}

/// Filter of the list of operations of all environments.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EverywhereFilter {
    /// True for unfinished operations only.
    open: Option<bool>,
    /// Maximum number of items. A page can have fewer, even none, without being the last.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists operations of all environments visible to the caller, newest first.
#[utoipa::path(get, path = "/api/v1/operations", tag = "operations", operation_id = "all_operations",
    params(EverywhereFilter), responses((status = 200, description = "A page", body = Page<Operation>)))]
pub(super) async fn list_everywhere(
    State(app): State<ServerState>,
    caller: Caller,
    Query(filter): Query<EverywhereFilter>,
) -> Result<Json<Page<Operation>>, ServerError> {
    let before: Option<i64> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let filter = operations::OperationFilter {
        open: filter.open.unwrap_or(false),
        before: before.map(RequestKey),
        limit: page_limit(filter.limit)?,
    };
    let viewer = caller.clone();
    let is_visible =
        move |record: &EnvironmentRecord| viewer.may_in_environment(Right::View, record);
    let found = operations::list_everywhere(&app, filter, is_visible).await?;
    let items = found.items.into_iter();
    let items = items.map(|(environment, record)| operation_for(&caller, &environment, record));
    let next = found.next.map(|last| encode_cursor(&last.0));
    Ok(Json(Page { items: items.collect(), next }))
}

/// Returns an operation.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/operations/{id}", tag = "operations",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)),
    responses((status = 200, description = "The operation", body = Operation)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
) -> Result<Json<Operation>, ServerError> {
    let (environment, found) = operations::get(&app, environment.key, id).await?;
    Ok(Json(operation_for(&caller, &environment, found)))
}

/// Cancels an operation: what it waits for is withdrawn, and what has run stays. Resources that
/// another operation waits for as well are withdrawn there, too.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/operations/{id}/cancel", tag = "operations",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)),
    responses((status = 202, description = "Requested", body = Operation)))]
pub(super) async fn cancel(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
) -> Result<(StatusCode, HeaderMap, Json<Operation>), ServerError> {
    let made = operations::cancel(&app, &environment, id).await?;
    let made = operations::attribute(&app, made, &caller.name).await?;
    Ok(accepted(&environment, made))
}

/// Deploys resources that are not compliant.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/deploy", tag = "operations", params(("environment" = Uuid, Path)),
    request_body = DeployRequest, responses((status = 202, description = "Requested", body = Operation)))]
pub(super) async fn deploy(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    request: Option<Body<DeployRequest>>,
) -> Result<(StatusCode, HeaderMap, Json<Operation>), ServerError> {
    let request = request.map(|Body(request)| request).unwrap_or_default();
    let made = operations::deploy(&app, &environment, request).await?;
    let made = operations::attribute(&app, made, &caller.name).await?;
    Ok(accepted(&environment, made))
}

/// Verifies all resources and deploys those that are not compliant.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/repair", tag = "operations", params(("environment" = Uuid, Path)),
    request_body = DeployRequest, responses((status = 202, description = "Requested", body = Operation)))]
pub(super) async fn repair(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    request: Option<Body<DeployRequest>>,
) -> Result<(StatusCode, HeaderMap, Json<Operation>), ServerError> {
    let request = request.map(|Body(request)| request).unwrap_or_default();
    let made = operations::repair(&app, &environment, request).await?;
    let made = operations::attribute(&app, made, &caller.name).await?;
    Ok(accepted(&environment, made))
}
