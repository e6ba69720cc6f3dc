//! Secrets for the handlers of one environment: the server's own, and what this machine has.

use orrery_handlers::{LocalSecrets, Reference, SecretError, Secrets};
use orrery_model::SecretText;
use orrery_store::{EnvironmentKey, StoreError};

use crate::app::App;
use crate::vault::{Vault, VaultError};

/// Opens secrets for one environment.
#[derive(Debug)]
pub(super) struct EnvironmentSecrets {
    vault: Vault,
    environment: EnvironmentKey,
}

impl EnvironmentSecrets {
    pub(super) fn new(app: &App, environment: EnvironmentKey) -> Self {
        EnvironmentSecrets { vault: app.vault().clone(), environment }
    }
}

impl Secrets for EnvironmentSecrets {
    fn resolve(&self, reference: &Reference) -> Result<SecretText, SecretError> {
        let Reference::Stored(name) = reference else { return LocalSecrets.resolve(reference) };
        self.vault.open(self.environment, name).map_err(|error| match error {
            VaultError::Store(StoreError::NotFound { .. }) => SecretError::NotFound(name.clone()),
            error => SecretError::Stored { name: name.clone(), reason: error.to_string() },
        })
    }
}
