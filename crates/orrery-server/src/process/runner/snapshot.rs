//! Consistent snapshot of an environment's released versions and open requests.

use orrery_executor::DesiredState;
use orrery_model::VersionNumber;
use orrery_store::{EnvironmentKey, RequestRecord, Store, StoreError, VersionInfo};

/// Released versions and open requests of an environment.
pub(super) struct EnvironmentSnapshot {
    pub(super) released: Vec<VersionInfo>,
    /// Unfinished requests.
    pub(super) open: Vec<RequestRecord>,
}

impl EnvironmentSnapshot {
    /// Reads a consistent snapshot, before the routing of agents: a request that came with a new
    /// agent reaches an engine that knows the agent. A request that came with a release is not seen
    /// without the release, nor vice versa, since no version was released while the requests were
    /// read.
    pub(super) fn read(store: &Store, environment: EnvironmentKey) -> Result<Self, StoreError> {
        let mut released = released_versions(store, environment)?;
        // Without a version, requests wait for the first one.
        if released.is_empty() {
            return Ok(EnvironmentSnapshot { released, open: Vec::new() });
        }
        loop {
            let open = store.requests().open(environment)?;
            let again = released_versions(store, environment)?;
            let newest = |versions: &[VersionInfo]| versions.last().map(|version| version.number);
            if newest(&again) == newest(&released) {
                return Ok(EnvironmentSnapshot { released, open });
            }
            released = again;
        }
    }
}

fn released_versions(
    store: &Store,
    environment: EnvironmentKey,
) -> Result<Vec<VersionInfo>, StoreError> {
    let mut versions = store.versions().list(environment)?;
    versions.retain(|version| version.released);
    Ok(versions)
}

/// Reads all resources of a version.
pub(in crate::process) fn read_desired(
    store: &Store,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<DesiredState, StoreError> {
    let loaded = store.versions().load(environment, number)?;
    let mut keys = Vec::with_capacity(loaded.resources.len());
    store.versions().read(environment, number, &mut |row| keys.push(row.key))?;
    Ok(DesiredState { version: number, resources: loaded.resources, keys })
}
