//! Compiles: requests, the queue, and reports.

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use orrery_compile_service::redact_values;
use orrery_model::EnvironmentId;
use orrery_server::ServerError;
use orrery_server::app;
use orrery_store::{
    CompileFilter, CompileRecord, CompileRequest, EnvironmentRecord, OutputChunk, StageRecord,
    Store, StoreError,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::paging::{Form, Key, ListDefinition, ListItem, ListRequest};
use crate::request::InmantaRequest;
use crate::resources::derived_uuid;
use crate::response::{ApiResult, data, maybe_time, plain, time};

const AT_ONCE: usize = 1_000;
const COMPILES_MAX: usize = 10_000;
/// Maximum number of output pieces in a report.
const PIECES_MAX: usize = 100_000;

/// Requests a compile.
pub(crate) async fn notify(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["update", "metadata", "reinstall"])?;
    let metadata = request.object("metadata")?.cloned().unwrap_or_else(|| {
        let (kind, message) = (json!("api"), json!("Recompile trigger through API call"));
        Map::from_iter([("type".to_owned(), kind), ("message".to_owned(), message)])
    });
    let compile_request = CompileRequest {
        update: request.flag("update")?.unwrap_or(true),
        reinstall: request.flag("reinstall")?.unwrap_or(false),
        metadata,
        ..CompileRequest::default()
    };
    let environment = request.environment()?;
    let asked =
        app::compiles::request(&request.app, environment, Uuid::new_v4(), compile_request).await?;
    if asked.is_some() {
        return plain(json!({}));
    }
    let warning = "Skipping compile because server compile not enabled for this environment.";
    plain(json!({"metadata": {"warnings": [warning]}}))
}

/// Answers if a compile is running or queued.
pub(crate) async fn is_compiling(request: InmantaRequest) -> ApiResult {
    let queue = request.with_store(|store, key| store.compiles().queue(key)).await?;
    let status = if queue.is_empty() { StatusCode::NO_CONTENT } else { StatusCode::OK };
    Ok(status.into_response())
}

/// Common fields of all forms of a compile.
fn compile_json(environment: EnvironmentId, compile: &CompileRecord) -> Value {
    let request = &compile.request;
    let used = compile.used.as_ref();
    let variables = used.map(|used| {
        let joined = used.joined_variables.clone();
        let mut all = used.variables.clone();
        all.extend(joined);
        all
    });
    json!({
        "id": compile.id.uuid(),
        "remote_id": compile.id.uuid(),
        "environment": environment.uuid(),
        "requested": time(compile.requested),
        "started": maybe_time(compile.started),
        "do_export": request.export,
        "force_update": request.update,
        "metadata": request.metadata,
        "mergeable_environment_variables": redact_values(request.joined_variables.clone()),
        "requested_environment_variables": redact_values(request.variables.clone()),
        "environment_variables": redact_values(variables.unwrap_or_default()),
        "partial": request.partial,
        "removed_resource_sets": request.removed_sets,
        "exporter_plugin": request.exporters.first(),
        "notify_failed_compile": request.notify_failure,
        "failed_compile_message": request.failure_message,
        "links": request.links,
    })
}

fn finished_compile_json(environment: EnvironmentId, compile: &CompileRecord) -> Value {
    let mut shown = compile_json(environment, compile);
    shown["completed"] = maybe_time(compile.completed);
    shown["success"] = json!(compile.success);
    shown["version"] = json!(compile.version.map(|version| version.0));
    shown
}

/// Converts to the v1 form.
fn compile_v1_json(environment: EnvironmentId, compile: &CompileRecord) -> Value {
    let mut shown = finished_compile_json(environment, compile);
    shown["used_environment_variables"] = shown["environment_variables"].clone();
    shown["handled"] = json!(compile.handled);
    shown["substitute_compile_id"] = json!(compile.substitute.map(Uuid::from));
    shown["compile_data"] = compile_data(compile);
    shown["soft_delete"] = json!(compile.request.soft_delete);
    shown["reinstall_project_and_venv"] = json!(compile.request.reinstall);
    shown
}

/// Returns the structured errors of a compile.
fn compile_data(compile: &CompileRecord) -> Value {
    let errors = compile.data.as_ref().and_then(|data| data.get("errors"));
    errors.map_or(Value::Null, |errors| json!({ "errors": errors }))
}

/// Lists the queued requests.
pub(crate) async fn queue(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let environment = request.environment()?.uuid;
    let queue = request.with_store(|store, key| store.compiles().queue(key)).await?;
    let waiting = queue.iter().filter(|compile| compile.started.is_none()).map(|compile| {
        let mut shown = compile_json(environment, compile);
        shown["compile_data"] = compile_data(compile);
        shown
    });
    plain(json!({"queue": waiting.collect::<Vec<_>>()}))
}

