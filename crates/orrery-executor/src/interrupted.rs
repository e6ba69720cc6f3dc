//! Changes interrupted by a killed process.
//!
//! Every start verifies compliance, so a lost result costs nothing, with one exception: dependents
//! that reload for the change would miss it. Such a change is recorded in the store before it
//! starts, and its result removes the record. A record that is left at the next start counts as a
//! change: one reload too many is better than a missing one. Effects that must not be repeated have
//! their own records; those left at a start become unknown effects.

use std::collections::BTreeSet;

use orrery_model::{ResourceState, Timestamp, VersionNumber};
use orrery_store::{Lease, ResourceKey, ResultRecord, Store, StoreError};
use rustc_hash::FxHashMap;

/// Records interrupted changes: their resources count as changed at `now`, and get a log entry.
/// Returns their number. Call it before [`crate::recover`].
///
/// # Errors
/// Those of the store.
pub fn record_interrupted(
    store: &Store,
    lease: &Lease,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let environment = lease.environment();
    let running = store.engine().running_actions(environment)?;
    if !running.is_empty() {
        let mut unfinished: FxHashMap<ResourceKey, VersionNumber> =
            running.iter().map(|started| (started.resource, started.version)).collect();
        let mut interrupted: Vec<(ResourceKey, ResourceState)> = Vec::new();
        let mut note = |key: ResourceKey, state: ResourceState| {
            let last_produced_events = Some(now);
            let state = ResourceState { deploying: true, last_produced_events, ..state };
            interrupted.push((key, state));
        };
        store.engine().read_states(environment, &mut |row| {
            if unfinished.remove(&row.key).is_some() {
                note(row.key, row.state.clone());
            }
        })?;
        // A resource without a completed run has no state yet; its change counts all the same.
        let versions: BTreeSet<VersionNumber> = unfinished.values().copied().collect();
        for version in versions {
            let read = store.versions().read(environment, version, &mut |row| {
                if unfinished.get(&row.key) == Some(&version) {
                    note(row.key, ResourceState::new(row.hash, row.flags.undefined));
                }
            });
            match read {
                // A deleted version has no dependents that would reload.
                Ok(_) | Err(StoreError::NoVersion(_)) => {}
                Err(error) => return Err(error),
            }
        }
        // They stay marked as deploying here: a process killed before the next step repeats this.
        let records: Vec<ResultRecord<'_>> = interrupted
            .iter()
            .map(|(resource, state)| ResultRecord {
                resource: *resource,
                state: Some(state),
                action: None,
                facts: &[],
            })
            .collect();
        if !records.is_empty() {
            store.engine().record_results(lease, &records)?;
        }
    }
    store.effects().recover(lease)?;
    Ok(store.engine().recover_actions(lease)?.len())
}
