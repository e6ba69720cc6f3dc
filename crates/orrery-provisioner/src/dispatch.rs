//! Dispatchers: give tasks to this process or to workers, in slots of their tenants.

use std::sync::Arc;

use orrery_handlers::{CancelCause, CancelToken};

use crate::runner::PluginRunner;
use crate::slots::Slots;
use crate::task::{Task, TaskReport};

/// Reason for a missing report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// Nothing was done: another attempt is safe.
    #[error("not started: {0}")]
    NotStarted(String),
    /// The task may have been carried out.
    #[error("its report is lost: {0}")]
    Unknown(String),
}

/// Gives tasks to where they are carried out, and waits for their reports.
pub trait Dispatcher: Send + Sync {
    /// Carries out a task. Waits for a slot of the tenant first.
    ///
    /// # Errors
    /// If there is no report. A task that failed is a report.
    fn run(&self, task: Task, stop: &CancelToken) -> Result<TaskReport, DispatchError>;
}

/// Carries out tasks in this process.
#[derive(Clone, Debug)]
pub struct LocalDispatcher {
    runner: Arc<PluginRunner>,
    slots: Slots,
}

impl LocalDispatcher {
    pub fn new(runner: Arc<PluginRunner>, slots: Slots) -> Self {
        LocalDispatcher { runner, slots }
    }

    pub fn slots(&self) -> &Slots {
        &self.slots
    }
}

impl Dispatcher for LocalDispatcher {
    fn run(&self, task: Task, stop: &CancelToken) -> Result<TaskReport, DispatchError> {
        let slot = self.slots.acquire(&task.tenant, stop).map_err(|cause| {
            let cause = match cause {
                CancelCause::Cancelled => "cancelled while it waited for a slot",
                CancelCause::DeadlinePassed => "no slot was free in time",
            };
            DispatchError::NotStarted(cause.to_owned())
        })?;
        let report = self.runner.run(&task, stop);
        drop(slot);
        Ok(report)
    }
}
