//! Unknown effects, and decisions about them.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{Operation, SettleChoice, SettleRequest, UnknownEffect, UnknownEffects};
use orrery_store::EffectVerdict;

use crate::app::{self, effects};
use crate::auth::Caller;
use crate::error::ServerError;
use crate::extract::{Body, InEnvironment};
use crate::state::ServerState;

use super::{operations, time};

/// Lists unknown effects: non-repeatable, begun, and with a lost outcome.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/unknown-effects", tag = "operations", operation_id = "unknown_effects",
    params(("environment" = Uuid, Path)),
    responses((status = 200, description = "All items", body = UnknownEffects)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<UnknownEffects>, ServerError> {
    let key = environment.key;
    let found = app.with_store(move |store| store.effects().unknown(key)).await?;
    let shown = |effect: orrery_store::BegunEffect| UnknownEffect {
        resource: effect.name,
        version: effect.version.0,
        started: time(effect.started),
        choice: effect.choice.map(|choice| match choice {
            EffectVerdict::Done => SettleChoice::Done,
            EffectVerdict::RunAgain => SettleChoice::Again,
        }),
    };
    Ok(Json(UnknownEffects { items: found.into_iter().map(shown).collect() }))
}

/// Settles an unknown effect: it counts as done, or its resource runs again.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/unknown-effects/settle", tag = "operations",
    params(("environment" = Uuid, Path)), request_body = SettleRequest,
    responses((status = 202, description = "Accepted; the engine applies it", body = Operation)))]
pub(super) async fn settle(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
    Body(request): Body<SettleRequest>,
) -> Result<(StatusCode, HeaderMap, Json<Operation>), ServerError> {
    let made = effects::settle(&app, &environment, &request).await?;
    let made = app::operations::attribute(&app, made, &caller.name).await?;
    Ok(operations::accepted(&environment, made))
}
