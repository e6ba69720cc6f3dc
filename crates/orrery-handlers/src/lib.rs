//! Native handlers: bring files, packages, services, users, commands and more into their desired
//! state.
//!
//! Start from `Handler` (called through [`run`]), `Crud` (the base of most handlers), `Target` (the
//! only access to a machine) and `Registry` (handlers by entity). It knows nothing of scheduling,
//! storing or compiling. Tests are at the end of the files, and the laws of all handlers in
//! `tests/it`.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")
)]

mod account;
mod agent_config;
pub mod clock;
mod context;
mod cron;
mod directory;
pub mod drift;
mod error;
mod exec;
mod file;
mod handler;
mod handler_run;
mod http;
mod machine_facts;
mod ownership;
mod package;
mod read_ahead_window;
mod registry;
mod removal;
pub mod run;
mod secrets;
mod service;
mod shell_words;
mod symlink;
pub mod target;
mod target_cache;
mod testing;
mod tools;
mod transport_error;
mod worker_pool;

pub use context::{Context, EffectStart, changed};
pub use error::{Cause, HandlerError, TargetError, TargetVerb};
pub use handler::{Crud, Handler};
pub use handler_run::{
    BeforeChange, CodePart, Contents, EffectGate, Mode, NoContents, PortableCode, ServerCalls,
    ServerReply,
};
pub use read_ahead_window::ReadAheadWindow;
pub use registry::Registry;
pub use removal::{HandlerCapabilities, Unmanaged};
pub use secrets::{
    LocalSecrets, ProtectedPaths, SecretError, SecretSource, Secrets, resolve_guarded,
    resolve_on_target,
};
pub use target::{
    AgentMachine, CancelCause, CancelToken, Durability, FaultyTarget, LocalTarget, MemoryTarget,
    Moment, OutwardTarget, Permit, Target,
};
pub use target_cache::TargetCache;
pub use worker_pool::{Busy, JobSource, NextJob, WorkerCounts, WorkerPool};

/// Registers all native handlers with their declarations.
fn register_all(registry: &mut Registry) {
    file::register(registry);
    directory::register(registry);
    symlink::register(registry);
    testing::register(registry);
    exec::register(registry);
    package::register(registry);
    service::register(registry);
    account::register(registry);
    agent_config::register(registry);
    cron::register(registry);
    http::register(registry);
    machine_facts::register(registry);
}
