//! Health, status and documentation of the server.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect};
use orrery_server::ServerError;
use serde_json::{Value, json};

use crate::request::InmantaRequest;
use crate::response::{ApiResult, data, with_status};

async fn store_works(request: &InmantaRequest) -> Result<(), String> {
    let asked = request.app.with_store(|store| store.changes().latest()).await;
    asked.map(drop).map_err(|error| ServerError::from(error).problem().detail)
}

pub(crate) async fn health(request: InmantaRequest) -> ApiResult {
    match store_works(&request).await {
        Ok(()) => data(Value::Null),
        Err(reason) => with_status(StatusCode::INTERNAL_SERVER_ERROR, json!({ "message": reason })),
    }
}

pub(crate) async fn server_status(request: InmantaRequest) -> ApiResult {
    request.allow_only(&[])?;
    let store = store_works(&request).await;
    let status = if store.is_ok() { "OK" } else { "Error" };
    let version = env!("CARGO_PKG_VERSION");
    let slice = |name: &str, status: &str, message: Option<String>| json!({"name": name, "status": {}, "reported_status": status, "message": message});
    data(json!({
        "product": "Orrery",
        "edition": "Open Source Edition",
        "version": version,
        "license": "Apache-2.0",
        "extensions": [{"name": "core", "version": version, "package": "orrery"}],
        "slices": [
            slice("core.server", "OK", None),
            slice("core.database", status, store.err()),
        ],
        "features": [],
        "status": status,
        "python_version": "",
        "postgresql_version": null,
    }))
}

/// Returns the API documentation, as a document or a page.
pub(crate) async fn docs(request: InmantaRequest) -> ApiResult {
    request.allow_only(&["format", "token", "swagger_description"])?;
    match request.text("format")? {
        Some("openapi") => data(orrery_server::document()),
        _ => Ok(Redirect::temporary("/api/v1/docs").into_response()),
    }
}
