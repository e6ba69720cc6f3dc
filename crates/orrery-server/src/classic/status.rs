//! Whether the server works, and what it is.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect};
use serde_json::{Value, json};

use super::answer::{Answer, data, told};
use super::call::Call;

async fn store_works(call: &Call) -> Result<(), String> {
    let asked = call.app.with_store(|store| store.records().latest_change()).await;
    asked.map(drop).map_err(|error| error.problem().detail)
}

pub(super) async fn health(call: Call) -> Answer {
    match store_works(&call).await {
        Ok(()) => data(Value::Null),
        Err(reason) => told(StatusCode::INTERNAL_SERVER_ERROR, json!({ "message": reason })),
    }
}

pub(super) async fn server_status(call: Call) -> Answer {
    call.only(&[])?;
    let store = store_works(&call).await;
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

/// The description of the API, as a document or as a page.
pub(super) async fn docs(call: Call) -> Answer {
    call.only(&["format", "token", "swagger_description"])?;
    match call.text("format")? {
        Some("openapi") => data(crate::document::document()),
        _ => Ok(Redirect::temporary("/api/v1/docs").into_response()),
    }
}
