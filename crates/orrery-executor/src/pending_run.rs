//! Runs that wait for a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orrery_handlers::CancelToken;
use orrery_model::{DriftPolicy, LogLevel, Resource, ResourceId, Timestamp, VersionNumber};
use orrery_scheduler::{AgentIndex, Reason, SkipCause, TaskNumber};
use orrery_store::{ActionKind, ResourceKey, StartedAction};

/// A run that waits for a worker.
#[derive(Clone, Debug)]
pub(crate) struct PendingRun {
    pub(crate) task: TaskNumber,
    pub(crate) kind: RunKind,
    /// The desired resource, as of the start of the task.
    pub(crate) resource: Resource,
    /// `None` in dry runs of resources that are not stored.
    pub(crate) key: Option<ResourceKey>,
    pub(crate) agent: AgentIndex,
    pub(crate) stop: CancelToken,
    pub(crate) started: Timestamp,
    pub(crate) version: VersionNumber,
    pub(crate) reason: Reason,
    /// Reason to skip the handler, with the resources that cause it.
    pub(crate) skip: Option<(LogLevel, SkipCause, Vec<ResourceId>)>,
    pub(crate) deployed_before: bool,
    /// Compliant at its last run.
    pub(crate) was_compliant: bool,
    /// Policy for drift, if the run only looks for it.
    pub(crate) looks_for_drift: Option<DriftPolicy>,
    pub(crate) changed_dependencies: Vec<ResourceId>,
    /// Record to write before a change for which dependents may reload.
    pub(crate) change_record: Option<(ResourceKey, VersionNumber)>,
    /// An earlier effect may or may not have happened.
    pub(crate) has_unknown_effect: bool,
    /// Set when an effect starts that must not be repeated.
    pub(crate) effect_started: Arc<EffectStarted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    Deploy,
    DryRun { entry: u32 },
    Facts,
}

impl PendingRun {
    /// Record of the start of its effect.
    pub(crate) fn start_record(&self) -> Option<StartedAction> {
        let kind = ActionKind::Deploy;
        let (version, at) = (self.version, self.started);
        self.key.map(|resource| StartedAction { resource, kind, version, at })
    }
}

/// Flag for a recorded effect start, shared with the engine.
#[derive(Debug, Default)]
pub(crate) struct EffectStarted(AtomicBool);

impl EffectStarted {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
