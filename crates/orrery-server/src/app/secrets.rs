//! Secrets of the installation and of environments: write-only.

use orrery_model::SecretText;
use orrery_store::{EnvironmentKey, SecretRecord};

use crate::error::ServerError;
use crate::services::Services;
use crate::state::ServerState;
use crate::vault::{RESERVED, VaultError};

const NAME_MAX: usize = 255;
const VALUE_MAX: usize = 64 * 1024;

/// Lists secrets without their values. Those of the server itself are left out.
pub(crate) async fn list(
    services: &Services,
    environment: Option<EnvironmentKey>,
) -> Result<Vec<SecretRecord>, ServerError> {
    let mut found = services.with_store(move |store| store.secrets().list(environment)).await?;
    found.retain(|secret| !secret.name.starts_with(RESERVED));
    Ok(found)
}

/// Stores a secret, or replaces its value if it has the expected revision. Returns the new one.
pub(crate) async fn put(
    state: &ServerState,
    environment: Option<EnvironmentKey>,
    name: String,
    expected: Option<i64>,
    value: SecretText,
) -> Result<i64, ServerError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(fits) {
        let reason = "must have 1 to 255 letters, digits, dots, dashes or underscores";
        return Err(ServerError::field("name", reason));
    }
    if value.expose().is_empty() || value.expose().len() > VALUE_MAX {
        let reason = format!("must have 1 to {VALUE_MAX} bytes");
        return Err(ServerError::field("value", reason));
    }
    let (vault, now) = (state.vault().clone(), state.now());
    let put = move || vault.put_if(environment, &name, &value, expected, now);
    let done = tokio::task::spawn_blocking(put).await;
    state.wake_up();
    match done {
        Ok(Ok(revision)) => Ok(revision),
        Ok(Err(VaultError::Store(error))) => Err(error.into()),
        Ok(Err(error)) => {
            tracing::error!(%error, "cannot store a secret");
            Err(ServerError::Unavailable(error.to_string()))
        }
        Err(_) => Err(ServerError::Stopping),
    }
}

/// Deletes a secret, if it has the expected revision.
pub(crate) async fn delete(
    services: &Services,
    environment: Option<EnvironmentKey>,
    name: String,
    expected: Option<i64>,
) -> Result<(), ServerError> {
    if name.starts_with(RESERVED) {
        return Err(ServerError::NotFound { kind: "secret", name });
    }
    let now = services.now();
    services
        .change(move |store| store.secrets().delete_if(environment, &name, expected, now))
        .await?;
    Ok(())
}
