//! Changes that nobody saw the end of, because the process that made them was killed.
//!
//! Whether a resource is as wanted is verified after every start, so a lost result costs nothing, with one
//! exception: resources that reload when this one changes would not learn of the change. So a change that
//! somebody would reload for is noted in the store before it is made, and its result removes the note. What
//! is still noted at the next start counts as changed: better one reload too many than one that is missing.

use orrery_model::{ResourceState, Timestamp};
use orrery_store::{Lease, ResourceKey, ResultRecord, Store, StoreError};

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
    // Before the first version was processed nothing had ended well, so nothing has to be reloaded.
    let environment = lease.environment();
    if store.is_any_running(environment)? && store.processed_version(environment)?.is_some() {
        let mut interrupted: Vec<(ResourceKey, ResourceState)> = Vec::new();
        store.read_states(environment, &mut |row| {
            if row.state.deploying {
                let last_produced_events = Some(now);
                let state = ResourceState { last_produced_events, ..row.state.clone() };
                interrupted.push((row.key, state));
            }
        })?;
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
    Ok(store.recover(lease)?.len())
}
