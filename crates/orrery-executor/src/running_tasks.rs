//! Tasks that workers run or are about to get.

use std::sync::Arc;
use std::time::Duration;

use orrery_handlers::CancelToken;
use orrery_model::{ResourceId, Timestamp};
use orrery_scheduler::{Filter, TaskNumber};
use orrery_store::StartedAction;
use rustc_hash::FxHashMap;

use crate::pending_run::EffectStarted;

/// Longer runs are recorded in the store, so its readers see them as deploying.
pub(crate) const LONG_RUN: Duration = Duration::from_secs(1);

/// Number of running tasks that a progress report names.
const SLOWEST: usize = 3;

/// A task that a worker runs or is about to get.
#[derive(Debug)]
pub(crate) struct RunningTask {
    pub(crate) id: ResourceId,
    pub(crate) started: Timestamp,
    pub(crate) stop: CancelToken,
    /// Record to write if the run takes long; `None` once written, and for runs that are not
    /// recorded.
    pub(crate) long: Option<StartedAction>,
    /// A long-run record was written.
    pub(crate) noted: bool,
    /// Reads facts and deploys nothing.
    pub(crate) facts: bool,
    /// Set when an effect starts that must not be repeated.
    pub(crate) effect_started: Arc<EffectStarted>,
    /// A deploy was requested after the run had begun: its machine may be reachable since then.
    pub(crate) requested_again: bool,
}

#[derive(Debug)]
pub(crate) struct RunningTasks {
    tasks: FxHashMap<TaskNumber, RunningTask>,
    /// The task that was started last.
    latest: TaskNumber,
    /// Abandoned tasks with a handler that still runs.
    abandoned: usize,
}

impl RunningTasks {
    pub(crate) fn new() -> Self {
        RunningTasks { tasks: FxHashMap::default(), latest: TaskNumber(0), abandoned: 0 }
    }

    pub(crate) fn start(&mut self, task: TaskNumber, running: RunningTask) {
        self.latest = self.latest.max(task);
        let former = self.tasks.insert(task, running);
        debug_assert!(former.is_none(), "a task starts once");
    }

    /// Ends a task. `None` if it was abandoned before: its handler has ended now.
    pub(crate) fn finish(&mut self, task: TaskNumber) -> Option<RunningTask> {
        let running = self.tasks.remove(&task);
        if running.is_none() {
            self.abandoned = self.abandoned.saturating_sub(1);
        }
        running
    }

    /// Drops a task that no worker got.
    pub(crate) fn drop_pending(&mut self, task: TaskNumber) {
        self.tasks.remove(&task);
    }

    /// Gives up a task; its handler still runs.
    pub(crate) fn abandon(&mut self, task: TaskNumber) -> Option<RunningTask> {
        let running = self.tasks.remove(&task)?;
        self.abandoned += 1;
        Some(running)
    }

    pub(crate) fn cancel(&self, task: TaskNumber) {
        if let Some(running) = self.tasks.get(&task) {
            running.stop.cancel();
        }
    }

