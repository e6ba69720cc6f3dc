//! Runs handlers: a worker pool around one scheduler, and a writer that persists outcomes.
//!
//! ```text
//!            ┌─ state, under one lock ──┐
//! workers ──►│ scheduler, pending runs  │──► workers
//!            │ queued writes            │──► writer ──► store
//!            └──────────────────────────┘
//! ```
//!
//! A worker that finishes a run reports to the scheduler itself and takes the next run: no thread
//! is woken between two resources of one agent. The writer takes everything that was queued during
//! its last transaction, so a slow disk makes batches larger and does not slow the deploy.
//!
//! Start from [`Engine`]; [`DesiredState`] and [`recover`] build its initial state, [`plan()`]
//! computes what a deploy would change. It knows nothing of models, terminals or servers. Tests:
//! `tests/it`.

mod change_cause;
mod concurrency;
mod deferred_handler;
mod dry_run;
mod effects;
mod engine;
mod fact_watch;
mod interrupted;
mod long_running;
mod pending_run;
mod placement;
mod plan;
mod pool;
mod progress;
mod python_handlers;
mod recovery;
mod requests;
mod setup;
mod shared;
mod state;
mod updates;
mod worker;
mod writer;

pub use change_cause::{ChangeCause, Risk, runs_at_every_deploy};
pub use concurrency::WorkerLimits;
pub use engine::Engine;
pub use interrupted::record_interrupted;
pub use placement::{
    ExecutionSite, LocalTargets, NoTarget, TargetResolver, declared_address, declared_addresses,
    outward_site,
};
pub use plan::{PlanEntry, plan};
pub use progress::{FinishedRun, Progress, RunningResource, Tally};
pub use python_handlers::{
    HostConfig, HostSetupError, HostedHandlers, NoParameterHooks, ParameterHooks, StoredContents,
    StoredFiles, StoredParameters,
};
pub use recovery::{DesiredState, StartState, StoredStates, recover, recover_with};
pub use requests::{RequestBlockers, RequestId, RequestOutcome, RequestProgress};
pub use setup::{EngineError, EngineSetup, Listener, Notice, StoreHandle};
pub use updates::Update;
