//! Whether the server is alive, and whether it can work.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use orrery_store::StoreError;
use serde_json::{Value, json};

use crate::app::App;
use crate::gateway::ALIVE_WITHIN;
use crate::problem::ServerError;

/// How long the store may take to answer.
const STORE_WITHIN: Duration = Duration::from_secs(2);

/// What the last try to write to the store is remembered as.
const PROBE: &str = "written to";
const FAILED: &str = "it failed; the server's log tells more";

/// Alive and able to work, with reasons.
#[utoipa::path(get, path = "/health", tag = "health", security(()),
    responses((status = 200, description = "All is well", body = Value), (status = 503, description = "Not able to work", body = Value)))]
pub(super) async fn health(state: State<App>) -> (StatusCode, Json<Value>) {
    ready(state).await
}

/// The process answers.
#[utoipa::path(get, path = "/health/live", tag = "health", security(()),
    responses((status = 200, description = "Alive", body = Value)))]
pub(super) async fn live() -> Json<Value> {
    Json(json!({"status": "live"}))
}

/// The server can work: its store answers, and each of its roles goes on.
#[utoipa::path(get, path = "/health/ready", tag = "health", security(()),
    responses((status = 200, description = "Ready", body = Value), (status = 503, description = "Not ready, and why", body = Value)))]
pub(super) async fn ready(State(app): State<App>) -> (StatusCode, Json<Value>) {
    // The first answer waits for the first try.
    if app.writes().begin() {
        let probe = tokio::spawn(probe_writes(app.clone()));
        let _ = tokio::time::timeout(STORE_WITHIN, probe).await;
    }
    let gateway = app.hub().gateway();
    let own = gateway.as_ref().map(|gateway| gateway.id.into_bytes());
    let look = app.with_store(move |store| {
        store.records().latest_change()?;
        let Some(own) = own else { return Ok(true) };
        Ok(store.records().gateways(ALIVE_WITHIN)?.iter().any(|gateway| gateway.uuid == own))
    });
    // Who asks decides by the answer whether to send requests here, and must not wait as long as they would.
    let answer = tokio::time::timeout(STORE_WITHIN, look).await;
    let unanswered = answer.is_err();
    let answer = answer.unwrap_or(Ok(true));
    let mut checks: Vec<(&str, Option<String>)> = app.pulse().read();
    if gateway.is_some() {
        let silent = "other servers do not know of it: it could not tell the database lately";
        let trouble = matches!(answer, Ok(false)).then(|| silent.to_owned());
        checks.push(("gateway", trouble));
    }
    let trouble = match unanswered {
        true => Some(format!("it does not answer within {} seconds", STORE_WITHIN.as_secs())),
        false => answer.err().map(|error| told(&error).to_owned()),
    };
    let trouble = trouble.or_else(|| app.writes().trouble().map(str::to_owned));
    checks.push(("store", trouble));
    let well = checks.iter().all(|(_, trouble)| trouble.is_none());
    let (code, status) = match well {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    let checks: serde_json::Map<String, Value> = checks
        .into_iter()
        .map(|(name, trouble)| (name.to_owned(), trouble.unwrap_or_else(|| "ok".to_owned()).into()))
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

/// Tries whether the store can be written to: a disk that is full still answers questions.
async fn probe_writes(app: App) {
    let now = app.now();
    let tried =
        app.with_store(move |store| store.records().remember(PROBE, &now.0.to_string())).await;
    let trouble = tried.err().map(|error| match told(&error) {
        FAILED => "it cannot be written to; the server's log tells more",
        told => told,
    });
    app.writes().end(trouble);
}

/// Why the store is of no use. Everybody may read this, so it does not say where the database is; the log does.
fn told(error: &ServerError) -> &'static str {
    let store = match error {
        ServerError::Store(error) => error,
        ServerError::SharedStore(error) => error,
        ServerError::Stopping => return "the server is stopping",
        _ => return FAILED,
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
