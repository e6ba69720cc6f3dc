//! Retention of data that belongs to no environment: the audit log, idempotency keys, networks.

use std::time::Duration;

use orrery_model::Timestamp;
use orrery_store::{Store, StoreError};

use crate::services::Services;

use super::{MaintenanceTask, RETENTION_INTERVAL, Turn};

/// Audit log entries deleted per transaction, and transactions per maintenance run.
const AUDIT_BATCH: usize = 10_000;
const AUDIT_BATCHES_MAX: usize = 50;
/// Retention of idempotency keys and their responses.
const IDEMPOTENCY_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// Applies retention to data of the whole server.
pub(super) struct ServerRetention {
    /// Retention of the audit log; `None` for unlimited.
    pub(super) audit: Option<Duration>,
}

impl MaintenanceTask for ServerRetention {
    fn name(&self) -> &'static str {
        "server-retention"
    }

    fn period(&self) -> Duration {
        RETENTION_INTERVAL
    }

    fn run(&mut self, services: &Services, turn: Turn) -> Result<(), StoreError> {
        apply_server_retention(services.store(), self.audit, turn.now)
    }
}

/// Applies retention to data that belongs to no environment.
fn apply_server_retention(
    store: &Store,
    audit_retention: Option<Duration>,
    now: Timestamp,
) -> Result<(), StoreError> {
    store.idempotency().expire(now - IDEMPOTENCY_RETENTION)?;
    store.accounts().expire_networks(now)?;
    if let Some(retention) = audit_retention {
        // In batches, so that appends can run in between.
        for _ in 0..AUDIT_BATCHES_MAX {
            if store.audit().expire(now - retention, AUDIT_BATCH, now)? == 0 {
                break;
            }
        }
    }
    Ok(())
}
