//! What happens to an environment as a whole: it is emptied, or deleted.

use orrery_store::{
    EnvironmentKey, EnvironmentRecord, RequestRecord, Store, StoreError, uuid_text,
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
        self.remove_files(record);
        upkeep::erase(store, record, self.app.now())?;
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
        let now = self.app.now();
        // Another process may be at work here: it clears the environment then.
        let lease = self.acquire(store)?;
        let erased = store.records().take_request(request.key, now).and_then(|_| {
            self.remove_files(record);
            upkeep::erase(store, record, now)
        });
        self.release(store, &lease);
        erased?;
        if request.payload["resume"] == true && record.halted {
            store.records().set_halted(&record.uuid, false, now)?;
        }
        // Erasing takes requests along, but for this one if it came meanwhile.
        store.records().finish_request(request, &serde_json::json!({"done": true}), now)?;
        self.app.nudge();
        tracing::info!(environment = %record.name, "environment cleared");
        Ok(())
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