    /// Notes a request for resources that run already.
    pub(crate) fn request_again(&mut self, filter: &Filter) {
        let matching =
            self.tasks.values_mut().filter(|running| !running.facts && filter.matches(&running.id));
        matching.for_each(|running| running.requested_again = true);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(crate) fn latest(&self) -> TaskNumber {
        self.latest
    }

    /// Number of abandoned tasks with a handler that still runs.
    pub(crate) fn abandoned(&self) -> usize {
        self.abandoned
    }

    /// Number of tasks that have run for at least this long.
    pub(crate) fn count_older_than(&self, age: Duration, now: Timestamp) -> usize {
        self.tasks.values().filter(|running| now.since(running.started) >= age).count()
    }

    /// Some of the running tasks, the longest running first.
    pub(crate) fn longest(&self) -> Vec<&RunningTask> {
        let mut running: Vec<&RunningTask> = self.tasks.values().collect();
        running.sort_unstable_by(|one, other| {
            one.started.cmp(&other.started).then_with(|| one.id.cmp(&other.id))
        });
        running.truncate(SLOWEST);
        running
    }

    /// Returns true if a running task is to be recorded once it is long.
    pub(crate) fn has_unrecorded(&self) -> bool {
        self.tasks.values().any(|running| running.long.is_some())
    }

    /// Takes the records of the runs that have become long, and returns the time until the next
    /// check. Short runs are not recorded: that would cost more than many of them.
    pub(crate) fn take_long(&mut self, now: Timestamp) -> (Vec<StartedAction>, Option<Duration>) {
        let mut next: Option<Duration> = None;
        let mut long = Vec::new();
        let mut running: Vec<&mut RunningTask> = self.tasks.values_mut().collect();
        running.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        for running_task in running {
            let Some(started) = running_task.long else { continue };
            debug_assert!(!running_task.noted, "a long run is recorded once");
            let time_left = LONG_RUN.saturating_sub(now.since(running_task.started));
            if time_left.is_zero() {
                running_task.long = None;
                running_task.noted = true;
                long.push(started);
            } else {
                next = Some(next.map_or(time_left, |next| next.min(time_left)));
            }
        }
        (long, next)
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::VersionNumber;
    use orrery_store::ActionKind;

    use super::*;
    use crate::test_support::resource_key;

    fn running(name: &str, started: Timestamp) -> RunningTask {
        let kind = ActionKind::Deploy;
        let resource = resource_key();
        RunningTask {
            id: ResourceId::new("m::R", "a", "name", name).unwrap(),
            started,
            stop: CancelToken::never(),
            long: Some(StartedAction { resource, kind, version: VersionNumber(1), at: started }),
            noted: false,
            facts: false,
            effect_started: Arc::default(),
            requested_again: false,
        }
    }

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::default() + Duration::from_millis(milliseconds)
    }

    #[test]
    fn an_abandoned_task_counts_until_its_handler_ends() {
        let mut tasks = RunningTasks::new();
        tasks.start(TaskNumber(1), running("one", at(0)));
        tasks.start(TaskNumber(2), running("two", at(0)));
        assert_eq!(tasks.latest(), TaskNumber(2));
        assert!(tasks.abandon(TaskNumber(1)).is_some() && tasks.abandon(TaskNumber(1)).is_none());
        assert_eq!(tasks.abandoned(), 1);
        assert!(tasks.finish(TaskNumber(2)).is_some());
        assert!(tasks.finish(TaskNumber(1)).is_none());
        assert!(tasks.is_empty() && tasks.abandoned() == 0);
    }

    #[test]
    fn a_cancelled_task_sees_it() {
        let mut tasks = RunningTasks::new();
        let task = running("one", at(0));
        let stop = task.stop.clone();
        tasks.start(TaskNumber(1), task);
        tasks.cancel(TaskNumber(9));
        assert!(!stop.is_cancelled());
        tasks.cancel(TaskNumber(1));
        assert!(stop.is_cancelled());
    }

    #[test]
    fn long_runs_are_recorded_once_and_listed_first() {
        let mut tasks = RunningTasks::new();
        tasks.start(TaskNumber(1), running("late", at(700)));
        tasks.start(TaskNumber(2), running("early", at(0)));
        assert_eq!(tasks.longest()[0].id.value(), "early");
        assert_eq!(tasks.count_older_than(Duration::from_millis(500), at(1000)), 1);
        let (long, next) = tasks.take_long(at(1000));
        assert_eq!((long.len(), next), (1, Some(Duration::from_millis(700))));
        assert!(tasks.has_unrecorded());
        let (long, next) = tasks.take_long(at(1700));
        assert_eq!((long.len(), next), (1, None));
        assert!(!tasks.has_unrecorded());
        assert!(tasks.finish(TaskNumber(1)).is_some_and(|task| task.noted));
    }
}
