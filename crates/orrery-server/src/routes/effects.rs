//! Unknown effects, and decisions about them.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{Operation, SettleChoice, SettleRequest, UnknownEffect, UnknownEffects};
use orrery_model::ResourceId;
use orrery_store::{EffectVerdict, NewRequest};
use serde_json::json;
use uuid::Uuid;

use crate::error::ServerError;
use crate::extract::{Body, InEnvironment};
use crate::state::ServerState;

use super::{check_not_deleting, operations, time};

/// Lists unknown effects: non-repeatable, begun, and with a lost outcome.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/unknown-effects", tag = "operations",
    params(("environment" = Uuid, Path)),
    responses((status = 200, description = "All items", body = UnknownEffects)))]
pub(super) async fn list(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<UnknownEffects>, ServerError> {
    let key = environment.key;
    let found = app.with_store(move |store| store.records().unknown_effects(key)).await?;
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
    InEnvironment(environment): InEnvironment,
    Body(request): Body<SettleRequest>,
) -> Result<(StatusCode, HeaderMap, Json<Operation>), ServerError> {
    check_not_deleting(&environment)?;
    let id: Result<ResourceId, _> = request.resource.parse();
    let id = id.map_err(|error| ServerError::field("resource", error.to_string()))?;
    if environment.halted {
        return Err(ServerError::Conflict("the environment is halted: resume it first".to_owned()));
    }
    let choice = match request.choice {
        SettleChoice::Done => EffectVerdict::Done,
        SettleChoice::Again => EffectVerdict::RunAgain,
    };
    let (key, now, uuid) = (environment.key, app.now(), Uuid::new_v4().into_bytes());
    let made = app
        .change(move |store| {
            let payload = json!({"ids": [id.as_str()]});
            let request = NewRequest { uuid, kind: "deploy", payload: &payload };
            store.records().resolve_effect(key, id.as_str(), choice, &request, now)
        })
        .await?;
    app.wake_up();
    Ok(operations::accepted(&environment, made))
}