fn all(
    store: &Store,
    key: orrery_store::EnvironmentKey,
    filter: CompileFilter,
) -> Result<Vec<CompileRecord>, StoreError> {
    let mut found: Vec<CompileRecord> = Vec::new();
    loop {
        let before = found.last().map(|last| (last.requested, last.id));
        let part = store.compiles().list(key, filter, before, AT_ONCE)?;
        let is_last = part.len() < AT_ONCE;
        found.extend(part);
        if is_last || found.len() >= COMPILES_MAX {
            return Ok(found);
        }
    }
}

const REPORTS: ListDefinition = ListDefinition {
    columns: &[("requested", Form::Time)],
    descending: true,
    filters: &["success", "started", "completed", "requested"],
    with_ids: true,
    others: &[],
};

pub(crate) async fn list(request: InmantaRequest) -> ApiResult {
    let wanted = ListRequest::parse(&request, &REPORTS)?;
    let filter = CompileFilter {
        started: wanted.flag("started")?,
        completed: wanted.flag("completed")?,
        success: wanted.flag("success")?,
    };
    let environment = request.environment()?.uuid;
    let found = request.with_store(move |store, key| all(store, key, filter)).await?;
    let mut items = Vec::new();
    for compile in &found {
        let key = Key::Time(compile.requested);
        if wanted.in_ranges("requested", Form::Time, &key)? {
            let id = compile.id.uuid().to_string();
            items.push(ListItem { key, id, shown: finished_compile_json(environment, compile) });
        }
    }
    wanted.page(items)
}

pub(crate) async fn list_v1(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["start", "end", "limit"])?;
    let (start, end) = (request.time("start")?, request.time("end")?);
    let limit = request.number("limit")?.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(1000).min(1000);
    let environment = request.environment()?.uuid;
    let found = request.with_store(|store, key| all(store, key, CompileFilter::default())).await?;
    let fits = |compile: &&CompileRecord| {
        start.is_none_or(|start| compile.started.is_some_and(|at| at > start))
            && end.is_none_or(|end| compile.started.is_some_and(|at| at < end))
    };
    let shown = found.iter().filter(fits).take(limit).map(|one| compile_v1_json(environment, one));
    plain(json!({"reports": shown.collect::<Vec<_>>()}))
}

fn stages(
    store: &Store,
    compile: &CompileRecord,
) -> Result<(Vec<StageRecord>, Vec<OutputChunk>), StoreError> {
    let run = compile.serving_compile();
    Ok((store.compiles().stages(run)?, store.compiles().output(run, 0, PIECES_MAX)?))
}

fn reports(
    environment: EnvironmentId,
    compile: &CompileRecord,
    (stages, pieces): &(Vec<StageRecord>, Vec<OutputChunk>),
) -> Value {
    let shown = stages.iter().map(|stage| {
        let stream = |error: bool| {
            let own = pieces.iter().filter(|piece| piece.position == stage.position);
            own.filter(|piece| piece.error == error)
                .map(|piece| piece.text.as_str())
                .collect::<String>()
        };
        let name = format!("{} {}", compile.serving_compile().uuid(), stage.position);
        json!({
            "id": derived_uuid(environment, "stage", &name),
            "compile": compile.serving_compile().uuid(),
            "started": time(stage.started),
            "completed": maybe_time(stage.completed),
            "command": stage.command,
            "name": stage.name,
            "errstream": stream(true),
            "outstream": stream(false),
            "returncode": stage.returncode,
        })
    });
    Value::Array(shown.collect())
}

/// Returns a compile with its stages.
pub(crate) async fn details(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let id = request.path_uuid("compile")?;
    let environment = request.environment()?.uuid;
    let (compile, parts) = request
        .with_store(move |store, key| {
            let compile = store.compiles().get(key, id.into())?;
            let parts = stages(store, &compile)?;
            Ok((compile, parts))
        })
        .await?;
    let mut shown = finished_compile_json(environment, &compile);
    shown["compile_data"] = compile_data(&compile);
    shown["reports"] = reports(environment, &compile, &parts);
    data(shown)
}

/// Finds a compile without a given environment.
async fn find_compile(
    request: &InmantaRequest,
) -> Result<(EnvironmentRecord, CompileRecord), ServerError> {
    request.allow_only(&[])?;
    let id = request.path_uuid("compile")?;
    app::compiles::find(&request.app, &request.caller, id.into()).await
}

pub(crate) async fn details_v1(request: InmantaRequest) -> ApiResult {
    let (environment, compile) = find_compile(&request).await?;
    let kept = compile.clone();
    let parts = request.app.with_store(move |store| stages(store, &kept)).await?;
    let mut shown = compile_v1_json(environment.uuid, &compile);
    shown["reports"] = reports(environment.uuid, &compile, &parts);
    plain(json!({ "report": shown }))
}

pub(crate) async fn errors(request: InmantaRequest) -> ApiResult {
    let (_, compile) = find_compile(&request).await?;
    data(compile_data(&compile))
}
