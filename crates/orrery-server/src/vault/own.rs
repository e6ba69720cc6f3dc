//! What belongs to the installation itself: sealed like every secret, and out of reach of models and requests.

use orrery_model::{SecretText, Timestamp};
use orrery_store::{EnvironmentKey, StoreError};

use super::{Vault, VaultError};

/// Names of environments' secrets that only the server itself uses begin with this: no request and no handler can name them.
pub(crate) const RESERVED: &str = "orrery/";

impl Vault {
    /// A value that belongs to the installation itself, and that no handler and no request can get: the one that is kept under this name.
    ///
    /// # Errors
    /// If it cannot be opened; those of the store.
    pub(crate) fn own(&self, name: &str) -> Result<Option<SecretText>, VaultError> {
        match self.store.records().secret(Some(EnvironmentKey::NONE), name) {
            Err(StoreError::NotFound { .. }) => Ok(None),
            found => Ok(Some(self.ring(false)?.open(&found?)?)),
        }
    }

    /// A value that the server keeps for an environment, under a name that begins with `RESERVED`.
    ///
    /// # Errors
    /// If it cannot be opened; those of the store.
    pub(crate) fn reserved(
        &self,
        environment: EnvironmentKey,
        name: &str,
    ) -> Result<Option<SecretText>, VaultError> {
        match self.store.records().secret(Some(environment), name) {
            Err(StoreError::NotFound { .. }) => Ok(None),
            found => Ok(Some(self.ring(false)?.open(&found?)?)),
        }
    }

    /// Keeps such a value, unless somebody else was faster: the answer is the one that is kept.
    ///
    /// # Errors
    /// If there is no key, or those of the store.
    pub(crate) fn keep_own(
        &self,
        name: &str,
        value: &SecretText,
        now: Timestamp,
    ) -> Result<SecretText, VaultError> {
        let ring = self.ring(true)?;
        let sealed = ring.seal(Some(EnvironmentKey::NONE), name, value)?;
        let is_known = |sealed: &[u8]| ring.knows(sealed);
        match self.store.records().keep_own_secret(name, &sealed, &is_known, now) {
            Err(StoreError::OtherKey) => {
                Err(VaultError::ForeignDatabase { path: self.path()?.to_owned() })
            }
            kept => ring.open(&kept?),
        }
    }
}
