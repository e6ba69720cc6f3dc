//! Names and passwords of repositories: sealed in the vault, and put together with their addresses only where git is called.

use orrery_model::{SecretText, Timestamp};
use orrery_store::{EnvironmentChange, EnvironmentKey, EnvironmentRecord, StoreError};

use crate::app::App;
use crate::vault::{RESERVED, VaultError};

use super::repository::{authority_of, has_hidden_password, split_credential, with_credential};

fn secret_name() -> String {
    format!("{RESERVED}repository")
}

/// What becomes of the credential of an environment when its repository is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CredentialChange {
    /// The one that is kept stays: the address was sent back as it was shown.
    Keep,
    Replace(SecretText),
    Forget,
}

/// The address to keep, and what becomes of the credential. What was hidden in an address of another host is not given to that host.
pub(crate) fn credential_change(given: &str, kept: &str) -> (String, CredentialChange) {
    let (address, credential) = split_credential(given);
    let is_same_host = authority_of(given).is_some() && authority_of(given) == authority_of(kept);
    let change = match credential {
        Some(credential) => CredentialChange::Replace(credential),
        None if has_hidden_password(given) && is_same_host => CredentialChange::Keep,
        None => CredentialChange::Forget,
    };
    (address, change)
}

/// Seals or forgets the credential of an environment. It blocks.
pub(crate) fn keep_credential(
    app: &App,
    environment: EnvironmentKey,
    change: &CredentialChange,
    now: Timestamp,
) -> Result<(), VaultError> {
    match change {
        CredentialChange::Keep => Ok(()),
        CredentialChange::Replace(credential) => {
            app.vault().put(Some(environment), &secret_name(), credential, now).map(drop)
        }
        CredentialChange::Forget => {
            let records = app.store().records();
            match records.delete_secret(Some(environment), &secret_name(), now) {
                Ok(_) | Err(StoreError::NotFound { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// The address of an environment's repository as git needs it. It blocks.
pub(crate) fn address_of(app: &App, environment: &EnvironmentRecord) -> String {
    if !has_hidden_password(&environment.repository) {
        return environment.repository.clone();
    }
    match app.vault().reserved(environment.key, &secret_name()) {
        Ok(Some(credential)) => with_credential(&environment.repository, &credential),
        Ok(None) => environment.repository.clone(),
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::error!(
                error,
                environment = environment.name,
                "the credential of its repository cannot be opened"
            );
            environment.repository.clone()
        }
    }
}

/// Seals credentials that an older release kept in addresses. What cannot be sealed now is left for the next start.
pub(super) fn seal_old(app: &App) {
    let environments = match app.store().records().list_environments(None) {
        Ok(environments) => environments,
        Err(error) => {
            return tracing::warn!(%error, "credentials of repositories are not looked at");
        }
    };
    for environment in environments {
        let (address, Some(credential)) = split_credential(&environment.repository) else {
            continue;
        };
        let now = app.now();
        let change = CredentialChange::Replace(credential);
        let sealed = keep_credential(app, environment.key, &change, now).and_then(|()| {
            // A new repository would bind the environment to no project.
            let model_project = Some(environment.model_project.as_str());
            let repository = Some(address.as_str());
            let change = EnvironmentChange { repository, model_project, ..Default::default() };
            let records = app.store().records();
            Ok(records.update_environment(&environment.uuid, None, &change, now).map(drop)?)
        });
        if let Err(error) = sealed {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(
                error,
                environment = environment.name,
                "the credential of its repository is not sealed"
            );
        }
    }
}
