//! What has to be done from time to time for each environment: measuring, forgetting what is old, emptying what is to go. The
//! process role calls these; each of them can be cut off and called again.

use std::time::Duration;

use orrery_model::{Status, Timestamp};
use orrery_store::{EnvironmentRecord, Lease, MetricRecord, Store, StoreError};

use crate::settings::EnvironmentSettings;

pub(crate) const RESOURCE_COUNT: &str = "resource.resource_count";
pub(crate) const AGENT_COUNT: &str = "resource.agent_count";
pub(crate) const COMPILE_TIME: &str = "orchestrator.compile_time";
pub(crate) const COMPILE_WAITING_TIME: &str = "orchestrator.compile_waiting_time";

/// What is measured.
pub(crate) const NAMES: [&str; 4] =
    [RESOURCE_COUNT, AGENT_COUNT, COMPILE_TIME, COMPILE_WAITING_TIME];

/// How long finished requests to engines can be looked at.
const REQUESTS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long repeated requests are answered as before.
const REPEATABLE_KEPT: Duration = Duration::from_secs(24 * 3600);

/// Measures an environment. `since` is when it was measured before.
pub(crate) fn sample(
    store: &dyn Store,
    environment: &EnvironmentRecord,
    since: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    let records = store.records();
    let key = environment.key;
    let metric = |name: &str, category: &str, count: i64, value: i64| MetricRecord {
        name: name.to_owned(),
        category: category.to_owned(),
        at: now,
        count,
        value,
    };
    let mut metrics = Vec::new();
    let counts = store.count_statuses(key)?;
    for status in Status::ALL {
        let count = counts.get(&status).copied().unwrap_or(0);
        let count = i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(1000);
        metrics.push(metric(RESOURCE_COUNT, status.as_str(), 1, count));
    }
    let has_engine = store.lease_holder(key)?.is_some();
    let agents = store.agents(key)?;
    let paused = agents.iter().filter(|agent| agent.paused).count();
    let rest = agents.len() - paused;
    let (up, down) = if has_engine { (rest, 0) } else { (0, rest) };
    for (category, count) in [("paused", paused), ("up", up), ("down", down)] {
        let count = i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(1000);
        metrics.push(metric(AGENT_COUNT, category, 1, count));
    }
    let (count, took, waited) = records.compile_times(key, since, now)?;
    if count > 0 {
        // Seconds in thousandths.
        metrics.push(metric(COMPILE_TIME, "", count, took / 1000));
        metrics.push(metric(COMPILE_WAITING_TIME, "", count, waited / 1000));
    }
    records.add_metrics(key, &metrics)
}

/// Forgets what is too old in an environment: logs, versions, notifications, measurements, requests. In a halted one everything
/// stays as it is, so that people can look at it.
pub(crate) fn tidy_up(
    store: &dyn Store,
    lease: &Lease,
    environment: &EnvironmentRecord,
    settings: &EnvironmentSettings,
    now: Timestamp,
) -> Result<(), StoreError> {
    if environment.halted {
        return Ok(());
    }
    let key = environment.key;
    let records = store.records();
    // The one that is deployed is kept in any case, and does not count.
    let keep = usize::try_from(settings.available_versions_to_keep).unwrap_or(usize::MAX);
    store.keep_versions(key, keep.saturating_add(1))?;
    store.forget_actions(lease, now - settings.action_logs_retention)?;
    records.forget_notifications(key, now - settings.notification_retention)?;
    if let Some(retention) = settings.metrics_retention {
        records.forget_metrics(key, now - retention)?;
    }
    records.forget_requests(key, now - REQUESTS_KEPT)?;
    records.forget_dry_runs(key)?;
    Ok(())
}

/// Forgets what is too old and belongs to no environment.
pub(crate) fn tidy_up_server(store: &dyn Store, now: Timestamp) -> Result<(), StoreError> {
    store.records().forget_repeatable(now - REPEATABLE_KEPT).map(drop)
}

/// Empties an environment, and deletes it if it is marked so. The engine must have let go of it.
pub(crate) fn erase(
    store: &dyn Store,
    environment: &EnvironmentRecord,
    now: Timestamp,
) -> Result<(), StoreError> {
    let records = store.records();
    while !records.erase_contents(environment.key, now)? {}
    if environment.deleting {
        records.erase_environment(&environment.uuid, now)?;
    }
    Ok(())
}
