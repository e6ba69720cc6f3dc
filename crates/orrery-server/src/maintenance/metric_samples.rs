//! Sampled metrics of environments.

use std::collections::BTreeMap;
use std::time::Duration;

use orrery_model::{Status, Timestamp};
use orrery_store::{
    ActionKey, ChangeSeq, EnvironmentKey, EnvironmentRecord, MetricRecord, Store, StoreError,
};

use crate::app::agents::unreachable_agents;
use crate::app::metrics::{
    AGENT_COUNT, COMPILE_TIME, COMPILE_WAITING_TIME, RESOURCE_COUNT, RUN_CHANGES, RUN_TIME,
    SAMPLE_INTERVAL, SAMPLE_INTERVAL_MAX,
};
use crate::services::Services;

use super::{MaintenanceTask, Turn, for_each_environment, turn_at};

/// Samples environments with changes, and all of them once an hour.
#[derive(Debug, Default)]
pub(super) struct MetricSamples {
    /// Position in the change feed of the latest samples.
    seen: ChangeSeq,
    /// Turn of the latest samples of all environments.
    last_full: Option<Timestamp>,
    /// The newest action at each of the two latest turns, the older one first.
    newest_actions: Option<[ActionKey; 2]>,
}

/// Actions that the first turn of a process searches for runs.
const ACTIONS_SEARCHED: i64 = 200_000;

impl MaintenanceTask for MetricSamples {
    fn name(&self) -> &'static str {
        "metric-samples"
    }

    fn period(&self) -> Duration {
        SAMPLE_INTERVAL
    }

    fn claim_key(&self) -> &'static str {
        "sample"
    }

    fn run(&mut self, services: &Services, turn: Turn) -> Result<(), StoreError> {
        let store = services.store();
        let full_turn = turn_at(SAMPLE_INTERVAL_MAX, turn.at);
        let is_full = self.last_full.is_none_or(|last| last < full_turn);
        let latest = store.changes().latest()?;
        let changed = store.changes().environments(self.seen)?;
        self.seen = latest;
        self.last_full = Some(full_turn);
        for_each_environment(store, self.name(), |environment| {
            if !is_full && !changed.contains(&environment.key) {
                return Ok(());
            }
            sample_metrics(store, environment, turn.at - SAMPLE_INTERVAL, turn.at)
        })?;
        self.sample_runs(store, turn.at)
    }
}

impl MetricSamples {
    /// Samples the runs that ended in the interval before the latest: the results of the latest one
    /// may not be stored yet.
    fn sample_runs(&mut self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let newest = store.actions().newest()?;
        let first = ActionKey(newest.0.saturating_sub(ACTIONS_SEARCHED));
        let [after, latest] = self.newest_actions.unwrap_or([first, first]);
        let until = now - SAMPLE_INTERVAL;
        let runs = store.actions().run_times(after, until - SAMPLE_INTERVAL, until)?;
        self.newest_actions = Some([latest, newest]);
        let mut metrics: BTreeMap<EnvironmentKey, Vec<MetricRecord>> = BTreeMap::new();
        for run in runs {
            let of = metrics.entry(run.environment).or_default();
            let metric = |name: &str, category: &str, count, value| MetricRecord {
                name: name.to_owned(),
                category: category.to_owned(),
                at: until - SAMPLE_INTERVAL,
                count,
                value,
            };
            let outcome = run.outcome.as_str();
            // Milliseconds.
            of.push(metric(RUN_TIME, outcome, run.count, run.took / 1000));
            if run.changed > 0 {
                of.push(metric(RUN_CHANGES, outcome, run.changed, 0));
            }
        }
        for (environment, metrics) in metrics {
            store.metrics().add(environment, &metrics)?;
        }
        Ok(())
    }
}

/// Samples the metrics of an environment. `since` is the time of the previous sample.
fn sample_metrics(
    store: &Store,
    environment: &EnvironmentRecord,
    since: Timestamp,
    now: Timestamp,
) -> Result<(), StoreError> {
    let key = environment.key;
    let metric = |name: &str, category: &str, count: i64, value: i64| MetricRecord {
        name: name.to_owned(),
        category: category.to_owned(),
        at: now,
        count,
        value,
    };
    let mut metrics = Vec::new();
    let counts = store.resources().count_statuses(key)?;
    for status in Status::ALL {
        let count = counts.get(&status).copied().unwrap_or(0);
        let count = i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(1000);
        metrics.push(metric(RESOURCE_COUNT, status.as_str(), 1, count));
    }
    let has_engine = store.leases().holder(key)?.is_some();
    let agents = store.agents().states(key)?;
    let paused = agents.iter().filter(|agent| agent.paused).count();
    let rest = agents.len() - paused;
    let unreachable = unreachable_agents(store, key)?;
    let working = agents.iter().filter(|agent| !agent.paused);
    let away = working.filter(|agent| unreachable.contains(&agent.name)).count();
    let (up, down) = if has_engine { (rest - away, away) } else { (0, rest) };
    for (category, count) in [("paused", paused), ("up", up), ("down", down)] {
        let count = i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(1000);
        metrics.push(metric(AGENT_COUNT, category, 1, count));
    }
    let (count, took, waited) = store.metrics().compile_times(key, since, now)?;
    if count > 0 {
        // Milliseconds.
        metrics.push(metric(COMPILE_TIME, "", count, took / 1000));
        metrics.push(metric(COMPILE_WAITING_TIME, "", count, waited / 1000));
    }
    store.metrics().add(key, &metrics)
}
