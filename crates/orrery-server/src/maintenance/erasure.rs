//! Erasure of environments, by the process that holds the lease.

use orrery_model::Timestamp;
use orrery_store::{EnvironmentRecord, Lease, Store, StoreError};

/// Erases the data of an environment, and the environment itself if it is marked for deletion. The
/// engine must have stopped.
pub(crate) fn erase_environment(
    store: &dyn Store,
    lease: &Lease,
    environment: &EnvironmentRecord,
    now: Timestamp,
) -> Result<(), StoreError> {
    let records = store.records().under_lease(lease);
    while !records.delete_environment_contents(environment.key, now)? {}
    if environment.deleting {
        records.delete_environment(&environment.uuid, now)?;
    }
    Ok(())
}
