//! The deploy engine of one environment, as a pure state machine: an event goes in, commands come out, and time
//! is an input.
//!
//! It has no threads, no clock, no I/O and no chance of its own. The same events give the same commands;
//! a recorded list of events replays every decision. It knows neither stores nor handlers nor attributes:
//! resources are ids, hashes of their intents, four flags and edges.
//!
//! ```text
//!               ┌──────────────────────────── Scheduler ─────────────────────────────┐
//! Event ──────► │ fold versions ─► blocking ─► dirty ─► tasks (wait, ready) ─► dispatch │ ──────► Command
//! + now         └──────────── timers, deadlines, cron ────────────────────────────────┘
//! ```
//!
//! - [`Event`]: versions that were released ([`VersionDiff`]), results of tasks ([`TaskResult`]), requests of people,
//!   settings, the passing of time ([`Event::Tick`]), and at the start what the store knows ([`Recovery`]).
//! - [`Command`]: start or cancel a task, keep states ([`Changes`]), wake me up.
//! - State: each resource has the axes of [`orrery_model::ResourceState`]; read it with [`Scheduler::state`].
//!   [`Scheduler::why`] explains what a resource waits for.
//!
//! A driver is a loop: take an event, call [`Scheduler::handle`], carry out the commands, in their order. The
//! results of tasks come back as events. A resource is named by its [`ResourceIndex`], a dense number, so
//! that the driver can keep attributes in a table beside; [`Scheduler::index_of`] finds it.
//!
//! Start reading at `scheduler`, then `schedule` (which tasks exist and wait), `dispatch` (which start), `finish` (what a
//! result means), `versions` and `apply` (what a version means), `blocking`. Tests are in `tests/it`: one for each
//! promised behaviour, and a random comparison with a slow, obvious model.

mod apply;
mod blocking;
mod command;
mod cron;
mod decision;
mod dispatch;
mod dry_run;
mod edges;
mod event;
mod finish;
mod inspect;
mod queue;
mod recover;
mod requests;
mod run;
mod schedule;
mod scheduler;
mod settings;
mod table;
mod ticks;
mod timers;
mod versions;
mod why;

pub use command::{
    AgentIndex, CancelReason, Changes, Command, Dependency, DryRunAnswer, DryRunId, Parts,
    Priority, Reason, ResourceIndex, Start, TaskKind, TaskNumber, Warning,
};
pub use cron::{Cron, InvalidCron};
pub use decision::{Decision, SkipCause, decide};
pub use event::{
    DryRunRequest, Event, Filter, Intent, Recovered, Recovery, Scope, SetContent, SetDiff,
    TaskResult, VersionDiff,
};
pub use inspect::{Counts, QueuedTask, RunningTask};
pub use scheduler::Scheduler;
pub use settings::{AgentGroup, Interval, Retry, Settings};
pub use ticks::TimerKind;
pub use why::{Because, Why};
