//! Long runs: recorded in the store, so they are visible as in progress.

use std::time::Duration;

use orrery_model::ResourceId;

use crate::state::{EngineState, ResourceEntry, RunningTask};
use crate::writer::{ResourceRecord, Write};

/// Longer runs are shown as deploying to readers of the store.
pub(crate) const LONG_RUN: Duration = Duration::from_secs(1);

impl EngineState {
    /// Records the runs that have become long, and returns the time until the next check. Short
    /// runs are not recorded: that would cost more than many of them.
    pub(crate) fn record_long_runs(&mut self) -> Option<Duration> {
        let now = self.now();
        let mut next: Option<Duration> = None;
        let mut long = Vec::new();
        let mut running: Vec<&mut RunningTask> = self.running_tasks.values_mut().collect();
        running.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        for running_task in running {
            let Some(started) = running_task.long else { continue };
            let time_left = LONG_RUN.saturating_sub(now.since(running_task.started));
            if time_left.is_zero() {
                running_task.long = None;
                running_task.noted = true;
                long.push(started);
            } else {
                next = Some(next.map_or(time_left, |next| next.min(time_left)));
            }
        }
        long.into_iter().for_each(|started| self.write(Write::Began(started)));
        next
    }

    /// Returns true if a running task is not recorded yet.
    pub(crate) fn has_unrecorded_runs(&self) -> bool {
        !self.discard && self.running_tasks.values().any(|running_task| running_task.long.is_some())
    }

    /// Clears the record of a long run that was abandoned.
    pub(crate) fn clear_long_run(&mut self, id: &ResourceId) {
        let Some(index) = self.scheduler.index_of(id.as_str()) else { return };
        let ResourceEntry { key: Some(resource), changed_at, .. } = self.entry(index) else {
            return;
        };
        let Some(mut state) = self.scheduler.state(index) else { return };
        state.last_produced_events = changed_at;
        state.deploying = false;
        let (action, facts) = (None, Vec::new());
        let effect = None;
        self.write(Write::Result(ResourceRecord {
            resource,
            state: Some(state),
            action,
            facts,
            effect,
        }));
    }
}
