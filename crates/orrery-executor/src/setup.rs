//! Configuration of an engine: what it runs with, and where its results go.

use std::sync::Arc;
use std::time::Duration;

use orrery_handlers::{Contents, Permit, Registry, Secrets};
use orrery_model::{DriftPolicies, LogLevel, OutcomeStatus};
use orrery_scheduler::Settings;
use orrery_store::{Lease, Store, StoreError};

use crate::concurrency::WorkerLimits;
use crate::placement::TargetResolver;

/// Dependencies and settings of an engine.
pub struct EngineSetup {
    pub registry: Arc<Registry>,
    pub targets: Arc<dyn TargetResolver>,
    pub contents: Arc<dyn Contents>,
    /// Source of late-bound values.
    pub secrets: Arc<dyn Secrets>,
    pub settings: Settings,
    /// Reactions to drift, from the first run on.
    pub drift_policies: DriftPolicies,
    /// Number of handlers that may run at once.
    pub workers: WorkerLimits,
    /// Handler log lines below this level are dropped.
    pub log_level: LogLevel,
    /// Store for results; `None` for dry runs, which persist nothing.
    pub store_handle: Option<StoreHandle>,
    /// Receiver of notices, for engines without a waiting caller. Called from any thread without a
    /// lock held; must not block.
    pub listener: Option<Listener>,
}

pub type Listener = Arc<dyn Fn(Notice) + Send + Sync>;

/// Notice to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The engine is idle, a request ended, the next tick moved, or writing failed.
    Attention,
    /// Results were persisted.
    Written,
    /// A handler ran to deploy a resource.
    Ran { outcome: OutcomeStatus, took: Duration },
}

impl std::fmt::Debug for EngineSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineSetup").field("workers", &self.workers).finish_non_exhaustive()
    }
}

/// Store with the lease to write to it.
#[derive(Clone)]
pub struct StoreHandle {
    pub store: Store,
    pub lease: Lease,
    /// Time that this process may act under the lease, by its own clock. After it nothing is
    /// started, and runs in progress are cancelled.
    pub permit: Permit,
}

impl std::fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreHandle").field("lease", &self.lease).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("results could not be stored")]
    Store(#[from] StoreError),
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}
