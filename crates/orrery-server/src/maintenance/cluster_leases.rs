//! Leases of clusters: reminders before their end, and deletion afterwards. A cluster that fails
//! does not stop the others.

use std::time::Duration;

use orrery_model::Timestamp;
use orrery_store::{ClusterRecord, ClusterStatus, NewNotification, Store, StoreError};
use uuid::Uuid;

use super::{CHECK_INTERVAL, MaintenanceTask, Turn, micros};
use crate::cluster;
use crate::error::ServerError;
use crate::services::Services;

/// Time before the end of a lease at which a reminder is sent, at most a quarter of the lease.
const REMINDER: Duration = Duration::from_secs(24 * 3600);

pub(super) struct ClusterLeases;

impl MaintenanceTask for ClusterLeases {
    fn name(&self) -> &'static str {
        "cluster_leases"
    }

    fn period(&self) -> Duration {
        CHECK_INTERVAL
    }

    fn run(&mut self, services: &Services, turn: Turn) -> Result<(), StoreError> {
        let (failed, changed) = check_leases(services.store(), turn.now)?;
        if changed {
            services.wake_up();
        }
        failed
    }
}

/// Checks all leases. Returns the last failure, and true if something was written.
fn check_leases(
    store: &Store,
    now: Timestamp,
) -> Result<(Result<(), StoreError>, bool), StoreError> {
    let (mut failed, mut changed) = (Ok(()), false);
    let horizon = Timestamp(now.0.saturating_add(micros(REMINDER)));
    for record in store.clusters().with_lease_before(horizon)? {
        match check_lease(store, &record, now) {
            Ok(is_changed) => changed |= is_changed,
            Err(error) => {
                let cause: &dyn std::error::Error = &error;
                tracing::warn!(error = cause, cluster = %record.name, "cannot end the lease of a cluster");
                failed = Err(match error {
                    ServerError::Store(error) => error,
                    error => StoreError::Conflict(error.to_string()),
                });
            }
        }
    }
    Ok((failed, changed))
}

fn check_lease(store: &Store, record: &ClusterRecord, now: Timestamp) -> Result<bool, ServerError> {
    let Some(expires) = record.expires else { return Ok(false) };
    if expires <= now {
        return expire(store, record, now);
    }
    let lease = expires.since(record.created);
    let notice = REMINDER.min(lease / 4);
    if Timestamp(expires.0 - micros(notice)) > now
        || !store.clusters().record_reminder(record.key, expires)?
    {
        return Ok(false);
    }
    let message = format!(
        "The lease of the cluster {} ends at {expires}; the cluster is deleted then. `orrery cluster renew` \
         extends the lease.",
        record.name
    );
    notify(store, record, ("The lease of the cluster ends soon", &message, "warning"), now)?;
    Ok(true)
}

/// Begins the deletion of a cluster. While an operation is open, the next turn tries again.
fn expire(store: &Store, record: &ClusterRecord, now: Timestamp) -> Result<bool, ServerError> {
    if record.status == ClusterStatus::Pending {
        return Ok(false);
    }
    // An aborted or failed deletion is repeated as a new operation.
    match cluster::expire(store, record, now) {
        Ok(()) => {}
        Err(ServerError::Store(StoreError::OperationOpen { .. })) => return Ok(false),
        Err(error) => return Err(error),
    }
    tracing::info!(cluster = %record.name, "the lease has ended; the cluster is deleted");
    let message = format!("The lease of the cluster {} has ended: it is deleted.", record.name);
    notify(store, record, ("The lease of the cluster has ended", &message, "warning"), now)?;
    Ok(true)
}

fn notify(
    store: &Store,
    record: &ClusterRecord,
    (title, message, severity): (&str, &str, &str),
    now: Timestamp,
) -> Result<(), StoreError> {
    let uuid = Uuid::new_v4().into();
    let new = NewNotification { uuid, title, message, severity, uri: "", compile: None };
    store.notifications().add(record.environment, &new, now)
}
