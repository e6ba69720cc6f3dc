//! Erasure of environments, by the process that holds the lease.

use orrery_model::Timestamp;
use orrery_store::{EnvironmentRecord, Lease, Store, StoreError};

/// Erases the data of an environment, and the environment itself if it is marked for deletion. The
/// engine must have stopped.
pub(crate) fn erase_environment(
    store: &Store,
    lease: &Lease,
    environment: &EnvironmentRecord,
    now: Timestamp,
) -> Result<(), StoreError> {
    let records = store.under_lease(lease);
    while !records.environments().delete_contents(environment.key, now)? {}
    if environment.deleting {
        records.environments().delete(environment.uuid, now)?;
    }
    Ok(())
}
