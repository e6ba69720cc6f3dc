//! Workers: remote agents that carry out tasks for servers.
//!
//! A worker is an agent whose code runner is a [`TaskRunner`]: a task travels as a command with the
//! task in its attributes, and contents of plug-in resources are fetched by calls, like code. So
//! tasks have what commands have: mutual TLS, a journal, repeated sending with one identity,
//! cancellation, and an answer that is unknown when its worker is lost.
//!
//! A worker has slots. Each serves one tenant only, also when it is idle, with directories of its
//! own; an idle slot is cleared before it serves another tenant.

mod contents;
mod remote;
mod task_runner;
mod tenant_slots;

use orrery_model::{InvalidId, ResourceId};

pub use remote::{WorkerDirectory, WorkerDispatcher, WorkerSite};
pub use task_runner::{SlotRunner, TaskRunner};
pub use tenant_slots::{TenantSlot, TenantSlots};

/// Entity of the commands that carry tasks. No model can define it: modules have other names.
const TASK_ENTITY: &str = "orrery::Task";
/// Attribute with the task.
const TASK: &str = "task";
/// Value of the log line that has the report.
const REPORT: &str = "report";

/// Id of the command of a task.
fn command_id(worker: &str, task: &str) -> Result<ResourceId, InvalidId> {
    ResourceId::new(TASK_ENTITY, worker, "id", task)
}
