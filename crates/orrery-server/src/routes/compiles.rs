//! Compiles: requests, progress and results.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use orrery_api::{
    Actions, Compile, CompileDetails, CompileOutput, CompileStage, CompileState, NewCompile,
    OutputStream, Page, Transitioning,
};
use orrery_compile_service::redact_values;
use orrery_model::{CompileId, Timestamp};
use orrery_store::{
    CompileFilter, CompileRecord, CompileRequest, EnvironmentRecord, OutputChunk, StageRecord,
};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::{environments, join_names, permitted_actions, time};
use crate::app::compiles;
use crate::auth::{Caller, WithAuditDetail};
use crate::error::ServerError;
use crate::extract::{Body, InEnvironment, Path, Query, page_limit, parse_cursor, take_page};
use crate::state::ServerState;

/// Maximum number of output pieces in a response.
const PIECES_MAX: usize = 500;

fn path_of(environment: &EnvironmentRecord, id: CompileId) -> String {
    let path = environments::path_of(environment);
    format!("{path}/compiles/{}", id.uuid())
}

fn compile_view(
    caller: &Caller,
    environment: &EnvironmentRecord,
    record: CompileRecord,
) -> Compile {
    let unchanged = compiles::is_unchanged(&record);
    let state = compiles::state(&record);
    let (transitioning, message) = match state {
        CompileState::Succeeded if unchanged => {
            let number = record.version.map_or_else(String::new, |number| number.0.to_string());
            (Transitioning::No, format!("unchanged: version {number} is still current"))
        }
        CompileState::Succeeded => (Transitioning::No, String::new()),
        CompileState::Failed | CompileState::Cancelled => {
            let first = compiles::problems(&record).into_iter().next();
            let text = first.map(|problem| problem.message);
            (Transitioning::Error, text.unwrap_or_else(|| "the compile failed".to_owned()))
        }
        CompileState::Running => (Transitioning::Yes, "running".to_owned()),
        CompileState::Queued if environment.halted => {
            (Transitioning::Yes, "waiting until the environment resumes".to_owned())
        }
        CompileState::Queued => (Transitioning::Yes, "queued".to_owned()),
    };
    let mut actions = Actions::new();
    if record.completed.is_none() {
        let path = path_of(environment, record.id);
        actions.insert("cancel".to_owned(), format!("{path}/cancel"));
    }
    let actions = permitted_actions(caller, environment, actions);
    let CompileRequest { export, update, reinstall, partial, removed_sets, .. } = record.request;
    Compile {
        id: record.id.uuid(),
        environment: environment.uuid.uuid(),
        state,
        transitioning,
        transitioning_message: message,
        actions,
        requested: time(record.requested),
        started: record.started.map(time),
        completed: record.completed.map(time),
        success: record.success,
        version: record.version.map(|number| number.0),
        unchanged,
        substitute: record.substitute.map(Uuid::from),
        export,
        update,
        reinstall,
        partial,
        removed_sets,
        metadata: record.request.metadata,
        environment_variables: redact_values(record.request.variables),
        mergeable_environment_variables: redact_values(record.request.joined_variables),
        used_environment_variables: record.used.map(|used| redact_values(used.all_variables())),
        links: record.request.links,
    }
}

fn stage_view(record: StageRecord) -> CompileStage {
    CompileStage {
        position: record.position,
        name: record.name,
        command: record.command,
        started: time(record.started),
        completed: record.completed.map(time),
        returncode: record.returncode,
    }
}

fn output_view(record: OutputChunk) -> CompileOutput {
    CompileOutput {
        id: record.id,
        stage: record.position,
        stream: if record.error { OutputStream::Err } else { OutputStream::Out },
        text: record.text,
    }
}

fn request_of(new: NewCompile) -> CompileRequest {
    let mut metadata = new.metadata;
    metadata.entry("type").or_insert_with(|| "api".into());
    if let Some(message) = new.message {
        metadata.insert("message".to_owned(), message.into());
    }
    CompileRequest {
        export: new.export,
        update: new.update,
        reinstall: new.reinstall,
        variables: new.environment_variables,
        joined_variables: new.mergeable_environment_variables,
        partial: new.partial,
        removed_sets: new.removed_sets,
        soft_delete: new.soft_delete,
        exporters: new.exporters,
        metadata,
        notify_failure: new.notify_failed_compile,
        failure_message: new.failed_compile_message,
        links: new.links,
    }
}

/// Requests a compile. It is queued; equal requests are merged.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/compiles", tag = "compiles", params(("environment" = Uuid, Path)),
    request_body = NewCompile,
    responses((status = 202, description = "Queued", body = Compile)))]
