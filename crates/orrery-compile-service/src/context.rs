//! What the service needs of its server.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use orrery_api::{Problem, VersionUpload};
use orrery_model::Timestamp;
use orrery_roles::services::Services;
use orrery_roles::vault::Vault;
use orrery_store::{EnvironmentKey, PutOutcome, Store, StoreError};

/// The server of the compile service. Cheap to clone.
///
/// It dereferences to its [`Services`], which most code needs alone.
#[derive(Clone)]
pub struct CompileContext {
    pub services: Services,
    pub vault: Vault,
    /// Allows paths and `file:` URLs of this machine as Git repositories.
    pub local_repositories: bool,
    pub versions: Arc<dyn VersionStorage>,
    pub metrics: Arc<dyn CompileMetrics>,
}

impl std::fmt::Debug for CompileContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompileContext").finish_non_exhaustive()
    }
}

impl Deref for CompileContext {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

/// Stores the versions that compiles result in, by the rules of the server.
pub trait VersionStorage: Send + Sync {
    /// True if a full upload equals the newest version: the same resources, unknowns and code.
    fn repeats_newest(
        &self,
        store: &Store,
        environment: EnvironmentKey,
        upload: &VersionUpload,
    ) -> Result<bool, VersionError>;

    /// Stores a version. `auto_release` is the default for the release.
    fn store(
        &self,
        store: &Store,
        environment: EnvironmentKey,
        upload: VersionUpload,
        auto_release: bool,
        now: Timestamp,
    ) -> Result<PutOutcome, VersionError>;
}

/// Reason why a version is not stored.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// The store failed, or a run that was presumed dead has stored the version.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The version violates a rule: an error of the model.
    #[error("{0}")]
    Refused(Box<Problem>),
}

/// Receives the end of each run, for the metrics of the server.
pub trait CompileMetrics: Send + Sync {
    fn record_compile(&self, outcome: &'static str, took: Duration);
}
