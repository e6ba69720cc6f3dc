//! Secrets in the vault. No route returns a value.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{Page, Problem, Secret, SecretValue};
use orrery_store::{EnvironmentKey, EnvironmentRecord, SecretRecord};

use crate::app::secrets;
use crate::auth::WithAuditDetail;
use crate::error::ServerError;
use crate::extract::{Body, IfMatch, Path, etag};
use crate::state::ServerState;

use super::time;

type ListResponse = Result<Json<Page<Secret>>, ServerError>;

async fn list(app: ServerState, environment: Option<EnvironmentKey>) -> ListResponse {
    let found = secrets::list(&app, environment).await?;
    let shown = |secret: SecretRecord| Secret {
        name: secret.name,
        updated: time(secret.updated),
        revision: secret.revision,
    };
    Ok(Json(Page { items: found.into_iter().map(shown).collect(), next: None }))
}

async fn put(
    app: ServerState,
    environment: Option<EnvironmentKey>,
    name: String,
    expected: Option<i64>,
    SecretValue { value }: SecretValue,
) -> Result<WithAuditDetail<(StatusCode, HeaderMap)>, ServerError> {
    let detail = format!("secret {name} set");
    let revision = secrets::put(&app, environment, name, expected, value).await?;
    Ok(WithAuditDetail(detail, (StatusCode::NO_CONTENT, etag(revision))))
}

async fn delete(
    app: ServerState,
    environment: Option<EnvironmentKey>,
    name: String,
    expected: Option<i64>,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    let detail = format!("secret {name} deleted");
    secrets::delete(&app, environment, name, expected).await?;
    Ok(WithAuditDetail(detail, StatusCode::NO_CONTENT))
}

/// Lists the names of the secrets for all environments.
#[utoipa::path(get, path = "/api/v1/secrets", tag = "secrets",
    responses((status = 200, body = Page<Secret>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list_shared(State(app): State<ServerState>) -> ListResponse {
    list(app, None).await
}

/// Stores a secret for all environments; replaces an older value.
#[utoipa::path(put, path = "/api/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path)), request_body = SecretValue,
    responses((status = 204, description = "Stored"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put_shared(
    State(app): State<ServerState>,
    Path(name): Path<String>,
    IfMatch(expected): IfMatch,
    Body(value): Body<SecretValue>,
) -> Result<WithAuditDetail<(StatusCode, HeaderMap)>, ServerError> {
    put(app, None, name, expected, value).await
}

/// Deletes a secret for all environments.
#[utoipa::path(delete, path = "/api/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path)),
    responses((status = 204, description = "Deleted"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete_shared(
    State(app): State<ServerState>,
    Path(name): Path<String>,
    IfMatch(expected): IfMatch,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    delete(app, None, name, expected).await
}

/// Lists the names of the secrets of an environment.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/secrets", tag = "secrets", params(("environment" = uuid::Uuid, Path)),
    responses((status = 200, body = Page<Secret>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list_own(
    State(app): State<ServerState>,
    axum::Extension(environment): axum::Extension<EnvironmentRecord>,
) -> ListResponse {
    list(app, Some(environment.key)).await
}

/// Stores a secret of an environment; replaces an older value.
#[utoipa::path(put, path = "/api/v1/environments/{environment}/secrets/{name}", tag = "secrets", params(("environment" = uuid::Uuid, Path), ("name" = String, Path)), request_body = SecretValue,
    responses((status = 204, description = "Stored"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put_own(
    State(app): State<ServerState>,
    axum::Extension(environment): axum::Extension<EnvironmentRecord>,
    Path((_, name)): Path<(String, String)>,
    IfMatch(expected): IfMatch,
    Body(value): Body<SecretValue>,
) -> Result<WithAuditDetail<(StatusCode, HeaderMap)>, ServerError> {
    put(app, Some(environment.key), name, expected, value).await
}

/// Deletes a secret of an environment.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/secrets/{name}", tag = "secrets", params(("environment" = uuid::Uuid, Path), ("name" = String, Path)),
    responses((status = 204, description = "Deleted"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete_own(
    State(app): State<ServerState>,
    axum::Extension(environment): axum::Extension<EnvironmentRecord>,
    Path((_, name)): Path<(String, String)>,
    IfMatch(expected): IfMatch,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    delete(app, Some(environment.key), name, expected).await
}
