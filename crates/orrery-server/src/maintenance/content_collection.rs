//! Deletes contents without a referring version.

use std::time::Duration;

use orrery_store::StoreError;

use crate::services::Services;

use super::{MaintenanceTask, RETENTION_INTERVAL, Turn};

/// Collects unreferenced contents.
pub(super) struct ContentCollection {
    /// Age at which unreferenced contents are deleted.
    pub(super) grace: Duration,
}

impl MaintenanceTask for ContentCollection {
    fn name(&self) -> &'static str {
        "content-collection"
    }

    fn period(&self) -> Duration {
        RETENTION_INTERVAL
    }

    fn run(&mut self, services: &Services, turn: Turn) -> Result<(), StoreError> {
        let store = services.store();
        let collected = store.contents().collect(turn.now - self.grace, turn.now)?;
        if collected.deleted > 0 {
            let (deleted, bytes) = (collected.deleted, collected.bytes);
            tracing::info!(deleted, bytes, "unreferenced contents deleted");
        }
        Ok(())
    }
}
