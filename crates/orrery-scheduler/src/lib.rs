//! The deploy engine of one environment, as a pure state machine: events in, commands out, time is
//! an input.
//!
//! It has no threads, no clock, no I/O and no randomness. The same events give the same commands; a
//! recorded list of events replays every decision. It knows neither stores nor handlers nor
//! attributes: resources are ids, hashes of their intents, four flags and edges.
//!
//! ```text
//!               ┌──────────────────────────── Scheduler ─────────────────────────────┐
//! Event ──────► │ fold versions ─► blocking ─► dirty ─► tasks (wait, ready) ─► dispatch │ ──────► Command
//! + now         └──────────── timers, deadlines, cron ────────────────────────────────┘
//! ```
//!
//! - [`Event`]: released versions ([`VersionDiff`]), task results ([`TaskResult`]), user requests,
//!   settings, the passing of time ([`Event::Tick`]), and at the start the stored state
//!   ([`Recovery`]).
//! - [`SchedulerCommand`]: start or cancel a task, persist states ([`Changes`]), request a wake-up.
//! - State: each resource has the axes of [`orrery_model::ResourceState`]; read it with
//!   [`Scheduler::state`]. [`Scheduler::explain`] lists the reasons for a resource's state.
//!
//! A driver is a loop: take an event, call [`Scheduler::handle`], execute the commands in order.
//! The results of tasks return as events. A [`ResourceIndex`] is a dense number, so the driver can
//! hold attributes in a table beside the scheduler; [`Scheduler::index_of`] finds it.
//!
//! Start reading at `scheduler`, then `schedule` (creates tasks and counts their waits), `dispatch`
//! (starts tasks), `finish` (processes results), `versions` and `apply` (process versions),
//! `blocking`. Tests are in `tests/it`: one for each promised behaviour, and a random comparison
//! with a slow, obvious model.

mod apply;
mod blocking;
mod command;
mod cron;
mod decision;
mod dispatch;
mod dry_run;
mod due;
mod edges;
mod event;
mod explain;
mod finish;
mod inspect;
mod queue;
mod recover;
mod requests;
mod resource_table;
mod run;
mod schedule;
mod scheduler;
mod settings;
mod timers;
mod versions;

pub use command::{
    AgentIndex, CancelReason, ChangedFields, Changes, Dependency, DryRunId, DryRunSkip, Priority,
    Reason, ResourceIndex, SchedulerCommand, SchedulerWarning, Start, TaskKind, TaskNumber,
};
pub use cron::{Cron, InvalidCron};
pub use decision::{Decision, SkipCause, decide};
pub use due::TimerKind;
pub use event::{
    DryRunRequest, Event, Filter, Intent, RecoveredResource, Recovery, Scope, SetContent, SetDiff,
    TaskResult, VersionDiff,
};
pub use explain::{ResourceExplanation, StateReason};
pub use inspect::{Counts, QueuedTask, RunningTask};
pub use scheduler::Scheduler;
pub use settings::{AgentGroup, Interval, Retry, Settings};
