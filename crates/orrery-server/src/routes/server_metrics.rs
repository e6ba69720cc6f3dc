//! Metrics of the server process.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

use crate::error::ServerError;
use crate::state::ServerState;

/// Metrics of this process, in the OpenMetrics format.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "All meters", body = String, content_type = "application/openmetrics-text"),
        (status = 401, body = orrery_api::Problem, content_type = "application/problem+json"),
        (status = 403, body = orrery_api::Problem, content_type = "application/problem+json")))]
pub(super) async fn show(State(app): State<ServerState>) -> Result<Response, ServerError> {
    app.metrics().update_connections(app.store());
    app.metrics().update_tasks(app.tasks());
    let text = app.metrics().text().map_err(|error| ServerError::Internal(error.to_string()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response())
}
