//! Run monitor: a thread that adds workers for held-up tasks and records long runs.

use std::sync::Arc;
use std::time::Duration;

use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_handlers::WorkerPool;

use crate::concurrency::SLOW_RUN;
use crate::running_tasks::LONG_RUN;
use crate::shared::Shared;
use crate::state::{EngineState, WorkerDemand};
use crate::writer::wake_writer;

/// Minimum pause between two records of long runs.
const MONITOR_INTERVAL: Duration = Duration::from_millis(100);

/// Starts or wakes the run monitor, which adds workers for held-up tasks and records long runs.
/// One thread does both, and exists only while needed.
pub(crate) fn ensure_run_monitor(shared: &Arc<Shared>, state: &mut EngineState) {
    let is_at_capacity = state.is_at_capacity();
    if state.monitor.exists() {
        if is_at_capacity && state.monitor.alert() {
            shared.monitor_wakeup.notify_one();
        }
        return;
    }
    if !is_at_capacity && (shared.store_handle.is_none() || !state.has_unrecorded_runs()) {
        return;
    }
    let owner = Arc::clone(shared);
    match spawn_named("run-monitor", move || watch_long_runs(&owner)) {
        Ok(thread) => {
            state.monitor.set_exists(true);
            shared.pool.adopt(thread);
        }
        // The next run retries.
        Err(error) => tracing::warn!(%error, "cannot start the run monitor thread"),
    }
}

/// Monitors running tasks. The first record waits: most runs end earlier, and recording each would
/// cost more than the run.
fn watch_long_runs(shared: &Arc<Shared>) {
    let mut state = shared.lock();
    let mut record_after = Some(LONG_RUN);
    while !state.lifecycle.is_closed() {
        state.adjust_concurrency();
        let WorkerDemand { pending_runs, limit } = state.worker_demand();
        WorkerPool::grow(shared, pending_runs, limit);
        let is_at_capacity = state.is_at_capacity();
        state.monitor.set_alerted(is_at_capacity);
        let record = record_after.map(|after| after.max(MONITOR_INTERVAL));
        let check = is_at_capacity.then_some(SLOW_RUN);
        let Some(pause) = [record, check].into_iter().flatten().min() else { break };
        let waited = shared.monitor_wakeup.wait_timeout(state, pause);
        state = waited.ignore_poison().0;
        record_after = state.record_long_runs();
        if !state.writes.is_empty() && !state.lifecycle.is_closed() {
            wake_writer(shared, &mut state);
        }
    }
    state.monitor.set_exists(false);
}