pub(super) async fn create(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    body: Option<Body<NewCompile>>,
) -> Result<WithAuditDetail<(StatusCode, HeaderMap, Json<Compile>)>, ServerError> {
    let new = body.map(|Body(new)| new).unwrap_or_default();
    let id = new.id.unwrap_or_else(Uuid::new_v4);
    let record = compiles::create(&app, &environment, id, request_of(new)).await?;
    let mut headers = HeaderMap::new();
    if let Ok(location) = HeaderValue::from_str(&path_of(&environment, id.into())) {
        headers.insert(header::LOCATION, location);
    }
    let compile = compile_view(&caller, &environment, record);
    let given = [
        ("update", compile.update),
        ("reinstall", compile.reinstall),
        ("export", compile.export),
        ("partial", compile.partial),
    ];
    let detail = format!("compile {} requested: {}", compile.id, join_names(&given));
    Ok(WithAuditDetail(detail, (StatusCode::ACCEPTED, headers, Json(compile))))
}

/// Filter of the list of compiles.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Started, or not.
    started: Option<bool>,
    /// Ended, or not.
    completed: Option<bool>,
    /// Succeeded, or failed.
    success: Option<bool>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists compiles, newest first.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/compiles", tag = "compiles", params(("environment" = Uuid, Path), Filter),
    responses((status = 200, description = "A page", body = Page<Compile>)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Query(filter): Query<Filter>,
) -> Result<Json<Page<Compile>>, ServerError> {
    let limit = page_limit(filter.limit)?;
    let before: Option<(i64, Uuid)> = filter.after.as_deref().map(parse_cursor).transpose()?;
    let before = before.map(|(at, id)| (Timestamp(at), id.into()));
    let Filter { started, completed, success, .. } = filter;
    let wanted = CompileFilter { started, completed, success };
    let key = environment.key;
    let found =
        app.with_store(move |store| store.compiles().list(key, wanted, before, limit + 1)).await?;
    let (found, next) = take_page(found, limit, |last| (last.requested.0, last.id.uuid()));
    let items =
        found.into_iter().map(|record| compile_view(&caller, &environment, record)).collect();
    Ok(Json(Page { items, next }))
}

/// Lists queued and running compiles, in execution order.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/compiles/queue", tag = "compiles", params(("environment" = Uuid, Path)),
    responses((status = 200, description = "All items", body = Page<Compile>)))]
pub(super) async fn queue(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<Page<Compile>>, ServerError> {
    let key = environment.key;
    let found = app.with_store(move |store| store.compiles().queue(key)).await?;
    let items =
        found.into_iter().map(|record| compile_view(&caller, &environment, record)).collect();
    Ok(Json(Page { items, next: None }))
}

/// Position in the output.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct OutputPosition {
    /// `next` of the previous response: returns only later output.
    #[param(minimum = 0)]
    after: Option<i64>,
}

/// Returns a compile with its stages and their output. With `after`, returns only new output.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/compiles/{id}", tag = "compiles",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path), OutputPosition),
    responses((status = 200, description = "The compile", body = CompileDetails)))]
pub(super) async fn get(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, Uuid)>,
    Query(tail): Query<OutputPosition>,
) -> Result<Json<CompileDetails>, ServerError> {
    let (key, after) = (environment.key, tail.after.unwrap_or(0));
    let (record, stages, mut output) = app
        .with_store(move |store| {
            let record = store.compiles().get(key, id.into())?;
            let run = record.serving_compile();
            let stages = store.compiles().stages(run)?;
            let output = store.compiles().output(run, after, PIECES_MAX + 1)?;
            Ok((record, stages, output))
        })
        .await?;
    let more = output.len() > PIECES_MAX;
    output.truncate(PIECES_MAX);
    let next = output.last().map_or(after, |last| last.id);
    let errors = compiles::problems(&record);
    Ok(Json(CompileDetails {
        compile: compile_view(&caller, &environment, record),
        errors,
        stages: stages.into_iter().map(stage_view).collect(),
        output: output.into_iter().map(output_view).collect(),
        next,
        more,
    }))
}

/// Cancels a queued or running compile. Refused if it has ended.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/compiles/{id}/cancel", tag = "compiles",
    params(("environment" = Uuid, Path), ("id" = Uuid, Path)),
    responses((status = 200, description = "Current state", body = Compile)))]
pub(super) async fn cancel(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    caller: Caller,
    Path((_, id)): Path<(Uuid, Uuid)>,
) -> Result<Json<Compile>, ServerError> {
    let record = compiles::cancel(&app, &environment, id, caller.name.clone()).await?;
    Ok(Json(compile_view(&caller, &environment, record)))
}
