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

mod agent_sites;
mod change_cause;
mod concurrency;
mod deferred_handler;
mod dry_run;
mod effects;
mod engine;
mod engine_clock;
mod engine_handle;
mod fact_collection;
mod fact_watch;
mod host_config;
mod interrupted;
mod job_queue;
mod lifecycle;
mod pending_run;
mod placement;
mod plan;
mod progress;
mod progress_recorder;
mod python_handlers;
mod read_ahead;
mod recovery;
mod request_tracker;
mod resource_table;
mod run_monitor;
mod running_tasks;
mod setup;
mod shared;
mod state;
#[cfg(test)]
mod test_support;
mod unknown_effects;
mod update;
mod worker;
mod workers;
mod write_queue;
mod writer;

pub use change_cause::{ChangeCause, Risk, runs_at_every_deploy};
pub use concurrency::WorkerLimits;
pub use deferred_handler::BackgroundSetup;
pub use engine::Engine;
pub use engine_handle::EngineHandle;
pub use fact_collection::collect_facts;
pub use host_config::{HostConfig, HostSetupError};
pub use interrupted::record_interrupted;
pub use placement::{
    ConnectedMachine, ExecutionSite, LocalTargets, Machines, NoTarget, ReachableMachine,
    TargetResolver, declared_address, declared_addresses, machine_site, outward_site,
};
pub use plan::{PlanEntry, plan};
pub use progress::{FinishedRun, Progress, RunningResource, Tally};
pub use python_handlers::{
    HostedHandlers, NoParameterHooks, ParameterHooks, StoredContents, StoredFiles, StoredParameters,
};
pub use recovery::{DesiredState, StartState, StoredStates, recover, recover_with};
pub use request_tracker::{RequestBlockers, RequestId, RequestOutcome, RequestProgress};
pub use setup::{EngineError, EngineSetup, Listener, Notice, StoreHandle};
pub use update::Update;
