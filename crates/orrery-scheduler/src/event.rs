//! Inputs of the scheduler: versions, results, user requests, the passing of time.

use std::sync::Arc;

use orrery_model::{
    AttributeHash, OutcomeStatus, Resource, ResourceFlags, ResourceId, ResourceState, SetName,
    Timestamp, VersionNumber,
};

use crate::{DryRunId, Settings, TaskNumber};

/// One input. [`Scheduler::handle`](crate::Scheduler::handle) processes one at a time.
#[derive(Clone, Debug)]
pub enum Event {
    /// Released versions after the last processed one, oldest first. Only their net effect counts.
    NewVersions(Vec<VersionDiff>),
    TaskFinished {
        task: TaskNumber,
        result: TaskResult,
    },
    /// Deploys the dirty resources in scope now, such as `orrery repair --pending` does.
    DeployDirty(Filter),
    /// Runs all resources in scope now, also those believed to be compliant, such as `orrery
    /// deploy` does. It makes no resource dirty.
    Verify(Filter),
    /// Continues a verification that began at `since` and was interrupted. A resource with a
    /// successful run that began since then is done; the rest is requested.
    ResumeVerify {
        filter: Filter,
        since: Timestamp,
    },
    /// Runs resources whose files changed without a run. Parked ones stay parked.
    Drift(Filter),
    /// Removes queued tasks and cancels running ones, at a user's request.
    Cancel(Filter),
    /// Stops these agents from starting new tasks. `None`: all known agents.
    Pause(Option<Vec<Arc<str>>>),
    Unpause(Option<Vec<Arc<str>>>),
    /// Emergency stop: no task starts, and running tasks are cancelled.
    Halt,
    Resume,
    SettingsChanged(Box<Settings>),
    /// Overrides the settings' limit on running tasks; `None` is no limit. For drivers that raise
    /// the limit when running tasks only wait.
    RunningMax(Option<u32>),
    /// Time passed: timers that are due at `now` fire.
    Tick,
    /// The stored state; the first event after a start.
    Recover(Box<Recovery>),
    DryRun(DryRunRequest),
    /// Reads the facts of these resources again.
    FactRefresh(Vec<ResourceId>),
}

/// Result of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskResult {
    /// The handler returned a verdict. Dry runs and fact refreshes use only the end, not the
    /// verdict.
    Finished(OutcomeStatus),
    /// The handler was cancelled before its verdict, or never started.
    Cancelled,
    /// The resource is parked at once: only an operator can resolve the failure.
    Parked,
}

/// One resource of a version, as far as the scheduler needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    pub id: ResourceId,
    pub hash: AttributeHash,
    pub flags: ResourceFlags,
    pub requires: Vec<ResourceId>,
}

impl From<&Resource> for Intent {
    fn from(resource: &Resource) -> Self {
        Intent {
            id: resource.id.clone(),
            hash: resource.hash,
            flags: resource.flags,
            requires: resource.requires.clone(),
        }
    }
}

/// Difference between one version and the released one before it.
#[derive(Clone, Debug)]
pub struct VersionDiff {
    pub version: VersionNumber,
    pub scope: Scope,
    pub sets: Vec<SetDiff>,
}

/// Meaning of a set that a diff does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The set is removed: the diff names the whole version.
    Everything,
    /// The set is unchanged.
    ChangedSets,
}

/// One resource set of a version.
#[derive(Clone, Debug)]
pub struct SetDiff {
    pub set: SetName,
    pub content: SetContent,
}

#[derive(Clone, Debug)]
pub enum SetContent {
    /// All resources of the set; a former member that is not listed has left it.
    Whole(Vec<Intent>),
    /// Changes since the previous version: the cost depends on the change, not on the size of the
    /// set.
    Changes { resources: Vec<Intent>, removed: Vec<ResourceId> },
}

/// Scope of a request: the intersection of the given criteria.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub agents: Option<Vec<Arc<str>>>,
    pub ids: Option<Vec<ResourceId>>,
}

impl Filter {
    pub fn all() -> Self {
        Filter::default()
    }

    pub fn agent(name: &str) -> Self {
        Filter { agents: Some(vec![name.into()]), ids: None }
    }

    pub fn ids(ids: impl IntoIterator<Item = ResourceId>) -> Self {
        Filter { agents: None, ids: Some(ids.into_iter().collect()) }
    }

    /// Returns true if a resource is in scope.
    pub fn matches(&self, id: &ResourceId) -> bool {
        self.agents.as_ref().is_none_or(|names| names.iter().any(|name| **name == *id.agent()))
            && self.ids.as_ref().is_none_or(|ids| ids.contains(id))
    }
}

/// Stored state at the start of the engine.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Last processed version; `None` if there was none.
    pub version: Option<VersionNumber>,
    /// Resources of that version with their states.
    pub resources: Vec<RecoveredResource>,
    pub paused: Vec<Arc<str>>,
    pub halted: bool,
    /// Ignores the stored states and deploys everything.
    pub reset: bool,
    /// Versions released since then.
    pub newer: Vec<VersionDiff>,
}

/// A resource of the last processed version with its stored state.
#[derive(Clone, Debug)]
pub struct RecoveredResource {
    pub intent: Intent,
    pub set: SetName,
    pub state: ResourceState,
}

/// Request for the changes that deploying a version would make. Any version is valid, released or
/// not.
#[derive(Clone, Debug)]
pub struct DryRunRequest {
    pub dry_run: DryRunId,
    pub version: VersionNumber,
    /// Tasks and skips refer to a resource by its index in this list.
    pub resources: Vec<Intent>,
}
