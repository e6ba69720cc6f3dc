//! Leases of clusters: reminders before their end, and deletion afterwards. A cluster that fails
//! does not stop the others.

use std::time::Duration;

use orrery_model::Timestamp;
use orrery_store::{ClusterPhase, ClusterRecord, NewNotification, Store, StoreError};
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
        "cluster-leases"
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
    if record.status == ClusterPhase::Pending {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use orrery_api::NewCluster;
    use orrery_cluster::document::{Catalog, DocumentKind};
    use orrery_cluster::solver::SearchLimits;
    use orrery_model::ProjectId;
    use orrery_store::{
        ClusterOperationPhase, ClusterQuota, NewClusterRecord, NotificationFilter, OperationEnd,
    };
    use serde_json::json;

    use super::*;
    use crate::cluster::Attempt;

    const PROJECT: [u8; 16] = [1; 16];
    const HOUR: i64 = 3_600_000_000;

    fn catalog() -> Catalog {
        let mut catalog = Catalog::default();
        for (kind, content) in [
            (DocumentKind::Provider, json!({"name": "local", "providertype": "sim"})),
            (
                DocumentKind::HardwareType,
                json!({"name": "small", "providermap": {"local": {"flavor": "s1"}}}),
            ),
            (
                DocumentKind::ImageType,
                json!({"name": "debian", "providermap": {"local": {"image": "d", "sshuser": "a"}}}),
            ),
            (DocumentKind::Service, json!({"name": "app"})),
            (
                DocumentKind::ClusterTemplate,
                json!({"name": "web", "defaults": {"provider": "local", "services": ["app"]}}),
            ),
        ] {
            catalog.add(kind, "document.json", content.to_string());
        }
        catalog
    }

    /// Creates an active cluster whose lease ends after some hours.
    fn active(store: &Store, number: u8, hours: i64) -> ClusterRecord {
        let name = format!("c{number}");
        let new = NewCluster {
            name: name.clone(),
            template: "web".to_owned(),
            size: 1,
            ..NewCluster::default()
        };
        let limits = SearchLimits::default();
        let computed =
            cluster::create(&catalog(), (&name, "ada"), &new, BTreeMap::new(), limits).unwrap();
        let record = NewClusterRecord {
            id: &name,
            project: ProjectId::from_bytes(PROJECT),
            environment: orrery_model::EnvironmentId::from_bytes([number; 16]),
            name: &name,
            description: "",
            owner: "ada",
            provider: "local",
            expires: Some(Timestamp(hours * HOUR)),
            settings: &[],
        };
        let quota = ClusterQuota::default();
        let attempt = Attempt { author: "user:ada", quota, now: Timestamp(0) };
        cluster::store_creation(store, &record, &computed, attempt).unwrap();
        let end = OperationEnd {
            state: ClusterOperationPhase::Done,
            status: ClusterPhase::Active,
            message: "",
            progress: None,
            halt: false,
        };
        store.cluster_operations().end(&name, 1, &end, Timestamp(1)).unwrap();
        store.clusters().get(&name).unwrap()
    }

    fn store() -> Store {
        let store = Store::in_memory().unwrap();
        store.projects().create(ProjectId::from_bytes(PROJECT), "p", "", Timestamp(0)).unwrap();
        store
    }

    fn titles(store: &Store, record: &ClusterRecord) -> usize {
        let all = NotificationFilter::default();
        store.notifications().list(record.environment, &all, None, 10).unwrap().len()
    }

    #[test]
    fn a_lease_is_reminded_of_once_and_ends_in_a_deletion() {
        let store = store();
        let record = active(&store, 2, 8);
        let check = |hours: i64| check_leases(&store, Timestamp(hours * HOUR)).unwrap();
        assert!(matches!(check(5), (Ok(()), false)));
        // A quarter of the lease before its end.
        assert!(matches!(check(6), (Ok(()), true)));
        assert!(matches!(check(7), (Ok(()), false)), "once");
        assert_eq!(titles(&store, &record), 1);
        assert!(matches!(check(8), (Ok(()), true)));
        let open = store.cluster_operations().open(record.key).unwrap().unwrap();
        assert_eq!((&*open.kind, &*open.author), ("delete", "system"));
        assert!(matches!(check(9), (Ok(()), false)), "the deletion is under way");
        assert_eq!(titles(&store, &record), 2);
    }

    #[test]
    fn a_cluster_that_fails_does_not_stop_the_others() {
        let store = store();
        let broken = active(&store, 2, 1);
        let good = active(&store, 3, 2);
        let inconsistent = active(&store, 4, 2);
        for (record, status) in
            [(&broken, ClusterPhase::Active), (&inconsistent, ClusterPhase::Inconsistent)]
        {
            // An intent that cannot be read, and one whose operation failed.
            let content: &[u8] = b"damaged";
            let state = crate::cluster::load(&store, &record.id).unwrap();
            let encoded = crate::cluster::encode_intent(&state.intent).unwrap();
            let is_broken = record.id == broken.id;
            let intent = orrery_store::NewIntent {
                content: if is_broken { content } else { &encoded },
                template: "web",
                template_revision: 1,
                size: 1,
                services: &[],
            };
            let nothing = serde_json::Value::Null;
            let operation = orrery_store::NewClusterOperation {
                kind: "restart",
                author: "user:ada",
                request: &nothing,
                plan: &nothing,
                intent,
                is_transition: false,
                quota: ClusterQuota::default(),
            };
            let write = orrery_store::ClusterWrite::Begin {
                cluster: &record.id,
                expected: None,
                base: record.intent,
                operation: &operation,
                ends: None,
            };
            let version = orrery_store::NewVersion {
                number: None,
                made_at: Timestamp(2),
                info: &nothing,
                scope: orrery_store::PutScope::All,
                base: None,
                resources: &[],
                unknowns: &[],
                released: true,
                only_if_changed: false,
                lease: None,
                project: None,
            };
            store.clusters().put_version(&write, &version).unwrap();
            let end = OperationEnd {
                state: ClusterOperationPhase::Failed,
                status,
                message: "failed",
                progress: None,
                halt: false,
            };
            store.cluster_operations().end(&record.id, 2, &end, Timestamp(3)).unwrap();
        }
        let (failed, changed) = check_leases(&store, Timestamp(3 * HOUR)).unwrap();
        assert!(failed.is_err() && changed, "{failed:?}");
        for record in [&good, &inconsistent] {
            let open = store.cluster_operations().open(record.key).unwrap().unwrap();
            assert_eq!(open.kind, "delete", "{}", record.name);
        }
        assert!(store.cluster_operations().open(broken.key).unwrap().is_none());
    }
}
