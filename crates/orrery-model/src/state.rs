//! State of a resource: four independent axes, and the status derived from them.

use serde::{Deserialize, Serialize};

use crate::{AttributeHash, OutcomeStatus, Timestamp};

/// Compliance of the actual state with the intent, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Compliance {
    Compliant,
    /// The current intent has not been tried yet.
    HasUpdate,
    NonCompliant,
    /// The intent contains an unknown.
    Undefined,
}

/// Result of the handler's last run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LastRunStatus {
    #[default]
    New,
    Successful,
    Failed,
    Skipped,
}

/// Permission to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Blocked {
    #[default]
    NotBlocked,
    /// The resource is undefined, or a direct or indirect requirement is.
    Blocked,
    /// The resource waits for a requirement that is known to be bad.
    TemporarilyBlocked,
}

/// Status for display, derived from the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Deployed,
    Available,
    Deploying,
    Skipped,
    Failed,
    Unavailable,
    NonCompliant,
    Undefined,
    SkippedForUndefined,
    Orphaned,
}

impl Status {
    pub const ALL: [Status; 10] = [
        Status::Deployed,
        Status::Available,
        Status::Deploying,
        Status::Skipped,
        Status::Failed,
        Status::Unavailable,
        Status::NonCompliant,
        Status::Undefined,
        Status::SkippedForUndefined,
        Status::Orphaned,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Status::Deployed => "deployed",
            Status::Available => "available",
            Status::Deploying => "deploying",
            Status::Skipped => "skipped",
            Status::Failed => "failed",
            Status::Unavailable => "unavailable",
            Status::NonCompliant => "non_compliant",
            Status::Undefined => "undefined",
            Status::SkippedForUndefined => "skipped_for_undefined",
            Status::Orphaned => "orphaned",
        }
    }
}

/// Stored state of a resource, across versions and restarts.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceState {
    /// Intent of the newest processed version; `None` for an orphan.
    pub intent: Option<AttributeHash>,
    pub undefined: bool,
    pub blocked: Blocked,
    pub deploying: bool,
    pub last_run: LastRunStatus,
    /// Compliance after the last run; `None` before the first.
    pub last_run_compliant: Option<bool>,
    /// Verdict of the last run.
    pub last_outcome: Option<OutcomeStatus>,
    /// End of the last run.
    pub last_run_at: Option<Timestamp>,
    /// Intent of the last run.
    pub last_deployed: Option<AttributeHash>,
    /// Start of the last successful run.
    pub last_success: Option<Timestamp>,
    /// Time of its last event to dependents.
    pub last_produced_events: Option<Timestamp>,
    /// Number of failed runs since the last successful one.
    pub attempts: u32,
    /// Not retried after too many attempts, until a request or a new intent.
    pub parked: bool,
}

impl ResourceState {
    pub fn new(intent: AttributeHash, undefined: bool) -> Self {
        ResourceState {
            intent: Some(intent),
            undefined,
            blocked: if undefined { Blocked::Blocked } else { Blocked::NotBlocked },
            deploying: false,
            last_run: LastRunStatus::New,
            last_run_compliant: None,
            last_outcome: None,
            last_run_at: None,
            last_deployed: None,
            last_success: None,
            last_produced_events: None,
            attempts: 0,
            parked: false,
        }
    }

    /// Derives the compliance; `None` for an orphan, which has no intent.
    pub fn compliance(&self) -> Option<Compliance> {
        let intent = self.intent?;
        Some(if self.undefined {
            Compliance::Undefined
        } else if self.last_deployed != Some(intent) {
            Compliance::HasUpdate
        } else if self.last_run_compliant == Some(true) {
            Compliance::Compliant
        } else {
            Compliance::NonCompliant
        })
    }

    pub fn status(&self) -> Status {
        let Some(compliance) = self.compliance() else {
            return Status::Orphaned;
        };
        if self.deploying {
            return Status::Deploying;
        }
        match (compliance, self.blocked) {
            (Compliance::Undefined, _) => return Status::Undefined,
            (_, Blocked::Blocked) => return Status::SkippedForUndefined,
            (Compliance::HasUpdate, _) => return Status::Available,
            (Compliance::Compliant | Compliance::NonCompliant, _) => {}
        }
        match self.last_outcome {
            None => Status::Available,
            Some(OutcomeStatus::Deployed) => Status::Deployed,
            Some(OutcomeStatus::Failed) => Status::Failed,
            Some(OutcomeStatus::Skipped | OutcomeStatus::SkippedForDependency) => Status::Skipped,
            Some(OutcomeStatus::Unavailable) => Status::Unavailable,
            Some(OutcomeStatus::NonCompliant) => Status::NonCompliant,
        }
    }
}

impl From<OutcomeStatus> for LastRunStatus {
    fn from(status: OutcomeStatus) -> Self {
        match status {
            OutcomeStatus::Deployed | OutcomeStatus::NonCompliant => LastRunStatus::Successful,
            OutcomeStatus::Failed | OutcomeStatus::Unavailable => LastRunStatus::Failed,
            OutcomeStatus::Skipped | OutcomeStatus::SkippedForDependency => LastRunStatus::Skipped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> ResourceState {
        ResourceState::new(AttributeHash([1; 16]), false)
    }

    #[test]
    fn a_new_resource_is_available() {
        assert_eq!(state().compliance(), Some(Compliance::HasUpdate));
        assert_eq!(state().status(), Status::Available);
    }

    #[test]
    fn the_stronger_reason_is_shown() {
        let deployed = ResourceState {
            last_deployed: Some(AttributeHash([1; 16])),
            last_run: LastRunStatus::Successful,
            last_run_compliant: Some(true),
            last_outcome: Some(OutcomeStatus::Deployed),
            ..state()
        };
        assert_eq!(deployed.status(), Status::Deployed);
        let changed = ResourceState { intent: Some(AttributeHash([2; 16])), ..deployed };
        assert_eq!(changed.status(), Status::Available);
        let blocked = ResourceState { blocked: Blocked::Blocked, ..changed };
        assert_eq!(blocked.status(), Status::SkippedForUndefined);
        let undefined = ResourceState { undefined: true, ..blocked };
        assert_eq!(undefined.status(), Status::Undefined);
        let deploying = ResourceState { deploying: true, ..undefined };
        assert_eq!(deploying.status(), Status::Deploying);
        let orphan = ResourceState { intent: None, ..deploying };
        assert_eq!(orphan.status(), Status::Orphaned);
    }
}
