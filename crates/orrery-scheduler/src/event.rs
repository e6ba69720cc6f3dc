//! What the scheduler is told: new versions, results, requests of people, the passing of time.

use std::sync::Arc;

use orrery_model::{
    AttributeHash, OutcomeStatus, Resource, ResourceFlags, ResourceId, ResourceState, SetName,
    Timestamp, VersionNumber,
};

use crate::{DryRunId, Settings, TaskNumber};

/// Something that happened. [`Scheduler::handle`](crate::Scheduler::handle) takes one at a time.
#[derive(Clone, Debug)]
pub enum Event {
    /// Released versions that are newer than the last processed one, oldest first. Only their net effect counts.
    NewVersions(Vec<VersionDiff>),
    TaskFinished {
        task: TaskNumber,
        result: TaskResult,
    },
    /// A person wants what is not as wanted to be tried now.
    Deploy(Filter),
    /// A person wants everything to be verified now. It is no reason to believe that anything differs.
    Repair(Filter),
    /// A repair that was taken in at `since` and was cut off: what was deployed by a run that began since then is
    /// done, the rest is asked for.
    ContinueRepair {
        filter: Filter,
        since: Timestamp,
    },
    /// A person wants tasks to be taken back and running ones to be stopped.
    Cancel(Filter),
    /// These agents take no new task. `None`: all that are known.
    Pause(Option<Vec<Arc<str>>>),
    Unpause(Option<Vec<Arc<str>>>),
    /// Emergency stop: nothing starts, and what runs is cancelled.
    Halt,
    Resume,
    SettingsChanged(Box<Settings>),
    /// So many tasks may run at once from now on, whatever the settings said; `None`: any number. For drivers that
    /// make room as they find that what runs only waits.
    Room(Option<u32>),
    /// Time passed: what is due at `now` happens.
    Tick,
    /// The first event after a start: what the store knows.
    Recover(Box<Recovery>),
    DryRun(DryRunRequest),
    /// The facts of these resources are to be read again.
    FactRefresh(Vec<ResourceId>),
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskResult {
    /// The handler came to a verdict. For dry runs and fact refreshes only the end matters, not the verdict.
    Finished(OutcomeStatus),
    /// The handler was stopped before its verdict, or never began.
    Cancelled,
    /// It failed in a way that only a person can do something about: it is parked at once.
    Parked,
}

/// What the scheduler has to know of one resource of a version.
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

/// How one version differs from the released one before it.
#[derive(Clone, Debug)]
pub struct VersionDiff {
    pub version: VersionNumber,
    pub scope: Scope,
    pub sets: Vec<SetDiff>,
}

/// What is meant by a set that a diff does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// It is gone: the diff names the whole version.
    Everything,
    /// It is unchanged.
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
    /// All of its resources; those that it held before and that are not here have left it.
    Whole(Vec<Intent>),
    /// What changed since the version before: the cost follows the change, not the set.
    Changes { resources: Vec<Intent>, removed: Vec<ResourceId> },
}

/// Which resources a request is about: the intersection of what is given.
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
}

/// What the store knows when the engine starts.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// The last version that was processed; `None` if none ever was.
    pub version: Option<VersionNumber>,
    /// The resources of that version with their states.
    pub resources: Vec<Recovered>,
    pub paused: Vec<Arc<str>>,
    pub halted: bool,
    /// Believe no state: everything is deployed again.
    pub reset: bool,
    /// Versions that were released since.
    pub newer: Vec<VersionDiff>,
}

/// One resource of the last processed version, and what became of it.
#[derive(Clone, Debug)]
pub struct Recovered {
    pub intent: Intent,
    pub set: SetName,
    pub state: ResourceState,
}

/// What would deploying this version change? The version may be any, released or not.
#[derive(Clone, Debug)]
pub struct DryRunRequest {
    pub dry_run: DryRunId,
    pub version: VersionNumber,
    /// Tasks and answers name a resource by its place in this list.
    pub resources: Vec<Intent>,
}
