//! Webhooks: secrets, and requests of forges.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use orrery_api::{NewWebhookSecret, Problem, Webhook, WebhookEffect, WebhookReceived};
use orrery_model::SecretText;
use orrery_store::{EnvironmentKey, EnvironmentRecord, StoreError};
use uuid::Uuid;

use crate::app::environments::check_not_deleting;
use crate::auth::{Caller, RandomToken, WithAuditDetail};
use crate::compile_service::{self, RepositoryError};
use crate::error::ServerError;
use crate::extract::{InEnvironment, Path, read_bytes};
use crate::forge::{Signature, WebhookEvent, parse_event};
use crate::state::ServerState;
use crate::vault::{RESERVED, VaultError};

use super::time;

fn secret_name() -> String {
    format!("{RESERVED}webhook")
}

fn path_of(environment: &EnvironmentRecord) -> String {
    format!("/api/v1/webhooks/{}", environment.uuid)
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

/// Returns the webhook of an environment.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/webhook", tag = "webhooks", params(("environment" = Uuid, Path)),
    responses((status = 200, body = Webhook), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<Webhook>, ServerError> {
    let key = environment.key;
    let found = app
        .with_store(move |store| match store.secrets().get(Some(key), &secret_name()) {
            Err(StoreError::NotFound { .. }) => Ok(None),
            found => found.map(Some),
        })
        .await?;
    let updated = found.map(|secret| time(secret.updated));
    Ok(Json(Webhook { path: path_of(&environment), enabled: updated.is_some(), updated }))
}

/// Creates a new secret for the webhook of an environment, which is returned only once. Invalidates
/// the previous one.
#[utoipa::path(post, path = "/api/v1/environments/{environment}/webhook", tag = "webhooks", params(("environment" = Uuid, Path)),
    responses((status = 201, description = "The secret", body = NewWebhookSecret), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn renew(
    State(app): State<ServerState>,
    caller: Caller,
    InEnvironment(environment): InEnvironment,
) -> Result<WithAuditDetail<(StatusCode, Json<NewWebhookSecret>)>, ServerError> {
    // The secret does not expire and would outlive a token.
    caller.need_interactive_login()?;
    check_not_deleting(&environment)?;
    if environment.repository.is_empty() {
        let detail = format!("{}: {}", environment.name, RepositoryError::None);
        return Err(ServerError::rule("no-repository", detail));
    }
    let secret = RandomToken::webhook()?.secret;
    let (vault, now, key) = (app.vault().clone(), app.now(), environment.key);
    let kept = secret.clone();
    // Inside the store's idempotent request: a repetition must not replace the secret again.
    let put = app.change(move |_| Ok(vault.put(Some(key), &secret_name(), &kept, now))).await?;
    put.map_err(failed)?;
    let answer = NewWebhookSecret { path: path_of(&environment), secret };
    Ok(WithAuditDetail("new secret of the webhook".to_owned(), (StatusCode::CREATED, Json(answer))))
}

/// Disables the webhook of an environment.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/webhook", tag = "webhooks", params(("environment" = Uuid, Path)),
    responses((status = 204, description = "Disabled"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    let (key, now) = (environment.key, app.now());
    app.change(move |store| store.secrets().delete(Some(key), &secret_name(), now)).await?;
    Ok(WithAuditDetail("webhook switched off".to_owned(), StatusCode::NO_CONTENT))
}

/// Same error for all unauthenticated requests: it does not reveal if the environment, its webhook
/// or the signature is missing.
fn invalid_signature() -> ServerError {
    ServerError::Unauthenticated("the webhook does not exist, or its signature is wrong")
}

/// Receives webhook requests of GitHub, GitLab, Gitea and Forgejo. They must be signed with the
/// secret of the webhook, in the way of each forge. A push to the followed branch makes the server
/// read it at once.
#[utoipa::path(post, path = "/api/v1/webhooks/{environment}", tag = "webhooks", params(("environment" = Uuid, Path)),
    request_body(content = serde_json::Value, description = "Payload of the forge"),
    responses((status = 200, description = "Nothing to do", body = WebhookReceived), (status = 202, description = "Accepted; the branch is read", body = WebhookReceived),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn receive(
    State(app): State<ServerState>,
    Path(id): Path<String>,
    request: Request,
) -> Result<WithAuditDetail<(StatusCode, Json<WebhookReceived>)>, ServerError> {
    let (parts, body) = request.into_parts();
    let body = read_bytes(Request::from_parts(parts.clone(), body), &app).await?;
    let signature = Signature::from_headers(&parts.headers).ok_or_else(invalid_signature)?;
    let known = find(&app, &id).await?;
    // Constant time: a missing secret takes as long as a wrong one.
    let (environment, secret) = match known {
        Some((environment, secret)) => (Some(environment), secret),
        None => (None, RandomToken::webhook()?.secret),
    };
    let is_proven = signature.verify(secret.expose(), &body);
    let Some(environment) = environment.filter(|_| is_proven) else {
        return Err(invalid_signature());
    };
    let done = |status: StatusCode, result: WebhookEffect, detail: String| {
        let received = WebhookReceived { result, detail: detail.clone() };
        Ok(WithAuditDetail(format!("webhook: {detail}"), (status, Json(received))))
    };
    let push = match parse_event(&parts.headers, &body).map_err(ServerError::BadRequest)? {
        WebhookEvent::Ping => {
            return done(StatusCode::OK, WebhookEffect::Pong, "the webhook works".to_owned());
        }
        WebhookEvent::Other(event) => {
            let detail = format!("{event:?} has no effect: only pushes do");
            return done(StatusCode::OK, WebhookEffect::Ignored, detail);
        }
        WebhookEvent::Push(push) => push,
    };
    if !push.is_to(&environment.branch) {
        let detail = format!("{} is not what the environment follows", push.reference);
        return done(StatusCode::OK, WebhookEffect::Ignored, detail);
    }
    if push.is_deletion {
        let detail = format!("{} was deleted: there is no commit to compile", push.reference);
        return done(StatusCode::OK, WebhookEffect::Ignored, detail);
    }
    check_not_deleting(&environment)?;
    let (asked, now) = (app.clone(), app.now());
    let look = move || compile_service::poll_now(&asked, &environment, now);
    tokio::task::spawn_blocking(look).await.map_err(|_| ServerError::Stopping)??;
    app.wake_up();
    let detail = format!("{} will be read", push.reference);
    done(StatusCode::ACCEPTED, WebhookEffect::Accepted, detail)
}

/// Finds an environment and the secret of its webhook; `None` if either is missing.
async fn find(
    app: &ServerState,
    id: &str,
) -> Result<Option<(EnvironmentRecord, SecretText)>, ServerError> {
    let Ok(id) = id.parse::<Uuid>() else { return Ok(None) };
    let (store, vault) = (app.store().clone(), app.vault().clone());
    let find = move || {
        let environment = match store.environments().get(id.into()) {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            found => found?,
        };
        let key: EnvironmentKey = environment.key;
        Ok(vault.reserved_secret(key, &secret_name())?.map(|secret| (environment, secret)))
    };
    let found = tokio::task::spawn_blocking(find).await.map_err(|_| ServerError::Stopping)?;
    found.map_err(failed)
}
