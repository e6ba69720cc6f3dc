//! Runs handlers: a pool of threads around one scheduler, and a writer that keeps what they came to.
//!
//! ```text
//!            ┌── core, under one lock ──┐
//! workers ──►│ scheduler, tables, jobs  │──► workers
//!            │ things to be written     │──► writer ──► store
//!            └──────────────────────────┘
//! ```
//!
//! A worker that ends a job tells the scheduler itself and takes the next one: no thread is woken
//! between two resources of one agent. The writer takes all that has gathered while it wrote before,
//! so that a slow disk makes batches larger and not the deploy slower.
//!
//! Start from [`Engine`]; [`Desired`] and [`recovery`] make what it starts from, [`plan()`] asks what a deploy
//! would do. It knows nothing of models, terminals or servers. Tests: `tests/it`.

mod asked;
mod awaited;
mod begun;
mod core;
mod dry_run;
mod engine;
mod fitting;
mod hosting;
mod interrupted;
mod job;
mod late;
mod live;
mod load;
mod long;
mod plan;
mod pool;
mod progress;
mod reasons;
mod remote;
mod resolving;
mod room;
mod targets;
mod task;
mod writer;

pub use asked::{Answer, RequestProgress, Ticket, Waiting};
pub use engine::{Engine, EngineError, Keeper, Listener, Notice, Setup};
pub use hosting::{
    Consequences, Hosted, Hosting, HostingError, NoConsequences, StoredContents, StoredFiles,
    StoredParameters,
};
pub use interrupted::note_interrupted;
pub use live::Update;
pub use load::{Desired, KnownStates, Start, recovery, recovery_with};
pub use plan::{Planned, plan};
pub use progress::{Finished, Progress, Running, Tally};
pub use reasons::{Cause, Risk, runs_always};
pub use remote::{Order, Remote, RemoteError};
pub use room::Workers;
pub use targets::{
    LocalTargets, NoTarget, Place, Targets, declared_address, declared_addresses, place_outward,
};
pub use task::{Bench, Performed, Purpose, Task};
