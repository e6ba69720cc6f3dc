//! Clusters in the process role: roll-ups after changes of the engine.

use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_model::Timestamp;
use orrery_store::Store;

use super::runner::Runner;
use super::supervisor::micros;
use crate::cluster::{RollUp, roll_up};

/// Shortest pause between roll-ups of a cluster.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// Longest pause, also for the largest clusters.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Share of the time that roll-ups may take: a roll-up reads all resources.
const PAUSE_FACTOR: u32 = 10;

/// Cluster of an environment that is being run.
pub(super) struct ActiveCluster {
    pub(super) id: String,
    /// Time of the next roll-up at the earliest, if one is due.
    due: Option<Instant>,
    /// Time that the last one took.
    took: Duration,
}

impl ActiveCluster {
    pub(super) fn new(id: String) -> Self {
        ActiveCluster { id, due: None, took: Duration::ZERO }
    }

    fn pause(&self) -> Duration {
        (self.took * PAUSE_FACTOR).clamp(PAUSE_MIN, PAUSE_MAX)
    }
}

impl Runner {
    /// Reads the cluster of the environment after its record has changed.
    pub(super) fn update_cluster(&mut self, store: &Store, id: Option<&String>) {
        let known = self.cluster.take();
        let Some(id) = id else { return };
        let cluster = known.filter(|known| known.id == *id);
        self.cluster = Some(cluster.unwrap_or_else(|| ActiveCluster::new(id.clone())));
        let record = store.clusters().get(id);
        let updated = record.and_then(|record| self.cluster_runtime.update(store, &record));
        if let Err(error) = updated {
            // Views are read anew on demand, too.
            tracing::debug!(%error, cluster = %id, "cannot read a cluster");
        }
    }

    /// Rolls the states of resources up into the operation and the status of the cluster. Returns
    /// the time of the next roll-up, if one is due. Failures are logged and repeated.
    pub(super) fn roll_up_cluster(&mut self) -> Option<Timestamp> {
        let active = self.active.as_ref()?;
        let cluster = self.cluster.as_mut()?;
        let now = self.app.now();
        let after = |pause: Duration| Some(Timestamp(now.0.saturating_add(micros(pause))));
        let due = cluster.due.map(|due| due.saturating_duration_since(monotonic()));
        if let Some(wait) = due.filter(|wait| !wait.is_zero()) {
            return after(wait);
        }
        let pause = cluster.pause();
        cluster.due = Some(monotonic() + pause);
        // A running handler means that nothing is settled.
        if active.engine.is_running() {
            return after(pause);
        }
        let begun = monotonic();
        let result = roll_up(self.app.store(), &cluster.id, &active.lease, now);
        cluster.took = begun.elapsed();
        match result {
            Ok(RollUp::Settled) => {
                cluster.due = None;
                None
            }
            Ok(RollUp::Open) => after(pause),
            Ok(RollUp::Changed) => {
                self.app.wake_up();
                after(pause)
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, cluster = %cluster.id, "a roll-up failed; retrying");
                after(PAUSE_MAX.min(pause * 4))
            }
        }
    }
}
