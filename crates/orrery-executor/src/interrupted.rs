//! Changes that nobody saw the end of, because the process that made them was killed.
//!
//! Whether a resource is as wanted is verified after every start, so a lost result costs nothing, with one
//! exception: resources that reload when this one changes would not learn of the change. So a change that
//! somebody would reload for is noted in the store before it is made, and its result removes the note. What
//! is still noted at the next start counts as changed: better one reload too many than one that is missing.
//! Effects that must not be repeated have notes of their own: what is left of them is unknown from then on.

use std::collections::BTreeSet;

use orrery_model::{ResourceState, Timestamp, VersionNumber};
use orrery_store::{Lease, ResourceKey, ResultRecord, Store, StoreError};
use rustc_hash::FxHashMap;

/// Sees to it that interrupted changes are not forgotten: their resources count as changed at `now`, and get
/// an entry in their logs. Answers how many there are. To be called before [`crate::recovery`].
///
/// # Errors
/// Those of the store.
pub fn note_interrupted(
    store: &dyn Store,
    lease: &Lease,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let environment = lease.environment();
    let running = store.running(environment)?;
    if !running.is_empty() {
        let mut left: FxHashMap<ResourceKey, VersionNumber> =
            running.iter().map(|started| (started.resource, started.version)).collect();
        let mut interrupted: Vec<(ResourceKey, ResourceState)> = Vec::new();
        let mut note = |key: ResourceKey, state: ResourceState| {
            let last_produced_events = Some(now);
            let state = ResourceState { deploying: true, last_produced_events, ..state };
            interrupted.push((key, state));
        };
        store.read_states(environment, &mut |row| {
            if left.remove(&row.key).is_some() {
                note(row.key, row.state.clone());
            }
        })?;
        // What never came to an end before has no state yet; its change is news all the same.
        let versions: BTreeSet<VersionNumber> = left.values().copied().collect();
        for version in versions {
            let read = store.read_version(environment, version, &mut |row| {
                if left.get(&row.key) == Some(&version) {
                    note(row.key, ResourceState::new(row.hash, row.flags.undefined));
                }
            });
            match read {
                // A version that was cleaned away has no dependents that would reload.
                Ok(_) | Err(StoreError::NoVersion(_)) => {}
                Err(error) => return Err(error),
            }
        }
        // They stay marked as deploying here: whoever is killed before the next step does this again.
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
            store.record_results(lease, &records)?;
        }
    }
    store.records().recover_effects(lease)?;
    Ok(store.recover(lease)?.len())
}
