//! Webhooks: secrets, and requests of forges.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use orrery_api::{NewWebhookSecret, Problem, Webhook, WebhookEffect, WebhookReceived};
use orrery_compile_service::forge::{WebhookSignature, parse_event};
use orrery_store::EnvironmentRecord;

use super::time;
use crate::app::webhooks;
use crate::auth::{Caller, WithAuditDetail};
use crate::error::ServerError;
use crate::extract::{InEnvironment, Path, read_bytes};
use crate::state::ServerState;

fn path_of(environment: &EnvironmentRecord) -> String {
    format!("/api/v1/webhooks/{}", environment.uuid)
}

/// Returns the webhook of an environment.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/webhook", tag = "webhooks", params(("environment" = Uuid, Path)),
    responses((status = 200, body = Webhook), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn get(
    State(app): State<ServerState>,
    InEnvironment(environment): InEnvironment,
) -> Result<Json<Webhook>, ServerError> {
    let found = webhooks::find_secret(&app, environment.key).await?;
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
    let secret = webhooks::renew_secret(&app, &caller, &environment).await?;
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
    webhooks::disable(&app, environment.key).await?;
    Ok(WithAuditDetail("webhook switched off".to_owned(), StatusCode::NO_CONTENT))
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
    let signature = WebhookSignature::from_headers(&parts.headers);
    let environment = webhooks::authenticate(&app, &id, signature, &body).await?;
    let event = parse_event(&parts.headers, &body).map_err(ServerError::BadRequest)?;
    let (result, detail) = webhooks::handle_event(&app, environment, event).await?;
    let status = match result {
        WebhookEffect::Accepted => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    };
    let received = WebhookReceived { result, detail: detail.clone() };
    Ok(WithAuditDetail(format!("webhook: {detail}"), (status, Json(received))))
}
