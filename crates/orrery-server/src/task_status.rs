//! Status of the maintenance tasks of this process, read by `/health` and metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use orrery_base::lock::IgnorePoison;
use orrery_model::Timestamp;

/// Result of the latest turn of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskResult {
    /// No turn since the start of the process.
    Pending,
    Succeeded,
    Failed,
    /// Another server of the installation has the turn.
    Elsewhere,
}

impl TaskResult {
    /// Name in the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            TaskResult::Pending => "pending",
            TaskResult::Succeeded => "ok",
            TaskResult::Failed => "failed: see the server's log",
            TaskResult::Elsewhere => "run by another server",
        }
    }
}

/// Status of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskStatus {
    pub(crate) name: &'static str,
    pub(crate) period: Duration,
    pub(crate) result: TaskResult,
    /// Start and duration of the latest run in this process.
    pub(crate) last_run: Option<(Timestamp, Duration)>,
    /// Start of the latest successful run in this process.
    pub(crate) last_success: Option<Timestamp>,
    pub(crate) runs: u64,
    pub(crate) failures: u64,
}

/// Statuses of all tasks of this process.
#[derive(Debug, Default)]
pub(crate) struct TaskStatuses(Mutex<BTreeMap<&'static str, TaskStatus>>);

impl TaskStatuses {
    /// Adds a task that has not run yet.
    pub(crate) fn add(&self, name: &'static str, period: Duration) {
        let status = TaskStatus {
            name,
            period,
            result: TaskResult::Pending,
            last_run: None,
            last_success: None,
            runs: 0,
            failures: 0,
        };
        self.lock().insert(name, status);
    }

    /// Records a run in this process.
    pub(crate) fn record_run(&self, name: &str, start: Timestamp, took: Duration, success: bool) {
        let mut statuses = self.lock();
        let Some(status) = statuses.get_mut(name) else { return };
        status.last_run = Some((start, took));
        status.runs += 1;
        status.result = if success { TaskResult::Succeeded } else { TaskResult::Failed };
        if success {
            status.last_success = Some(start);
        } else {
            status.failures += 1;
        }
        debug_assert!(status.failures <= status.runs);
    }

    /// Records that another server has the turn.
    pub(crate) fn record_elsewhere(&self, name: &str) {
        if let Some(status) = self.lock().get_mut(name) {
            status.result = TaskResult::Elsewhere;
        }
    }

    /// Returns all statuses, ordered by name.
    pub(crate) fn all(&self) -> Vec<TaskStatus> {
        self.lock().values().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, TaskStatus>> {
        self.0.lock().ignore_poison()
    }
}
