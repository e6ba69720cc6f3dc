//! What is wanted of an environment, as the store has it.

use orrery_executor::Desired;
use orrery_model::VersionNumber;
use orrery_store::{EnvironmentKey, RequestRecord, Store, StoreError, VersionInfo, load_version};

/// What is wanted of an environment.
pub(super) struct Intent {
    pub(super) released: Vec<VersionInfo>,
    /// Requests that are not finished.
    pub(super) open: Vec<RequestRecord>,
}

impl Intent {
    /// Reads what belongs together, before it is read who serves which agent: a request that came with a new agent is told to an engine that
    /// knows of that agent. And: a request that came with the release of a version is not seen without it, nor the other way
    /// round, since nothing was released while the requests were read.
    pub(super) fn read(store: &dyn Store, environment: EnvironmentKey) -> Result<Self, StoreError> {
        let mut released = released_versions(store, environment)?;
        loop {
            let open = store.records().open_requests(environment)?;
            let again = released_versions(store, environment)?;
            let newest = |versions: &[VersionInfo]| versions.last().map(|version| version.number);
            if newest(&again) == newest(&released) {
                return Ok(Intent { released, open });
            }
            released = again;
        }
    }
}

fn released_versions(
    store: &dyn Store,
    environment: EnvironmentKey,
) -> Result<Vec<VersionInfo>, StoreError> {
    let mut versions = store.versions(environment)?;
    versions.retain(|version| version.released);
    Ok(versions)
}

/// Reads a whole version.
pub(in crate::process) fn read_desired(
    store: &dyn Store,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<Desired, StoreError> {
    let loaded = load_version(store, environment, number)?;
    let mut keys = Vec::with_capacity(loaded.resources.len());
    store.read_version(environment, number, &mut |row| keys.push(row.key))?;
    Ok(Desired { version: number, resources: loaded.resources, keys })
}
