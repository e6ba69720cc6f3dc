//! Secrets in the vault. No route returns a value.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{Page, Problem, Secret, SecretValue};
use orrery_store::{EnvironmentKey, EnvironmentRecord, SecretRecord};

use crate::auth::WithAuditDetail;
use crate::error::ServerError;
use crate::extract::{Body, IfMatch, Path, etag};
use crate::state::ServerState;
use crate::vault::{RESERVED, VaultError};

use super::time;

const VALUE_MAX: usize = 64 * 1024;

type ListResponse = Result<Json<Page<Secret>>, ServerError>;

async fn list(app: ServerState, environment: Option<EnvironmentKey>) -> ListResponse {
    let mut found = app.with_store(move |store| store.secrets().list(environment)).await?;
    found.retain(|secret| !secret.name.starts_with(RESERVED));
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
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 255 || !name.chars().all(fits) {
        let reason = "must have 1 to 255 letters, digits, dots, dashes or underscores";
        return Err(ServerError::field("name", reason));
    }
    if value.expose().is_empty() || value.expose().len() > VALUE_MAX {
        let reason = format!("must have 1 to {VALUE_MAX} bytes");
        return Err(ServerError::field("value", reason));
    }
    let (vault, now) = (app.vault().clone(), app.now());
    let detail = format!("secret {name} set");
    let put = move || vault.put_if(environment, &name, &value, expected, now);
    let done = tokio::task::spawn_blocking(put).await;
    app.wake_up();
    match done {
        Ok(Ok(revision)) => Ok(WithAuditDetail(detail, (StatusCode::NO_CONTENT, etag(revision)))),
        Ok(Err(VaultError::Store(error))) => Err(error.into()),
        Ok(Err(error)) => {
            tracing::error!(%error, "cannot store a secret");
            Err(ServerError::Unavailable(error.to_string()))
        }
        Err(_) => Err(ServerError::Stopping),
    }
}

async fn delete(
    app: ServerState,
    environment: Option<EnvironmentKey>,
    name: String,
    expected: Option<i64>,
) -> Result<WithAuditDetail<StatusCode>, ServerError> {
    if name.starts_with(RESERVED) {
        return Err(ServerError::NotFound { kind: "secret", name });
    }
    let now = app.now();
    let detail = format!("secret {name} deleted");
    app.change(move |store| store.secrets().delete_if(environment, &name, expected, now)).await?;
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
