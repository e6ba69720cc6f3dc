//! Versions that compiles result in: stored by the same rules as pushed ones.

use std::sync::Arc;
use std::time::Duration;

use orrery_api::VersionUpload;
use orrery_compile_service::{CompileContext, CompileMetrics, VersionError, VersionStorage};
use orrery_model::Timestamp;
use orrery_store::{EnvironmentKey, PutOutcome, Store, StoreError};

use crate::contents::VersionAuthor;
use crate::error::ServerError;
use crate::metrics::Metrics;
use crate::state::ServerState;
use crate::versions;

/// Returns what the compile service needs of a server.
pub fn compile_context(state: &ServerState) -> CompileContext {
    CompileContext {
        services: state.services().clone(),
        vault: state.vault().clone(),
        local_repositories: state.settings().local_repositories,
        versions: Arc::new(CompiledVersions),
        metrics: Arc::<Metrics>::clone(state.metrics()),
    }
}

impl CompileMetrics for Metrics {
    fn record_compile(&self, outcome: &'static str, took: Duration) {
        Metrics::record_compile(self, outcome, took);
    }
}

/// Stores the versions of the compile service.
#[derive(Clone, Copy, Debug)]
struct CompiledVersions;

impl VersionStorage for CompiledVersions {
    fn repeats_newest(
        &self,
        store: &Store,
        environment: EnvironmentKey,
        upload: &VersionUpload,
    ) -> Result<bool, VersionError> {
        versions::repeats_newest(store, environment, upload).map_err(to_version_error)
    }

    fn store(
        &self,
        store: &Store,
        environment: EnvironmentKey,
        upload: VersionUpload,
        auto_release: bool,
        now: Timestamp,
    ) -> Result<PutOutcome, VersionError> {
        let author = VersionAuthor::for_compiles(environment);
        let stored = versions::store_upload(store, environment, &author, upload, auto_release, now);
        stored.map(|stored| stored.put).map_err(to_version_error)
    }
}

fn to_version_error(error: ServerError) -> VersionError {
    let is_failure = error.status().is_server_error();
    match error {
        ServerError::Store(
            error @ (StoreError::VersionExists(_) | StoreError::OtherProject { .. }),
        ) => error.into(),
        ServerError::Store(error) if is_failure => error.into(),
        error => VersionError::Refused(Box::new(error.problem())),
    }
}
