//! Where the commands that look get what they show: the state of a local project, or an environment on a server. Both answer
//! the same questions, so that both look the same.

use std::collections::BTreeMap;
use std::fmt;

use orrery_api::UnknownEffect;
use orrery_model::{OutcomeStatus, ResourceId, Source, Status, Timestamp, VersionNumber};
use orrery_store::{
    Action, Parameter, RemovalStage, ResourceLine, ResourceQuery, ResourceSummary, VersionInfo,
};
use serde_json::{Map, Value};

use super::Trouble;
use super::changes::Differences;

/// A resource as it is seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) id: ResourceId,
    pub(crate) status: Status,
    pub(crate) last_run_at: Option<Timestamp>,
    pub(crate) last_outcome: Option<OutcomeStatus>,
    /// When the last run that ended well began.
    pub(crate) last_success: Option<Timestamp>,
    pub(crate) attempts: u32,
    pub(crate) parked: bool,
    pub(crate) source: Option<Source>,
    /// `None` if nothing removes it.
    pub(crate) removal: Option<RemovalStage>,
}

impl Seen {
    /// The word for its state. A resource that is removed as it should be is not deployed in any other sense.
    pub(crate) fn word(&self) -> &'static str {
        match (self.removal, self.status) {
            (Some(RemovalStage::Done), _) => "removed",
            (Some(RemovalStage::Pending), Status::Available) => "to be removed",
            (Some(RemovalStage::Pending), Status::Deploying) => "removing",
            (Some(RemovalStage::Pending), Status::Failed) => "removal failed",
            (Some(RemovalStage::Pending), Status::Skipped) => "removal skipped",
            (Some(RemovalStage::Pending), Status::Unavailable) => "removal unavailable",
            (_, status) => status.as_str(),
        }
    }

    /// Whether it was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.removal == Some(RemovalStage::Done)
    }
}

impl From<ResourceLine> for Seen {
    fn from(line: ResourceLine) -> Self {
        let ResourceLine { summary, removal, .. } = line;
        let ResourceSummary { id, status, state, source, .. } = summary;
        Seen {
            id,
            status,
            last_run_at: state.last_run_at,
            last_outcome: state.last_outcome,
            last_success: state.last_success,
            attempts: state.attempts,
            parked: state.parked,
            source,
            removal,
        }
    }
}

/// Counts of resources.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) by_status: BTreeMap<Status, u64>,
    /// Resources that are not tried again by themselves.
    pub(crate) parked: u64,
    /// Of the deployed resources, those that the newest version removes: they are gone.
    pub(crate) removed: u64,
    /// The oldest last run of all resources that have run.
    pub(crate) verified_since: Option<Timestamp>,
}

/// An agent as it is seen.
#[derive(Clone, Debug)]
pub(crate) struct AgentSeen {
    pub(crate) name: String,
    pub(crate) paused: bool,
    /// Its machine cannot be reached, or is not known.
    pub(crate) down: bool,
    /// Why that is so, if more is known of it.
    pub(crate) reason: Option<String>,
    /// Where its resources are applied: `local`, `remote`, `ssh`, `revoked` or `unknown`.
    pub(crate) placement: String,
}

/// The word for a placement in tables.
pub(crate) fn placement_word(kind: &str) -> &'static str {
    match kind {
        "local" => "this machine",
        "remote" => "remote",
        "ssh" => "ssh (not yet)",
        "revoked" => "revoked",
        _ => "unknown",
    }
}

/// What a difference between two versions is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeOf {
    Added,
    Removed,
    Changed,
}

/// A resource that differs between two versions.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub(crate) id: ResourceId,
    pub(crate) change: ChangeOf,
    pub(crate) differences: Differences,
    pub(crate) source: Option<Source>,
}

/// Who changes things at present.
#[derive(Clone, Debug)]
pub(crate) struct AtWork {
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl fmt::Display for AtWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What will become of a resource.
#[derive(Debug, Default)]
pub(crate) struct Outlook {
    /// The state, if more is known of it than a list says.
    pub(crate) status: Option<Status>,
    /// Requirements that are not as wanted, down to the one that is to blame.
    pub(crate) path: Vec<Step>,
    pub(crate) next: Vec<Next>,
}

/// A requirement that is not as wanted, of the resource or of the step before.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) id: String,
    pub(crate) status: Status,
    pub(crate) message: Option<String>,
    pub(crate) source: Option<Source>,
    /// Other requirements that are not as wanted either.
    pub(crate) others: usize,
}

#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

impl Next {
    pub(crate) fn new(kind: &'static str, text: impl Into<String>) -> Self {
        Next { kind, text: text.into() }
    }
}

/// How much a requirement is to blame; `None` if it is as wanted.
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

/// Told of each resource; says whether there is interest in more.
pub(crate) type Visit<'v> = dyn FnMut(Seen) -> Result<bool, Trouble> + 'v;

/// One desired state with what became of it.
pub(crate) trait Deployment {
    /// Why there is nothing to look at.
    fn nothing_deployed(&self) -> Trouble;

    /// By ascending number.
    fn versions(&self) -> Result<Vec<VersionInfo>, Trouble>;

    /// The version that the engine works on.
    fn processed(&self) -> Result<Option<VersionNumber>, Trouble>;

    fn counts(&self) -> Result<Counts, Trouble>;

    /// Effects that must not be repeated and whose outcomes are unknown.
    fn unknown_effects(&self) -> Result<Vec<UnknownEffect>, Trouble>;

    fn agents(&self) -> Result<Vec<AgentSeen>, Trouble>;

    /// The environment on a server that this is, with the server.
    fn environment(&self) -> Option<String> {
        None
    }

    fn at_work(&self) -> Result<Option<AtWork>, Trouble>;

    /// Visits resources behind an id in the order of ids. `batch` is how many are expected to be looked at.
    fn each(
        &self,
        query: &ResourceQuery,
        after: Option<&str>,
        batch: usize,
        visit: &mut Visit<'_>,
    ) -> Result<(), Trouble>;

    fn find(&self, id: &str) -> Result<Option<Seen>, Trouble>;

    /// The latest first, with their logs.
    fn actions(&self, id: &str, limit: usize) -> Result<Vec<Action>, Trouble>;

    /// Facts of one resource, or of all.
    fn facts(&self, of: Option<&str>) -> Result<Vec<Parameter>, Trouble>;

    /// In the order of ids.
    fn differences(
        &self,
        from: VersionNumber,
        to: VersionNumber,
        visit: &mut dyn FnMut(Changed),
    ) -> Result<(), Trouble>;

    /// Names of what differs between what two versions want of a resource, if the intent does; what it requires is no part of
    /// that. `None` also if nobody knows any more.
    fn changed_attributes(
        &self,
        id: &ResourceId,
        from: VersionNumber,
        to: VersionNumber,
    ) -> Result<Option<Vec<String>>, Trouble>;

    /// Whether the released version has a resource that the newest one has.
    fn is_wanted(&self, _id: &ResourceId, _released: &VersionInfo) -> Result<bool, Trouble> {
        Ok(true)
    }

    /// What the released version wants of a resource; `None` if it wants nothing.
    fn attributes(&self, id: &ResourceId) -> Result<Option<Map<String, Value>>, Trouble>;

    fn outlook(&self, resource: &Seen, version: &VersionInfo) -> Result<Outlook, Trouble>;
}
