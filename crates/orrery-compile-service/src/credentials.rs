//! Credentials of repositories: sealed in the vault, and joined with their URLs only where git is
//! called.

use orrery_model::{SecretText, Timestamp};
use orrery_roles::vault::{RESERVED, Vault, VaultError};
use orrery_store::{EnvironmentChange, EnvironmentKey, EnvironmentRecord, Store, StoreError};

use crate::context::CompileContext;
use crate::repository::{authority_of, has_hidden_password, split_credential, with_credential};

fn secret_name() -> String {
    format!("{RESERVED}repository")
}

/// Change of an environment's credential when its repository is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialChange {
    /// Keeps the sealed one: the URL was sent back in its masked form.
    Keep,
    Replace(SecretText),
    Delete,
}

/// Returns the URL to store and the credential change. The credential of one host is not reused for
/// another.
pub fn credential_change(given: &str, kept: &str) -> (String, CredentialChange) {
    let (address, credential) = split_credential(given);
    let is_same_host = authority_of(given).is_some() && authority_of(given) == authority_of(kept);
    let change = match credential {
        Some(credential) => CredentialChange::Replace(credential),
        None if has_hidden_password(given) && is_same_host => CredentialChange::Keep,
        None => CredentialChange::Delete,
    };
    (address, change)
}

/// Seals or deletes the credential of an environment. Blocks.
pub fn apply_credential_change(
    store: &Store,
    vault: &Vault,
    environment: EnvironmentKey,
    change: &CredentialChange,
    now: Timestamp,
) -> Result<(), VaultError> {
    match change {
        CredentialChange::Keep => Ok(()),
        CredentialChange::Replace(credential) => {
            vault.put(Some(environment), &secret_name(), credential, now).map(drop)
        }
        CredentialChange::Delete => {
            match store.secrets().delete(Some(environment), &secret_name(), now) {
                Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// Returns the repository URL of an environment with its credential, for git. Blocks.
pub(crate) fn repository_url(app: &CompileContext, environment: &EnvironmentRecord) -> String {
    if !has_hidden_password(&environment.repository) {
        return environment.repository.clone();
    }
    match app.vault.reserved_secret(environment.key, &secret_name()) {
        Ok(Some(credential)) => with_credential(&environment.repository, &credential),
        Ok(None) => environment.repository.clone(),
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::error!(
                error,
                environment = environment.name,
                "cannot open the credential of the repository"
            );
            environment.repository.clone()
        }
    }
}

/// Seals credentials that an older release stored in URLs. Failures are retried at the next start.
pub(crate) fn seal_plaintext(app: &CompileContext) {
    let environments = match app.store().environments().list(None) {
        Ok(environments) => environments,
        Err(error) => {
            return tracing::warn!(%error, "cannot check the credentials of repositories");
        }
    };
    for environment in environments {
        let (address, Some(credential)) = split_credential(&environment.repository) else {
            continue;
        };
        let now = app.now();
        let change = CredentialChange::Replace(credential);
        let sealed =
            apply_credential_change(app.store(), &app.vault, environment.key, &change, now);
        let sealed = sealed.and_then(|()| {
            // Changing the repository would reset the bound project.
            let model_project = Some(environment.model_project.as_str());
            let repository = Some(address.as_str());
            let change = EnvironmentChange { repository, model_project, ..Default::default() };
            let store = app.store();
            Ok(store.environments().update(environment.uuid, None, &change, now).map(drop)?)
        });
        if let Err(error) = sealed {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(
                error,
                environment = environment.name,
                "cannot seal the credential of the repository"
            );
        }
    }
}
