//! Clearing and deletion of environments.

use orrery_store::{
    EnvironmentKey, EnvironmentRecord, Lease, RequestKind, RequestRecord, RequestResult, Store,
    StoreError,
};

use crate::maintenance;

use super::runner::{Next, Runner, RunnerError};

impl Runner {
    /// Deletes an environment. An interrupted deletion resumes at the next poll.
    pub(super) fn delete(
        &mut self,
        store: &Store,
        record: &EnvironmentRecord,
    ) -> Result<Next, RunnerError> {
        self.stop();
        // If another process holds the lease, it deletes the environment.
        let lease = self.acquire(store)?;
        self.remove_files(record);
        let erased = maintenance::erase_environment(store, &lease, record, self.app.now());
        self.release(store, &lease);
        erased?;
        self.app.wake_up();
        tracing::info!(environment = %record.name, "environment deleted");
        Ok(Next::Gone)
    }

    fn remove_files(&self, record: &EnvironmentRecord) {
        // First: the environment stays in the store until its files are gone.
        let own = self.options.data.join("environments").join(record.uuid.to_string());
        match std::fs::remove_dir_all(&own) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %own.display(), "files of an environment were not removed");
            }
            _ => {}
        }
    }

    /// Clears an environment, and resumes it if it was running before.
    pub(super) fn clear(
        &mut self,
        store: &Store,
        record: &EnvironmentRecord,
        request: &RequestRecord,
    ) -> Result<(), RunnerError> {
        self.stop();
        // If another process holds the lease, it clears the environment.
        let lease = self.acquire(store)?;
        let cleared = self.clear_with_lease(store, &lease, record, request);
        self.release(store, &lease);
        cleared?;
        self.app.wake_up();
        tracing::info!(environment = %record.name, "environment cleared");
        Ok(())
    }
}

impl Runner {
    fn clear_with_lease(
        &self,
        store: &Store,
        lease: &Lease,
        record: &EnvironmentRecord,
        request: &RequestRecord,
    ) -> Result<(), StoreError> {
        let (records, now) = (store.under_lease(lease), self.app.now());
        records.requests().accept(request.key, now)?;
        self.remove_files(record);
        maintenance::erase_environment(store, lease, record, now)?;
        if matches!(request.kind, RequestKind::Clear { resume: true }) && record.halted {
            records.environments().set_halted(record.uuid, false, now)?;
        }
        // Erasing also deletes requests, except this one if it arrived in the meantime.
        records.requests().finish(request, &RequestResult::Done(None), now)
    }
}

/// Returns the pending request to clear the environment, if any.
pub(super) fn pending_clear_request(
    store: &Store,
    environment: EnvironmentKey,
) -> Result<Option<RequestRecord>, StoreError> {
    let open = store.requests().open_clears(environment)?;
    Ok(open.into_iter().find(|request| matches!(request.kind, RequestKind::Clear { .. })))
}
