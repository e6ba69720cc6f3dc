//! View of a deployment: what commands show of it, local or on a server.

use orrery_model::{
    Change, LogLevel, LogLine, OutcomeStatus, Pattern, ResourceId, Status, Timestamp, VersionNumber,
};
use serde_json::Value;

/// A version of the desired state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VersionView {
    pub(crate) number: VersionNumber,
    pub(crate) made_at: Timestamp,
    pub(crate) released: bool,
    /// Time of the release; `None` if the version is not released.
    pub(crate) released_at: Option<Timestamp>,
    pub(crate) info: Value,
    /// Number of resources that the version removes.
    pub(crate) removes: u64,
    pub(crate) total: u64,
    /// Difference from the version that was the newest when this one was stored.
    pub(crate) added: u64,
    pub(crate) changed: u64,
    pub(crate) removed: u64,
}

/// Kind of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActionViewKind {
    Deploy,
    DryRun,
    /// A run that only collected facts.
    GetFacts,
    Other,
}

impl ActionViewKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ActionViewKind::Deploy => "deploy",
            ActionViewKind::DryRun => "dry_run",
            ActionViewKind::GetFacts => "get_facts",
            ActionViewKind::Other => "other",
        }
    }
}

/// One run of a resource's handler.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ActionView {
    pub(crate) kind: ActionViewKind,
    pub(crate) version: VersionNumber,
    pub(crate) started: Timestamp,
    /// `None`, without an outcome, if the engine ended before the action did.
    pub(crate) finished: Option<Timestamp>,
    pub(crate) outcome: Option<OutcomeStatus>,
    pub(crate) change: Change,
    pub(crate) log: Vec<LogLine>,
}

impl ActionView {
    /// Log line that explains a failure: the last warning or error, or else the last line.
    pub(crate) fn failure_line(&self) -> Option<&LogLine> {
        let warning = self.log.iter().rfind(|line| line.level >= LogLevel::Warning);
        warning
            .or_else(|| self.log.last().filter(|_| self.outcome != Some(OutcomeStatus::Deployed)))
    }

    /// Remedy that a log line suggests, if any.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.log.iter().rev().find_map(|line| line.values.get("hint")?.as_str())
    }

    /// Requirements that a skipped resource waits for.
    pub(crate) fn blocked_by(&self) -> Vec<&str> {
        let is_skipped = self.outcome == Some(OutcomeStatus::SkippedForDependency);
        let line = self.failure_line().filter(|_| is_skipped);
        let resources = line.and_then(|line| line.values.get("resources")?.as_array());
        resources.into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// Origin of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FactOrigin {
    Fact,
    Plugin,
    User,
    Report,
}

impl FactOrigin {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            FactOrigin::Fact => "fact",
            FactOrigin::Plugin => "plugin",
            FactOrigin::User => "user",
            FactOrigin::Report => "report",
        }
    }
}

/// A fact of a resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FactView {
    pub(crate) name: String,
    pub(crate) value: String,
    /// `None` for a parameter.
    pub(crate) resource: Option<ResourceId>,
    pub(crate) origin: FactOrigin,
    pub(crate) updated: Timestamp,
    pub(crate) expires: bool,
}

/// Progress of a planned removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemovalProgress {
    /// The newest version removes it, and the removal has not succeeded yet.
    Pending,
    Done,
}

impl RemovalProgress {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RemovalProgress::Pending => "pending",
            RemovalProgress::Done => "done",
        }
    }
}

/// Filter for resources. All given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceSelection {
    pub(crate) agent: Option<String>,
    /// The entity: `std::File`.
    pub(crate) entity: Option<String>,
    /// Pattern for the identifying value.
    pub(crate) value: Option<Pattern>,
    /// Any of these; empty for all but orphans.
    pub(crate) statuses: Vec<Status>,
    /// Includes removed resources. They are orphans.
    pub(crate) removed: bool,
}
