//! Whether the server is alive, and whether it can work.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::app::App;

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

/// The server can work: its store answers.
#[utoipa::path(get, path = "/health/ready", tag = "health", security(()),
    responses((status = 200, description = "Ready", body = Value), (status = 503, description = "Not ready, and why", body = Value)))]
pub(super) async fn ready(State(app): State<App>) -> (StatusCode, Json<Value>) {
    let mut checks = serde_json::Map::new();
    if app.hub().gateway().is_some() {
        checks.insert("gateway".to_owned(), "ok".into());
    }
    let store = app.with_store(|store| store.records().latest_change()).await;
    let (code, status, store) = match store {
        Ok(_) => (StatusCode::OK, "ready", "ok".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, "not ready", error.problem().detail),
    };
    checks.insert("store".to_owned(), store.into());
    (code, Json(json!({"status": status, "checks": checks})))
}
