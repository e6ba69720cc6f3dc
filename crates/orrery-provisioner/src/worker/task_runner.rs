//! The side of the worker: commands with tasks, in slots of their tenants.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orrery_agent::CodeRunner;
use orrery_agent::protocol::CodeReference;
use orrery_handlers::{Context, Handler, HandlerError};
use orrery_model::{
    Attributes, Change, Fact, LogLevel, Outcome, OutcomeStatus, ResourceId, VersionNumber,
};
use serde::Deserialize;
use serde_json::Value;

use super::contents::{ContentCache, clear};
use super::tenant_slots::TenantSlots;
use super::{REPORT, TASK_ENTITY};
use crate::plugin::{PluginError, PluginResources};
use crate::runner::PluginRunner;
use crate::task::{Task, TaskReport};

/// Creates the runner of a slot: its directory, and the contents of plug-in resources.
pub type SlotRunner = Arc<dyn Fn(&Path, Arc<dyn PluginResources>) -> PluginRunner + Send + Sync>;

/// Carries out tasks that come as commands.
#[derive(Clone)]
pub struct TaskRunner {
    shared: Arc<Shared>,
}

struct Shared {
    slots: TenantSlots,
    directory: PathBuf,
    runner: SlotRunner,
}

impl fmt::Debug for TaskRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRunner")
            .field("directory", &self.shared.directory)
            .finish_non_exhaustive()
    }
}

impl TaskRunner {
    /// Creates a runner with this number of slots, whose directories are below `directory`.
    pub fn new(slots: usize, directory: PathBuf, runner: SlotRunner) -> Self {
        TaskRunner {
            shared: Arc::new(Shared { slots: TenantSlots::new(slots), directory, runner }),
        }
    }
}

impl CodeRunner for TaskRunner {
    fn handler(&self, _: &CodeReference, _: VersionNumber) -> Arc<dyn Handler> {
        Arc::new(self.clone())
    }

    /// Tasks end with their commands.
    fn close(&self) {}
}

#[derive(Deserialize)]
struct TaskAttributes {
    task: Task,
}

impl TaskRunner {
    fn carry_out(&self, task: &Task, context: &Context<'_>) -> Result<TaskReport, PluginError> {
        let slot = self
            .shared
            .slots
            .take(&task.tenant)
            .ok_or_else(|| PluginError::new("all slots of the worker are in use"))?;
        let directory = self.shared.directory.join(format!("slot-{}", slot.number()));
        if slot.former().is_some() {
            clear(&directory)
                .map_err(|error| PluginError::io("clear the slot of another tenant", &error))?;
        }
        std::fs::create_dir_all(&directory)
            .map_err(|error| PluginError::io(format!("use {}", directory.display()), &error))?;
        let contents = ContentCache::new(directory.join("contents"));
        if let Some(server) = context.server() {
            contents.fetch(server, task.plugin_resources.values().map(String::as_str))?;
        }
        let runner = (self.shared.runner)(&directory, Arc::new(contents));
        let report = runner.run(task, context.cancel_token());
        drop(slot);
        Ok(report)
    }
}

impl Handler for TaskRunner {
    /// Secrets in a task are values.
    fn resolves_late_bound_values(&self) -> bool {
        true
    }

    fn run(&self, attributes: &Attributes, context: &mut Context<'_>) -> Outcome {
        if context.id().entity() != TASK_ENTITY {
            let text = format!("a worker carries out tasks only, not {}", context.id().entity());
            context.log(LogLevel::Error, text, []);
            return context.finish(OutcomeStatus::Unavailable, Change::default());
        }
        let task = match attributes.read::<TaskAttributes>() {
            Ok(TaskAttributes { task }) => task,
            Err(error) => return context.finish_with_error(&HandlerError::Attributes(error)),
        };
        let report = self.carry_out(&task, context).unwrap_or_else(TaskReport::from);
        let report = serde_json::to_value(report).unwrap_or(Value::Null);
        context.log(LogLevel::Info, "carried out", [(REPORT, report)]);
        context.finish(OutcomeStatus::Deployed, Change::default())
    }

    fn facts(&self, _: &Attributes, _: &mut Context<'_>) -> Result<Vec<Fact>, HandlerError> {
        Ok(Vec::new())
    }

    fn watched_path<'i>(&self, _: &'i ResourceId) -> Option<&'i str> {
        None
    }
}
