//! Health: liveness and readiness.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use orrery_gateway::HEARTBEAT_MAX_AGE;
use orrery_store::StoreError;
use serde_json::{Value, json};

use crate::services::ServiceError;
use crate::state::ServerState;
use crate::task_status::TaskStatus;

use super::time;

/// Timeout of the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Meta key of the write probe.
const PROBE: &str = "written to";
const FAILED: &str = "failed: see the server's log";

/// Returns liveness and readiness, with reasons, and the status of maintenance tasks.
#[utoipa::path(get, path = "/health", tag = "health", security(()),
    responses((status = 200, description = "Healthy", body = Value), (status = 503, description = "Unhealthy", body = Value)))]
pub(super) async fn health(State(app): State<ServerState>) -> (StatusCode, Json<Value>) {
    let tasks = app.tasks().all();
    let (code, Json(mut answer)) = ready(State(app)).await;
    if !tasks.is_empty() {
        let tasks: serde_json::Map<String, Value> =
            tasks.iter().map(|status| (status.name.to_owned(), task_view(status))).collect();
        answer["maintenance"] = tasks.into();
    }
    (code, Json(answer))
}

/// Converts the status of a maintenance task to its API form.
fn task_view(status: &TaskStatus) -> Value {
    let (last_run, took) = status.last_run.unzip();
    json!({
        "period_seconds": status.period.as_secs(),
        "result": status.result.as_str(),
        "last_run": last_run.map(time),
        "last_run_seconds": took.map(|took| took.as_secs_f64()),
        "last_success": status.last_success.map(time),
        "runs": status.runs,
        "failures": status.failures,
    })
}

/// Liveness: the process responds.
#[utoipa::path(get, path = "/health/live", tag = "health", security(()),
    responses((status = 200, description = "Alive", body = Value)))]
pub(super) async fn live() -> Json<Value> {
    Json(json!({"status": "live"}))
}

/// Readiness: the store responds, and all roles have a recent heartbeat.
#[utoipa::path(get, path = "/health/ready", tag = "health", security(()),
    responses((status = 200, description = "Ready", body = Value), (status = 503, description = "Not ready, with reasons", body = Value)))]
pub(super) async fn ready(State(app): State<ServerState>) -> (StatusCode, Json<Value>) {
    // The first response waits for the first probe.
    if app.writes().begin() {
        let probe = tokio::spawn(probe_writes(app.clone()));
        let _ = tokio::time::timeout(STORE_TIMEOUT, probe).await;
    }
    let gateway = app.agent_sessions().gateway();
    let own = gateway.as_ref().map(|gateway| gateway.id.into());
    let look = app.with_store(move |store| {
        store.changes().latest()?;
        let Some(own) = own else { return Ok(true) };
        Ok(store.gateways().list(HEARTBEAT_MAX_AGE)?.iter().any(|gateway| gateway.uuid == own))
    });
    // Load balancers decide by this response and need it sooner than requests time out.
    let answer = tokio::time::timeout(STORE_TIMEOUT, look).await;
    let unanswered = answer.is_err();
    let answer = answer.unwrap_or(Ok(true));
    let mut checks: Vec<(&str, Option<String>)> = app.heartbeats().statuses();
    if gateway.is_some() {
        let silent = "its heartbeat is not in the database: other servers do not see it";
        let failure = matches!(answer, Ok(false)).then(|| silent.to_owned());
        checks.push(("gateway", failure));
    }
    let failure = match unanswered {
        true => Some(format!("it does not answer within {} seconds", STORE_TIMEOUT.as_secs())),
        false => answer.err().map(|error| public_reason(&error).to_owned()),
    };
    let failure = failure.or_else(|| app.writes().error().map(str::to_owned));
    checks.push(("store", failure));
    let well = checks.iter().all(|(_, failure)| failure.is_none());
    let (code, status) = match well {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    let checks: serde_json::Map<String, Value> = checks
        .into_iter()
        .map(|(name, failure)| (name.to_owned(), failure.unwrap_or_else(|| "ok".to_owned()).into()))
        .collect();
    let mut answer = json!({"status": status, "checks": checks});
    if let Some(isolation) = app.settings().isolation {
        answer["isolation"] = isolation.into();
    }
    if let Some(own_machine) = app.settings().own_machine {
        answer["own_machine"] = own_machine.into();
    }
    (code, Json(answer))
}

/// Probes writes to the store: a store with a full disk still answers reads.
async fn probe_writes(app: ServerState) {
    let now = app.now();
    let tried = app.with_store(move |store| store.meta().put(PROBE, &now.0.to_string())).await;
    let failure = tried.err().map(|error| match public_reason(&error) {
        FAILED => "not writable: see the server's log",
        public_reason => public_reason,
    });
    app.writes().end(failure);
}

/// Public reason for an unusable store, without its location. The log has the details.
fn public_reason(error: &ServiceError) -> &'static str {
    let store = match error {
        ServiceError::Store(error) => error,
        ServiceError::Stopping => return "the server is stopping",
    };
    tracing::warn!(error = store as &dyn std::error::Error, "the server is not ready");
    match store {
        StoreError::Unreachable { .. } => "the database cannot be reached",
        StoreError::ConnectionLost { .. } => "the connection to the database was lost",
        StoreError::NoConnection { .. } => "all connections to the database are in use",
        StoreError::Busy { .. } | StoreError::Contended { .. } => "the database is busy",
        StoreError::Full { .. } => "the disk of the database is full",
        _ => FAILED,
    }
}
