//! Trait `Deployment`: read access to a local project's state or to an environment on a server,
//! with the same output for both.

use std::collections::BTreeMap;
use std::fmt;

use orrery_api::{PlacementKind, UnknownEffect};
use orrery_model::{OutcomeStatus, ResourceId, Source, Status, Timestamp, VersionNumber};
use serde_json::{Map, Value};

use super::CliError;
use super::changes::Differences;
use super::view::{ActionView, FactView, RemovalProgress, ResourceSelection, VersionView};

/// State of a resource.
#[derive(Clone, Debug)]
pub(crate) struct ResourceView {
    pub(crate) id: ResourceId,
    pub(crate) status: Status,
    pub(crate) last_run_at: Option<Timestamp>,
    pub(crate) last_outcome: Option<OutcomeStatus>,
    /// Start of the last successful run.
    pub(crate) last_success: Option<Timestamp>,
    pub(crate) attempts: u32,
    pub(crate) parked: bool,
    pub(crate) source: Option<Source>,
    /// `None` if no version removes it.
    pub(crate) removal: Option<RemovalProgress>,
}

impl ResourceView {
    /// Status word. A resource that was removed as planned is `removed`, not `deployed`.
    pub(crate) fn word(&self) -> &'static str {
        match (self.removal, self.status) {
            (Some(RemovalProgress::Done), _) => "removed",
            (Some(RemovalProgress::Pending), Status::Available) => "to be removed",
            (Some(RemovalProgress::Pending), Status::Deploying) => "removing",
            (Some(RemovalProgress::Pending), Status::Failed) => "removal failed",
            (Some(RemovalProgress::Pending), Status::Skipped) => "removal skipped",
            (Some(RemovalProgress::Pending), Status::Unavailable) => "removal unavailable",
            (_, status) => status.as_str(),
        }
    }

    /// True if it was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.removal == Some(RemovalProgress::Done)
    }
}

/// Resource counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) by_status: BTreeMap<Status, u64>,
    /// Parked resources.
    pub(crate) parked: u64,
    /// Deployed resources that the newest version removed.
    pub(crate) removed: u64,
    /// Oldest of the last runs of all resources that have run.
    pub(crate) verified_since: Option<Timestamp>,
}

/// State of an agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentView {
    pub(crate) name: String,
    pub(crate) paused: bool,
    /// True if its machine is unreachable or unknown.
    pub(crate) down: bool,
    /// Reason for `down`, if known.
    pub(crate) reason: Option<String>,
    /// Placement: `local`, `remote`, `ssh`, `revoked`, `none` or `unknown`.
    pub(crate) placement: PlacementKind,
}

/// Placement as a word in tables.
pub(crate) fn placement_word(kind: PlacementKind) -> &'static str {
    match kind {
        PlacementKind::Local => "this machine",
        PlacementKind::Remote => "remote",
        PlacementKind::Ssh => "ssh",
        PlacementKind::Revoked => "revoked",
        PlacementKind::Provisioned => "provisioned",
        PlacementKind::None => "none",
        PlacementKind::Unknown => "unknown",
    }
}

/// Kind of a difference between two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DifferenceKind {
    Added,
    Removed,
    Changed,
}

/// A resource that differs between two versions.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub(crate) id: ResourceId,
    pub(crate) change: DifferenceKind,
    pub(crate) differences: Differences,
    pub(crate) source: Option<Source>,
}

/// The process or operation that deploys at present.
#[derive(Clone, Debug)]
pub(crate) struct ActiveRun {
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl fmt::Display for ActiveRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Next steps of a resource.
#[derive(Debug, Default)]
pub(crate) struct NextSteps {
    /// Status, if more precise than the one in lists.
    pub(crate) status: Option<Status>,
    /// Chain of blocking requirements, down to the root cause.
    pub(crate) path: Vec<BlockingRequirement>,
    pub(crate) next: Vec<NextStep>,
}

/// A requirement that is not compliant, of the resource or of the previous entry.
#[derive(Debug)]
pub(crate) struct BlockingRequirement {
    pub(crate) id: String,
    pub(crate) status: Status,
    pub(crate) message: Option<String>,
    pub(crate) source: Option<Source>,
    /// Number of other requirements that are not compliant.
    pub(crate) others: usize,
}

#[derive(Debug)]
pub(crate) struct NextStep {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

impl NextStep {
    pub(crate) fn new(kind: &'static str, text: impl Into<String>) -> Self {
        NextStep { kind, text: text.into() }
    }
}

/// Rank of a requirement as a cause; `None` if it is compliant.
pub(crate) fn rank(status: Status) -> Option<u8> {
    Some(match status {
        Status::Deployed | Status::Orphaned => return None,
        Status::Failed => 0,
        Status::Unavailable => 1,
        Status::NonCompliant => 2,
        Status::Undefined => 3,
        Status::SkippedForUndefined => 4,
        Status::Skipped => 5,
        Status::Available | Status::Deploying => 6,
    })
}

/// Callback for each resource; returns false to stop.
pub(crate) type Visit<'v> = dyn FnMut(ResourceView) -> Result<bool, CliError> + 'v;

/// A desired state and its deployment.
pub(crate) trait Deployment {
    /// Error if nothing was deployed.
    fn nothing_deployed(&self) -> CliError;

    /// Versions by ascending number.
    fn versions(&self) -> Result<Vec<VersionView>, CliError>;

    /// Version that the engine has processed.
    fn processed(&self) -> Result<Option<VersionNumber>, CliError>;

    fn counts(&self) -> Result<Counts, CliError>;

    /// Unrepeatable effects with unknown outcomes.
    fn unknown_effects(&self) -> Result<Vec<UnknownEffect>, CliError>;

    fn agents(&self) -> Result<Vec<AgentView>, CliError>;

    /// Environment and server, unless the deployment is local.
    fn environment(&self) -> Option<String> {
        None
    }

    fn at_work(&self) -> Result<Option<ActiveRun>, CliError>;

    /// Visits resources after an id, sorted by id. `batch` is the expected number of visits.
    fn visit(
        &self,
        query: &ResourceSelection,
        after: Option<&str>,
        batch: usize,
        visit: &mut Visit<'_>,
    ) -> Result<(), CliError>;

    fn find(&self, id: &str) -> Result<Option<ResourceView>, CliError>;

    /// Actions, newest first, with their logs.
    fn actions(&self, id: &str, limit: usize) -> Result<Vec<ActionView>, CliError>;

    /// Facts of one resource, or of all.
    fn facts(&self, of: Option<&str>) -> Result<Vec<FactView>, CliError>;

    /// Differences sorted by id.
    fn differences(
        &self,
        from: VersionNumber,
        to: VersionNumber,
        visit: &mut dyn FnMut(Changed),
    ) -> Result<(), CliError>;

    /// Names of attributes that differ between two versions of a resource, excluding its
    /// requirements. `None` if the intent is equal, or if the history is gone.
    fn changed_attributes(
        &self,
        id: &ResourceId,
        from: VersionNumber,
        to: VersionNumber,
    ) -> Result<Option<Vec<String>>, CliError>;

    /// True if the released version contains a resource of the newest version.
    fn is_in_released(&self, _id: &ResourceId, _released: &VersionView) -> Result<bool, CliError> {
        Ok(true)
    }

    /// Attributes of a resource in the released version, if it has the resource.
    fn attributes(&self, id: &ResourceId) -> Result<Option<Map<String, Value>>, CliError>;

    fn next_steps(
        &self,
        resource: &ResourceView,
        version: &VersionView,
    ) -> Result<NextSteps, CliError>;
}
