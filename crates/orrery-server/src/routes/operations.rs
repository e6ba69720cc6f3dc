//! Operations: requests to the engine of an environment, such as deploys and repairs, with their
//! progress.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use orrery_api::{Actions, DeployRequest, Operation, OperationProgress, Page, Transitioning};
use orrery_store::{EnvironmentRecord, RequestKey, RequestRecord};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::operations;
use crate::error::ServerError;
use crate::extract::{Body, InEnvironment, Path, Query, page_limit, parse_cursor, take_page};
use crate::state::ServerState;

use super::{environments, time};

pub(super) fn operation_view(environment: &EnvironmentRecord, record: RequestRecord) -> Operation {
    let failed = record.outcome.as_ref().and_then(|outcome| outcome.get("error"));
    let (transitioning, message) = match (&record.finished, failed) {
        (_, Some(error)) => {
            let text = error.as_str().map_or_else(|| error.to_string(), str::to_owned);
            (Transitioning::Error, text)
        }
        (Some(_), None) => {
            (Transitioning::No, record.outcome.as_ref().map(summary).unwrap_or_default())
        }
        (None, None) if is_engine_work(&record.kind) && environment.halted => {
            (Transitioning::Yes, "waiting: the environment is halted".to_owned())
        }
        (None, None) if is_engine_work(&record.kind) && !environment.problem.is_empty() => {
            (Transitioning::Yes, format!("waiting: {}", environment.problem))
        }
        (None, None) if record.taken.is_some() => {
            (Transitioning::Yes, progress_text(record.outcome.as_ref()))
        }
        (None, None) => (Transitioning::Yes, "waiting for the engine".to_owned()),
    };
    let progress = match (&record.finished, &record.outcome) {
        (None, Some(noted)) => serde_json::from_value::<OperationProgress>(noted.clone()).ok(),
        _ => None,
    };
    Operation {
        id: Uuid::from_bytes(record.uuid),
        kind: record.kind,
        request: request_parameters(record.payload),
        created: time(record.created),
        taken: record.taken.map(time),
        finished: record.finished.map(time),
        outcome: record.outcome,
        progress,
        transitioning,
        transitioning_message: message,
        // Operations end on their own; their objects have actions.
        actions: Actions::new(),
    }
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

fn is_engine_work(kind: &str) -> bool {
    !matches!(kind, "clear" | "delete")
}

/// Formats the counts of an outcome.
fn summary(outcome: &Value) -> String {
    const COUNTS: [(&str, &str); 9] = [
        ("deployed", "deployed"),
        ("failed", "failed"),
        ("skipped", "skipped"),
        ("unavailable", "unavailable"),
        ("non_compliant", "not compliant"),
        ("cancelled", "cancelled"),
        ("as_wanted", "unchanged"),
        ("blocked", "blocked"),
        ("withdrawn", "withdrawn"),
    ];
    let Some(matched) = outcome["matched"].as_u64() else { return String::new() };
    if matched == 0 {
        return "no resource selected".to_owned();
    }
    let said = COUNTS.iter().filter_map(|(name, words)| {
        let count = outcome[*name].as_u64().filter(|count| *count > 0)?;
        Some(format!("{count} {words}"))
    });
    said.collect::<Vec<_>>().join(", ")
}

fn progress_text(progress: Option<&Value>) -> String {
    let paused = progress.and_then(|progress| progress["paused_agents"].as_array());
    let names: Vec<&str> = paused.into_iter().flatten().filter_map(Value::as_str).collect();
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
    let location = format!("{path}/operations/{}", Uuid::from_bytes(record.uuid));
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
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<Operation>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let before: Option<i64> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let found = app
        .with_store(move |store| {
            let before = before.map(RequestKey);
            let found = store.records().requests(environment.key, before, limit + 1)?;
            Ok((store.records().environment_by_key(environment.key)?, found))
        })
        .await?;
    let (environment, found) = found;
    let (found, next) = take_page(found, limit, |record| record.key.0);
    let items = found.into_iter().map(|record| operation_view(&environment, record)).collect();
    Ok(Json(Page { items, next }))
}

/// Returns an operation.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/operations/{id}", tag = "operations",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)),
    responses((status = 200, description = "The operation", body = Operation)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
) -> Result<Json<Operation>, ServerError> {
    let found = app
        .with_store(move |store| {
            let found = store.records().request(id.as_bytes())?;
            Ok((store.records().environment_by_key(environment.key)?, found))
        })
        .await?;
    let (environment, found) = found;
    if found.environment != environment.key {
        return Err(ServerError::NotFound { kind: "operation", name: id.to_string() });
    }
    Ok(Json(operation_view(&environment, found)))
}

/// Deploys resources that are not compliant.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/deploy", tag = "operations", params(("environment" = Uuid, Path)),
    request_body = DeployRequest, responses((status = 202, description = "Requested", body = Operation)))]
pub(super) async fn deploy(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    request: Option<Body<DeployRequest>>,
) -> Result<(StatusCode, HeaderMap, Json<Operation>), ServerError> {
    let request = request.map(|Body(request)| request).unwrap_or_default();
    let made = operations::deploy(&app, &environment, request).await?;
    Ok(accepted(&environment, made))
}

/// Verifies all resources and deploys those that are not compliant.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/repair", tag = "operations", params(("environment" = Uuid, Path)),
    request_body = DeployRequest, responses((status = 202, description = "Requested", body = Operation)))]
pub(super) async fn repair(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    request: Option<Body<DeployRequest>>,
) -> Result<(StatusCode, HeaderMap, Json<Operation>), ServerError> {
    let request = request.map(|Body(request)| request).unwrap_or_default();
    let made = operations::repair(&app, &environment, request).await?;
    Ok(accepted(&environment, made))
}
