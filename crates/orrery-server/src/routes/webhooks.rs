//! Webhooks: the secret of an environment's webhook, and what forges tell.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use orrery_api::{NewWebhookSecret, Problem, Webhook, WebhookReceived};
use orrery_model::SecretText;
use orrery_store::{EnvironmentKey, EnvironmentRecord, StoreError};
use uuid::Uuid;

use crate::app::App;
use crate::auth::{Caller, Minted, Noted};
use crate::compiling::{self, RepositoryError};
use crate::extract::{InEnvironment, Path, read_bytes};
use crate::forge::{Event, Signature, read_event};
use crate::problem::ServerError;
use crate::vault::{RESERVED, VaultError};

use super::{active, time};

fn secret_name() -> String {
    format!("{RESERVED}webhook")
}

fn path_of(environment: &EnvironmentRecord) -> String {
    format!("/api/v1/webhooks/{}", Uuid::from_bytes(environment.uuid))
}

fn failed(error: VaultError) -> ServerError {
    match error {
        VaultError::Store(error) => error.into(),
        error => {
            tracing::error!(%error, "the secret of a webhook cannot be used");
            ServerError::Unavailable(error.to_string())
        }
    }
}

/// Where the webhook of an environment is, and whether it has a secret.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/webhook", tag = "webhooks", params(("environment" = Uuid, Path)),
    responses((status = 200, body = Webhook), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<Webhook>, ServerError> {
    let key = environment.key;
    let found = app
        .with_store(move |store| match store.records().secret(Some(key), &secret_name()) {
            Err(StoreError::NotFound { .. }) => Ok(None),
            found => found.map(Some),
        })
        .await?;
    let updated = found.map(|secret| time(secret.updated));
    Ok(Json(Webhook { path: path_of(&environment), enabled: updated.is_some(), updated }))
}

/// Gives the webhook of an environment a new secret, which is shown this once. An older one is of no use any more.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/webhook", tag = "webhooks", params(("environment" = Uuid, Path)),
    responses((status = 201, description = "The secret", body = NewWebhookSecret), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn renew(
    State(app): State<App>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
) -> Result<Noted<(StatusCode, Json<NewWebhookSecret>)>, ServerError> {
    // The secret has no end of its own, and would outlive a token.
    caller.need_person()?;
    active(&environment)?;
    if environment.repository.is_empty() {
        let detail = format!("{}: {}", environment.name, RepositoryError::None);
        let status = StatusCode::CONFLICT;
        return Err(ServerError::Refused { status, code: "no-repository", detail });
    }
    let secret = Minted::webhook()?.secret;
    let (vault, now, key) = (app.vault().clone(), app.now(), environment.key);
    let kept = secret.clone();
    // With the store, so that the change is that of the request: one that is repeated must not replace the secret again.
    let put = app.change(move |_| Ok(vault.put(Some(key), &secret_name(), &kept, now))).await?;
    put.map_err(failed)?;
    let answer = NewWebhookSecret { path: path_of(&environment), secret };
    Ok(Noted("new secret of the webhook".to_owned(), (StatusCode::CREATED, Json(answer))))
}

/// Switches the webhook of an environment off.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/webhook", tag = "webhooks", params(("environment" = Uuid, Path)),
    responses((status = 204, description = "It is off"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    State(app): State<App>,
    InEnvironment(environment): InEnvironment,
) -> Result<Noted<StatusCode>, ServerError> {
    let (key, now) = (environment.key, app.now());
    app.change(move |store| store.records().delete_secret(Some(key), &secret_name(), now)).await?;
    Ok(Noted("webhook switched off".to_owned(), StatusCode::NO_CONTENT))
}

/// The same for every request that proves nothing, whether the environment, its webhook or the proof is missing.
fn unproven() -> ServerError {
    ServerError::Unauthenticated("the webhook does not exist, or its signature is wrong")
}

/// Takes what GitHub, GitLab, Gitea or Forgejo tells. The request is signed with the secret of the webhook, as each of them does. A push to the
/// branch that the environment follows has the server look at the branch at once.
#[utoipa::path(post, path = "/api/v1/webhooks/{environment}", tag = "webhooks", params(("environment" = Uuid, Path)),
    request_body(content = serde_json::Value, description = "As the forge sends it"),
    responses((status = 200, description = "Nothing to do", body = WebhookReceived), (status = 202, description = "The branch is looked at", body = WebhookReceived),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn receive(
    State(app): State<App>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Noted<(StatusCode, Json<WebhookReceived>)>, ServerError> {
    let (parts, body) = request.into_parts();
    let body = read_bytes(Request::from_parts(parts.clone(), body), &app).await?;
    let signature = Signature::of(&parts.headers).ok_or_else(unproven)?;
    let known = find(&app, &id).await?;
    // Whether there is a secret takes no less time to find out than whether it is the right one.
    let (environment, secret) = match known {
        Some((environment, secret)) => (Some(environment), secret),
        None => (None, Minted::webhook()?.secret),
    };
    let is_proven = signature.proves(secret.expose(), &body);
    let Some(environment) = environment.filter(|_| is_proven) else { return Err(unproven()) };
    let done = |status: StatusCode, result: &str, detail: String| {
        let received = WebhookReceived { result: result.to_owned(), detail: detail.clone() };
        Ok(Noted(format!("webhook: {detail}"), (status, Json(received))))
    };
    let push = match read_event(&parts.headers, &body).map_err(ServerError::BadRequest)? {
        Event::Ping => return done(StatusCode::OK, "pong", "the webhook works".to_owned()),
        Event::Other(event) => {
            let detail = format!("nothing follows from {event:?}: only pushes count");
            return done(StatusCode::OK, "ignored", detail);
        }
        Event::Push(push) => push,
    };
    if !push.is_to(&environment.branch) {
        let detail = format!("{} is not what the environment follows", push.reference);
        return done(StatusCode::OK, "ignored", detail);
    }
    if push.is_deletion {
        let detail = format!("{} was deleted: there is no commit to compile", push.reference);
        return done(StatusCode::OK, "ignored", detail);
    }
    active(&environment)?;
    let (asked, now) = (app.clone(), app.now());
    let look = move || compiling::look_now(&asked, &environment, now);
    tokio::task::spawn_blocking(look).await.map_err(|_| ServerError::Stopping)??;
    app.nudge();
    done(StatusCode::ACCEPTED, "accepted", format!("{} is looked at", push.reference))
}

/// The environment and the secret of its webhook; `None` if one of them is missing.
async fn find(app: &App, id: &str) -> Result<Option<(EnvironmentRecord, SecretText)>, ServerError> {
    let Ok(id) = id.parse::<Uuid>() else { return Ok(None) };
    let (store, vault) = (std::sync::Arc::clone(app.store()), app.vault().clone());
    let find = move || {
        let environment = match store.records().environment(id.as_bytes()) {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            found => found?,
        };
        let key: EnvironmentKey = environment.key;
        Ok(vault.reserved(key, &secret_name())?.map(|secret| (environment, secret)))
    };
    let found = tokio::task::spawn_blocking(find).await.map_err(|_| ServerError::Stopping)?;
    found.map_err(failed)
}
