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
        let store = &**services.store();
        for_each_environment(store, self.name(), |environment| {
            let settings = store.records().settings(environment.key)?;
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
    store: &dyn Store,
    environment: &EnvironmentRecord,
    settings: &EnvironmentSettings,
    now: Timestamp,
) -> Result<(), StoreError> {
    if environment.halted {
        return Ok(());
    }
    let key = environment.key;
    let records = store.records();
    // The deployed version is always kept and does not count.
    let keep = usize::try_from(settings.available_versions_to_keep).unwrap_or(usize::MAX);
    store.retain_versions(key, keep.saturating_add(1))?;
    records.expire_action_logs(key, now - settings.action_logs_retention)?;
    records.expire_notifications(key, now - settings.notification_retention)?;
    if let Some(retention) = settings.metrics_retention {
        records.expire_metrics(key, now - retention)?;
    }
    records.expire_requests(key, now - REQUEST_RETENTION)?;
    records.expire_dry_runs(key)?;
    records.delete_revoked_agents(key, now - REVOKED_RETENTION)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use orrery_store::{JoiningAgent, NewInvitationRecord, SqliteStore};

    use super::*;

    #[test]
    fn revoked_remote_agents_are_kept_for_a_month() {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
        let (records, key) = (store.records(), store.default_environment().unwrap());
        let (hash, agent) = ([1; 32], [2; 16]);
        let invitation = NewInvitationRecord {
            uuid: [3; 16],
            hash,
            names: vec!["web1".to_owned()],
            created: Timestamp(0),
            expires: Timestamp(9),
            token: None,
        };
        records.create_invitation(key, &invitation).unwrap();
        let joining = JoiningAgent {
            uuid: agent,
            key: [4; 32],
            names: Vec::new(),
            facts: serde_json::json!({}),
            version: String::new(),
        };
        records.join(&hash, &joining, Timestamp(1)).unwrap();
        let retained_after = |days: u64| {
            let environment = records.environment_by_key(key).unwrap();
            let settings = EnvironmentSettings::from_map(&std::collections::BTreeMap::new());
            let now = Timestamp(1) + Duration::from_secs(days * 24 * 3600);
            apply_retention(&*store, &environment, &settings, now).unwrap();
            records.remote_agent(&agent).is_ok()
        };
        assert!(retained_after(400), "it may be away for long");
        records.revoke_remote_agent(key, &agent, Some([5; 16]), Timestamp(1)).unwrap();
        assert!(retained_after(30));
        assert!(!retained_after(31));
    }
}
