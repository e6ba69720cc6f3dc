//! Native handlers: what brings files, packages, services, users, commands and more into their desired
//! state.
//!
//! Start from `Handler` (what the executor calls), `Crud` (what most handlers are), `Target` (the one
//! way to the outside) and `Registry` (which handler serves which entity). It knows nothing of
//! scheduling, storing or compiling. Tests are at the end of the files, and the laws that all handlers
//! obey in `tests/it`.

mod account;
mod agent_config;
mod context;
mod cron;
mod directory;
mod error;
mod exec;
mod file;
mod handler;
mod null;
mod ownership;
mod package;
mod registry;
mod removal;
mod secrets;
mod service;
mod session;
mod symlink;
pub mod target;
mod tools;
mod web;
mod words;

pub use context::{
    Announcement, Contents, Context, EffectGate, EffectStart, Mode, NoContents, Run, Standing,
    Surroundings, changed,
};
pub use error::{Cause, HandlerError, Operation, TargetError};
pub use handler::{Crud, Handler};
pub use registry::Registry;
pub use removal::{Abilities, Unmanaged};
pub use secrets::{
    LocalSecrets, ProtectedPaths, Reference, SecretError, Secrets, resolve_guarded, resolve_on,
};
pub use session::Session;
pub use target::{
    Durability, FaultyTarget, LocalTarget, Machine, MemoryTarget, Moment, OutwardTarget, Permit,
    Stop, StopReason, Target,
};

/// All handlers of this program, each with its declaration.
fn register_all(registry: &mut Registry) {
    file::register(registry);
    directory::register(registry);
    symlink::register(registry);
    null::register(registry);
    exec::register(registry);
    package::register(registry);
    service::register(registry);
    account::register(registry);
    agent_config::register(registry);
    cron::register(registry);
    web::register(registry);
}
