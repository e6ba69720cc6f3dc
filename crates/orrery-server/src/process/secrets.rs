//! Secrets for the handlers of one environment: from the vault and from this machine.

use std::sync::Arc;

use orrery_handlers::{SecretError, SecretSource, Secrets};
use orrery_model::SecretText;
use orrery_store::{EnvironmentKey, StoreError};

use crate::state::ServerState;
use crate::vault::{Vault, VaultError};

use super::own_machine::OwnMachine;

/// Opens secrets for one environment.
#[derive(Debug)]
pub(super) struct EnvironmentSecrets {
    vault: Vault,
    environment: EnvironmentKey,
    machine: Arc<OwnMachine>,
}

impl EnvironmentSecrets {
    pub(super) fn new(
        app: &ServerState,
        environment: EnvironmentKey,
        machine: Arc<OwnMachine>,
    ) -> Self {
        EnvironmentSecrets { vault: app.vault().clone(), environment, machine }
    }
}

impl Secrets for EnvironmentSecrets {
    fn resolve(&self, reference: &SecretSource) -> Result<SecretText, SecretError> {
        let SecretSource::Stored(name) = reference else { return self.machine.resolve(reference) };
        self.vault.open(self.environment, name).map_err(|error| match error {
            VaultError::Store(StoreError::NotFound { .. }) => SecretError::NotFound(name.clone()),
            error => SecretError::Stored { name: name.clone(), reason: error.to_string() },
        })
    }
}
