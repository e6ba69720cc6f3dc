//! Queue of runs that wait for a worker, first in, first out.
//!
//! Runs that act on this machine are bounded: those beyond the limit are held, and join the queue
//! when an earlier one ends.

use std::collections::VecDeque;

use orrery_scheduler::TaskNumber;
use rustc_hash::FxHashSet;

use crate::pending_run::PendingRun;

#[derive(Debug)]
pub(crate) struct JobQueue {
    runs: VecDeque<PendingRun>,
    /// Maximum of local runs that are queued or running.
    local_max: usize,
    /// Local runs that are queued or running.
    local: FxHashSet<TaskNumber>,
    /// Local runs beyond the limit.
    held: VecDeque<PendingRun>,
}

impl JobQueue {
    pub(crate) fn new(local_max: usize) -> Self {
        debug_assert!(local_max > 0, "a limit of zero would hold local runs for good");
        JobQueue {
            runs: VecDeque::new(),
            local_max,
            local: FxHashSet::default(),
            held: VecDeque::new(),
        }
    }

    /// Queues a run that waits for other machines, if at all.
    pub(crate) fn push(&mut self, run: PendingRun) {
        debug_assert!(self.runs.iter().rev().take(4).all(|other| other.task != run.task));
        self.runs.push_back(run);
    }

    /// Queues a run that acts on this machine, or holds it.
    pub(crate) fn push_local(&mut self, run: PendingRun) {
        if self.local.len() < self.local_max {
            self.local.insert(run.task);
            self.push(run);
        } else {
            self.held.push_back(run);
        }
    }

    /// Handles the end of a run, or its abandonment: the next held run is queued.
    pub(crate) fn release(&mut self, task: TaskNumber) {
        if self.local.remove(&task)
            && let Some(next) = self.held.pop_front()
        {
            self.local.insert(next.task);
            self.push(next);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<PendingRun> {
        self.runs.pop_front()
    }

    /// Number of runs that a worker could take.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Number of local runs beyond the limit.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.held.is_empty()
    }

    /// Drops all runs, and returns their tasks.
    pub(crate) fn clear(&mut self) -> Vec<TaskNumber> {
        let dropped: Vec<TaskNumber> =
            self.runs.drain(..).chain(self.held.drain(..)).map(|run| run.task).collect();
        for task in &dropped {
            self.local.remove(task);
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::pending_run;

    #[test]
    fn runs_are_taken_in_order_and_dropped_together() {
        let mut queue = JobQueue::new(8);
        assert!(queue.is_empty() && queue.pop().is_none());
        (1..=3).for_each(|task| queue.push(pending_run(task)));
        assert_eq!(queue.pop().map(|run| run.task), Some(TaskNumber(1)));
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.clear(), [TaskNumber(2), TaskNumber(3)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn local_runs_beyond_their_limit_wait_for_an_earlier_one() {
        let mut queue = JobQueue::new(1);
        (1..=3).for_each(|task| queue.push_local(pending_run(task)));
        queue.push(pending_run(4));
        let pop = |queue: &mut JobQueue| queue.pop().map(|run| run.task.0);
        assert_eq!((queue.len(), queue.held()), (2, 2));
        assert_eq!([pop(&mut queue), pop(&mut queue), pop(&mut queue)], [Some(1), Some(4), None]);
        // Neither the end of another run nor a second end of the same one counts.
        queue.release(TaskNumber(4));
        assert_eq!(pop(&mut queue), None);
        queue.release(TaskNumber(1));
        queue.release(TaskNumber(1));
        assert_eq!([pop(&mut queue), pop(&mut queue)], [Some(2), None]);
        assert!(!queue.is_empty());
        assert_eq!(queue.clear(), [TaskNumber(3)]);
        queue.release(TaskNumber(2));
        queue.push_local(pending_run(5));
        assert_eq!(pop(&mut queue), Some(5));
    }
}
