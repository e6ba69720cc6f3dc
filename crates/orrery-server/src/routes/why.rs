//! Reasons for the status of a resource.

use axum::Json;
use axum::extract::State;
use orrery_api::ResourceWhy;
use uuid::Uuid;

use crate::app;
use crate::auth::Caller;
use crate::error::ServerError;
use crate::extract::{InEnvironment, Path};
use crate::state::ServerState;

use super::{environments, permitted_actions, segment};

/// Returns the reasons for the status of a resource: the requirements that block it, down to the
/// root cause, and the next steps.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/resources/{id}/why", tag = "resources",
    params(("environment" = Uuid, Path), ("id" = String, Path, description = "The id, percent-encoded")),
    responses((status = 200, description = "The reasons", body = ResourceWhy)))]
pub(super) async fn why(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Path((_, id)): Path<(Uuid, String)>,
) -> Result<Json<ResourceWhy>, ServerError> {
    let path = environments::path_of(&environment);
    let mut why = app::why::explain(&app, environment.clone(), id).await?;
    for reason in &mut why.reasons {
        let mut actions = std::mem::take(&mut reason.actions);
        for (name, target) in &mut actions {
            *target = match &reason.agent {
                Some(agent) => format!("{path}/agents/{}/{name}", segment(agent)),
                None => format!("{path}/{name}"),
            };
        }
        reason.actions = permitted_actions(&caller, &environment, actions);
    }
    Ok(Json(why))
}
