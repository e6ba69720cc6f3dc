//! Secrets of the server's own store. They are written and used; no route reads a value.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use orrery_api::{Page, Problem, Secret, SecretValue};
use orrery_store::{EnvironmentKey, EnvironmentRecord, SecretRecord};

use crate::app::App;
use crate::auth::Noted;
use crate::extract::{Body, IfMatch, Path, etag};
use crate::problem::ServerError;
use crate::vault::{RESERVED, VaultError};

use super::time;

const VALUE_MAX: usize = 64 * 1024;

type Listed = Result<Json<Page<Secret>>, ServerError>;

async fn list(app: App, environment: Option<EnvironmentKey>) -> Listed {
    let mut found = app.with_store(move |store| store.records().secrets(environment)).await?;
    found.retain(|secret| !secret.name.starts_with(RESERVED));
    let shown = |secret: SecretRecord| Secret {
        name: secret.name,
        updated: time(secret.updated),
        revision: secret.revision,
    };
    Ok(Json(Page { items: found.into_iter().map(shown).collect(), next: None }))
}

async fn put(
    app: App,
    environment: Option<EnvironmentKey>,
    name: String,
    expected: Option<i64>,
    SecretValue { value }: SecretValue,
) -> Result<Noted<(StatusCode, HeaderMap)>, ServerError> {
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
    app.nudge();
    match done {
        Ok(Ok(revision)) => Ok(Noted(detail, (StatusCode::NO_CONTENT, etag(revision)))),
        Ok(Err(VaultError::Store(error))) => Err(error.into()),
        Ok(Err(error)) => {
            tracing::error!(%error, "a secret cannot be kept");
            Err(ServerError::Unavailable(error.to_string()))
        }
        Err(_) => Err(ServerError::Stopping),
    }
}

async fn delete(
    app: App,
    environment: Option<EnvironmentKey>,
    name: String,
    expected: Option<i64>,
) -> Result<Noted<StatusCode>, ServerError> {
    if name.starts_with(RESERVED) {
        return Err(ServerError::NotFound { kind: "secret", name });
    }
    let now = app.now();
    let detail = format!("secret {name} deleted");
    app.change(move |store| store.records().delete_secret_if(environment, &name, expected, now))
        .await?;
    Ok(Noted(detail, StatusCode::NO_CONTENT))
}

/// The names of the secrets that every environment may use.
#[utoipa::path(get, path = "/api/v1/secrets", tag = "secrets",
    responses((status = 200, body = Page<Secret>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list_shared(State(app): State<App>) -> Listed {
    list(app, None).await
}

/// Keeps a secret that every environment may use, in the place of an older one.
#[utoipa::path(put, path = "/api/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path)), request_body = SecretValue,
    responses((status = 204, description = "Kept"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put_shared(
    State(app): State<App>,
    Path(name): Path<String>,
    IfMatch(expected): IfMatch,
    Body(value): Body<SecretValue>,
) -> Result<Noted<(StatusCode, HeaderMap)>, ServerError> {
    put(app, None, name, expected, value).await
}

/// Deletes a secret that every environment may use.
#[utoipa::path(delete, path = "/api/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path)),
    responses((status = 204, description = "Deleted"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete_shared(
    State(app): State<App>,
    Path(name): Path<String>,
    IfMatch(expected): IfMatch,
) -> Result<Noted<StatusCode>, ServerError> {
    delete(app, None, name, expected).await
}

/// The names of an environment's secrets.
#[utoipa::path(get, path = "/api/v1/environments/{environment}/secrets", tag = "secrets", params(("environment" = uuid::Uuid, Path)),
    responses((status = 200, body = Page<Secret>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list_own(
    State(app): State<App>,
    axum::Extension(environment): axum::Extension<EnvironmentRecord>,
) -> Listed {
    list(app, Some(environment.key)).await
}

/// Keeps a secret for an environment, in the place of an older one.
#[utoipa::path(put, path = "/api/v1/environments/{environment}/secrets/{name}", tag = "secrets", params(("environment" = uuid::Uuid, Path), ("name" = String, Path)), request_body = SecretValue,
    responses((status = 204, description = "Kept"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put_own(
    State(app): State<App>,
    axum::Extension(environment): axum::Extension<EnvironmentRecord>,
    Path((_, name)): Path<(String, String)>,
    IfMatch(expected): IfMatch,
    Body(value): Body<SecretValue>,
) -> Result<Noted<(StatusCode, HeaderMap)>, ServerError> {
    put(app, Some(environment.key), name, expected, value).await
}

/// Deletes a secret of an environment.
#[utoipa::path(delete, path = "/api/v1/environments/{environment}/secrets/{name}", tag = "secrets", params(("environment" = uuid::Uuid, Path), ("name" = String, Path)),
    responses((status = 204, description = "Deleted"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete_own(
    State(app): State<App>,
    axum::Extension(environment): axum::Extension<EnvironmentRecord>,
    Path((_, name)): Path<(String, String)>,
    IfMatch(expected): IfMatch,
) -> Result<Noted<StatusCode>, ServerError> {
    delete(app, Some(environment.key), name, expected).await
}
