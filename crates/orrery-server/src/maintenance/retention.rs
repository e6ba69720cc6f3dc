//! Retention: deletes old data of environments.

use std::time::Duration;

use orrery_model::Timestamp;
use orrery_store::{EnvironmentRecord, Store, StoreError};

use crate::services::Services;
use crate::settings::EnvironmentSettings;

use super::{MaintenanceTask, RETENTION_INTERVAL, Turn, for_each_environment};

/// Applies retention to all environments.
pub(super) struct Retention;

impl MaintenanceTask for Retention {
    fn name(&self) -> &'static str {
        "retention"
    }

    fn period(&self) -> Duration {
        RETENTION_INTERVAL
    }

    fn claim_key(&self) -> &'static str {
        "tidy up"
    }

    fn run(&mut self, services: &Services, turn: Turn) -> Result<(), StoreError> {
        let store = &services.store();
        for_each_environment(store, self.name(), |environment| {
            let settings = store.settings().list(environment.key)?;
            let settings = EnvironmentSettings::from_records(&settings);
            apply_retention(store, environment, &settings, turn.at)
        })
    }
}

/// Retention of finished requests.
const REQUEST_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
/// Retention of revoked remote agents.
const REVOKED_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// Applies retention to an environment: logs, versions, notifications, metrics, requests, dry runs,
/// revoked remote agents. A halted environment stays untouched, so that operators can inspect it.
fn apply_retention(
    store: &Store,
    environment: &EnvironmentRecord,
    settings: &EnvironmentSettings,
    now: Timestamp,
) -> Result<(), StoreError> {
    if environment.halted {
        return Ok(());
    }
    let key = environment.key;
    // The deployed version is always kept and does not count.
    let keep = usize::try_from(settings.available_versions_to_keep).unwrap_or(usize::MAX);
    store.versions().retain(key, keep.saturating_add(1))?;
    store.actions().expire_logs(key, now - settings.action_logs_retention)?;
    store.notifications().expire(key, now - settings.notification_retention)?;
    if let Some(retention) = settings.metrics_retention {
        store.metrics().expire(key, now - retention)?;
    }
    store.requests().expire(key, now - REQUEST_RETENTION)?;
    store.dry_runs().expire(key)?;
    store.remote_agents().delete_revoked(key, now - REVOKED_RETENTION)?;
    Ok(())
}

#[cfg(test)]
mod tests {

    use orrery_store::{JoiningAgent, NewInvitationRecord, Store};

    use super::*;

    #[test]
    fn revoked_remote_agents_are_kept_for_a_month() {
        let store: Store = Store::in_memory().unwrap();
        let key = store.environments().ensure_default().unwrap();
        let (hash, agent) = ([1; 32], orrery_model::Id::from_bytes([2; 16]));
        let invitation = NewInvitationRecord {
            uuid: orrery_model::Id::from_bytes([3; 16]),
            hash,
            names: vec!["web1".to_owned()],
            created: Timestamp(0),
            expires: Timestamp(9),
            token: None,
        };
        store.invitations().create(key, &invitation).unwrap();
        let joining = JoiningAgent {
            uuid: agent,
            key: [4; 32],
            names: Vec::new(),
            facts: serde_json::json!({}),
            version: String::new(),
        };
        store.invitations().join(&hash, &joining, Timestamp(1)).unwrap();
        let retained_after = |days: u64| {
            let environment = store.environments().by_key(key).unwrap();
            let settings = EnvironmentSettings::from_map(&std::collections::BTreeMap::new());
            let now = Timestamp(1) + Duration::from_secs(days * 24 * 3600);
            apply_retention(&store, &environment, &settings, now).unwrap();
            store.remote_agents().get(agent).is_ok()
        };
        assert!(retained_after(400), "it may be away for long");
        store
            .remote_agents()
            .revoke(key, agent, Some(orrery_model::Id::from_bytes([5; 16])), Timestamp(1))
            .unwrap();
        assert!(retained_after(30));
        assert!(!retained_after(31));
    }
}
