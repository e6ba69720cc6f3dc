//! Running tasks.

use orrery_model::{AttributeHash, Timestamp};
use rustc_hash::FxHashMap;

use crate::command::{CancelReason, Priority, TaskNumber};
use crate::queue::{Cause, Kind};

/// A task between its start and its result.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) task: TaskNumber,
    pub(crate) kind: Kind,
    pub(crate) agent: u32,
    pub(crate) priority: Priority,
    pub(crate) cause: Cause,
    pub(crate) intent: AttributeHash,
    /// Generation of the slot's content that the task runs for.
    pub(crate) generation: u32,
    pub(crate) started_at: Timestamp,
    pub(crate) deadline: Option<Timestamp>,
    /// Reason of the cancellation, if any.
    pub(crate) cancelled: Option<CancelReason>,
}

#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: Vec<Option<Run>>,
    free: Vec<u32>,
    by_task: FxHashMap<u64, u32>,
    started: u64,
}

impl Runs {
    pub(crate) fn next_number(&mut self) -> TaskNumber {
        self.started += 1;
        TaskNumber(self.started)
    }

    pub(crate) fn insert(&mut self, run: Run) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.runs.push(None);
            u32::try_from(self.runs.len() - 1).expect("invariant: fewer runs than u32 holds")
        });
        self.by_task.insert(run.task.0, at);
        self.runs[at as usize] = Some(run);
        at
    }

    pub(crate) fn find(&self, task: TaskNumber) -> Option<u32> {
        self.by_task.get(&task.0).copied()
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<Run> {
        let run = self.runs.get_mut(at as usize)?.take()?;
        self.by_task.remove(&run.task.0);
        self.free.push(at);
        Some(run)
    }

    pub(crate) fn get(&self, at: u32) -> Option<&Run> {
        self.runs.get(at as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut Run> {
        self.runs.get_mut(at as usize)?.as_mut()
    }

    pub(crate) fn count(&self) -> usize {
        self.by_task.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Run)> {
        let numbered = (0..).zip(&self.runs);
        numbered.filter_map(|(at, run): (u32, _)| Some((at, run.as_ref()?)))
    }
}
