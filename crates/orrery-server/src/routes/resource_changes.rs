//! Changes of resources after a position in the change feed.

use axum::Json;
use axum::extract::State;
use orrery_api::ResourceChanges;
use orrery_store::ChangeSeq;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app;
use crate::error::ServerError;
use crate::extract::{InEnvironment, Query};
use crate::state::ServerState;

use super::resources::summary;

/// Start of the changes.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Start {
    /// Position of the previous answer, or of an event. Without it, the answer has the present
    /// position only.
    since: Option<i64>,
}

/// Lists the resources that changed after a position, as they are now.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/resource-changes", tag = "resources", operation_id = "changes",
    params(("environment" = Uuid, Path), Start),
    responses((status = 200, description = "The changes", body = ResourceChanges)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
    Query(start): Query<Start>,
) -> Result<Json<ResourceChanges>, ServerError> {
    let since = start.since.map(ChangeSeq);
    let found = app
        .with_store(move |store| app::resource_changes::since(store, environment.key, since))
        .await?;
    let reset = found.lines.is_none();
    let items = found.lines.unwrap_or_default().into_iter().map(summary).collect();
    Ok(Json(ResourceChanges { items, reset, position: found.position.0 }))
}
