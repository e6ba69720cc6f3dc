//! Effects that must not be repeated and of which nobody knows whether they happened, and what people decide about them.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{Operation, SettleChoice, SettleRequest, UnknownEffect, UnknownEffects};
use orrery_model::ResourceId;
use orrery_store::{EffectChoice, NewRequest};
use serde_json::json;
use uuid::Uuid;

use crate::app::App;
use crate::extract::{Body, InEnvironment};
use crate::problem::ServerError;

use super::{active, operations, time};

/// Effects that must not be repeated, were begun, and whose results were lost.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/unknown-effects", tag = "operations",
    params(("environment" = Uuid, Path)),
    responses((status = 200, description = "All of them", body = UnknownEffects)))]
pub(super) async fn list(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<UnknownEffects>, ServerError> {
    let key = environment.key;
    let found = app.with_store(move |store| store.records().unknown_effects(key)).await?;
    let shown = |effect: orrery_store::BegunEffect| UnknownEffect {
        resource: effect.name,
        version: effect.version.0,
        started: time(effect.started),
        choice: effect.choice.map(|choice| match choice {
            EffectChoice::Done => SettleChoice::Done,
            EffectChoice::RunAgain => SettleChoice::Again,
        }),
    };
    Ok(Json(UnknownEffects { items: found.into_iter().map(shown).collect() }))
}

/// Decides about an effect of which nobody knows whether it happened: it counts as done, or it is run again.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/unknown-effects/settle", tag = "operations",
    params(("environment" = Uuid, Path)), request_body = SettleRequest,
    responses((status = 202, description = "The engine acts on it", body = Operation)))]
pub(super) async fn settle(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
    Body(request): Body<SettleRequest>,
) -> Result<(StatusCode, HeaderMap, Json<Operation>), ServerError> {
    active(&environment)?;
    let id: Result<ResourceId, _> = request.resource.parse();
    let id = id.map_err(|error| ServerError::field("resource", error.to_string()))?;
    if environment.halted {
        return Err(ServerError::Conflict("the environment is halted: resume it first".to_owned()));
    }
    let choice = match request.choice {
        SettleChoice::Done => EffectChoice::Done,
        SettleChoice::Again => EffectChoice::RunAgain,
    };
    let (key, now, uuid) = (environment.key, app.now(), Uuid::new_v4().into_bytes());
    let made = app
        .change(move |store| {
            let payload = json!({"ids": [id.as_str()]});
            let request = NewRequest { uuid, kind: "deploy", payload: &payload };
            store.records().choose_effect(key, id.as_str(), choice, &request, now)
        })
        .await?;
    app.nudge();
    Ok(operations::accepted(&environment, made))
}
