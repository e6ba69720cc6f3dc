//! Activity of an environment.

use axum::Json;
use axum::extract::State;
use orrery_api::Activity;

use crate::app;
use crate::error::ServerError;
use crate::extract::InEnvironment;
use crate::state::ServerState;

/// Returns what runs, what waits and why, and the next automatic runs.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/activity", tag = "environments", operation_id = "activity",
    params(("environment" = Uuid, Path)),
    responses((status = 200, description = "The activity", body = Activity)))]
pub(super) async fn show(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<Activity>, ServerError> {
    Ok(Json(app::activity::describe(&app, environment).await?))
}
