//! Queue of runs that wait for a worker, first in, first out.

use std::collections::VecDeque;

use orrery_scheduler::TaskNumber;

use crate::pending_run::PendingRun;

#[derive(Debug, Default)]
pub(crate) struct JobQueue {
    runs: VecDeque<PendingRun>,
}

impl JobQueue {
    pub(crate) fn push(&mut self, run: PendingRun) {
        debug_assert!(self.runs.iter().rev().take(4).all(|other| other.task != run.task));
        self.runs.push_back(run);
    }

    pub(crate) fn pop(&mut self) -> Option<PendingRun> {
        self.runs.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Drops all runs, and returns their tasks.
    pub(crate) fn clear(&mut self) -> Vec<TaskNumber> {
        self.runs.drain(..).map(|run| run.task).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::pending_run;

    #[test]
    fn runs_are_taken_in_order_and_dropped_together() {
        let mut queue = JobQueue::default();
        assert!(queue.is_empty() && queue.pop().is_none());
        (1..=3).for_each(|task| queue.push(pending_run(task)));
        assert_eq!(queue.pop().map(|run| run.task), Some(TaskNumber(1)));
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.clear(), [TaskNumber(2), TaskNumber(3)]);
        assert!(queue.is_empty());
    }
}
