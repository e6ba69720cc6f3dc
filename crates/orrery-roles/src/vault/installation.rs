//! Secrets of the installation itself: sealed like all others, and out of reach of models and
//! requests.

use orrery_model::{SecretText, Timestamp};
use orrery_store::{EnvironmentKey, StoreError};

use super::{Vault, VaultError};

/// Prefix of environment secrets that only the server uses: no request and no handler can name
/// them.
pub const RESERVED: &str = "orrery/";

impl Vault {
    /// Opens a secret of the installation, which no handler and no request can read.
    ///
    /// # Errors
    /// If it cannot be opened; store errors.
    pub fn installation_secret(&self, name: &str) -> Result<Option<SecretText>, VaultError> {
        match self.store.secrets().get(Some(EnvironmentKey::INSTALLATION), name) {
            Err(StoreError::NotFound { .. }) => Ok(None),
            found => Ok(Some(self.ring(false)?.open(&found?)?)),
        }
    }

    /// Opens a secret that the server stores for an environment, under a name that begins with
    /// `RESERVED`.
    ///
    /// # Errors
    /// If it cannot be opened; store errors.
    pub fn reserved_secret(
        &self,
        environment: EnvironmentKey,
        name: &str,
    ) -> Result<Option<SecretText>, VaultError> {
        match self.store.secrets().get(Some(environment), name) {
            Err(StoreError::NotFound { .. }) => Ok(None),
            found => Ok(Some(self.ring(false)?.open(&found?)?)),
        }
    }

    /// Stores a secret of the installation, unless another process was first; returns the stored
    /// one.
    ///
    /// # Errors
    /// If there is no key; store errors.
    pub fn store_installation_secret(
        &self,
        name: &str,
        value: &SecretText,
        now: Timestamp,
    ) -> Result<SecretText, VaultError> {
        let ring = self.ring(true)?;
        let sealed = ring.seal(Some(EnvironmentKey::INSTALLATION), name, value)?;
        let is_known = |sealed: &[u8]| ring.has_key_for(sealed);
        match self.store.secrets().put_own_if_absent(name, &sealed, &is_known, now) {
            Err(StoreError::OtherKey) => {
                Err(VaultError::ForeignDatabase { path: self.path()?.to_owned() })
            }
            kept => ring.open(&kept?),
        }
    }
}
