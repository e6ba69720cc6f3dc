//! What happens to an environment as a whole: it is emptied, or deleted.

use orrery_store::{
    EnvironmentKey, EnvironmentRecord, Lease, RequestRecord, Store, StoreError, uuid_text,
};

use crate::upkeep;

use super::runner::{Next, Runner, RunnerError};

impl Runner {
    /// Removes an environment that is not wanted any more. What is interrupted goes on at the next look.
    pub(super) fn delete(
        &mut self,
        store: &dyn Store,
        record: &EnvironmentRecord,
    ) -> Result<Next, RunnerError> {
        self.stop();
        // Another process may be at work here: it deletes the environment then.
        let lease = self.acquire(store)?;
        self.remove_files(record);
        let erased = upkeep::erase(store, &lease, record, self.app.now());
        self.release(store, &lease);
        erased?;
        self.app.nudge();
        tracing::info!(environment = %record.name, "environment deleted");
        Ok(Next::Gone)
    }

    fn remove_files(&self, record: &EnvironmentRecord) {
        // First: the store knows of it until nothing is left here.
        let own = self.options.data.join("environments").join(uuid_text(&record.uuid));
        match std::fs::remove_dir_all(&own) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %own.display(), "files of an environment stay behind");
            }
            _ => {}
        }
    }

    /// Empties an environment, and lets it go on if it was not halted before.
    pub(super) fn clear(
        &mut self,
        store: &dyn Store,
        record: &EnvironmentRecord,
        request: &RequestRecord,
    ) -> Result<(), RunnerError> {
        self.stop();
        // Another process may be at work here: it clears the environment then.
        let lease = self.acquire(store)?;
        let cleared = self.clear_under(store, &lease, record, request);
        self.release(store, &lease);
        cleared?;
        self.app.nudge();
        tracing::info!(environment = %record.name, "environment cleared");
        Ok(())
    }
}

impl Runner {
    fn clear_under(
        &self,
        store: &dyn Store,
        lease: &Lease,
        record: &EnvironmentRecord,
        request: &RequestRecord,
    ) -> Result<(), StoreError> {
        let (records, now) = (store.records().under(lease), self.app.now());
        records.take_request(request.key, now)?;
        self.remove_files(record);
        upkeep::erase(store, lease, record, now)?;
        if request.payload["resume"] == true && record.halted {
            records.set_halted(&record.uuid, false, now)?;
        }
        // Erasing takes requests along, but for this one if it came meanwhile.
        records.finish_request(request, &serde_json::json!({"done": true}), now)
    }
}

/// The request to empty the environment, if there is one.
pub(super) fn clearing(
    store: &dyn Store,
    environment: EnvironmentKey,
) -> Result<Option<RequestRecord>, StoreError> {
    let open = store.records().open_requests(environment)?;
    Ok(open.into_iter().find(|request| request.kind == "clear"))
}
