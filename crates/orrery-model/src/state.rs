//! The state of a resource: four independent axes, and the one word that people see.

use serde::{Deserialize, Serialize};

use crate::{AttributeHash, OutcomeStatus, Timestamp};

/// Whether the world matches what is wanted, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compliance {
    Compliant,
    /// The current intent has not been tried yet.
    HasUpdate,
    NonCompliant,
    /// The intent contains an unknown.
    Undefined,
}

/// How the handler's last run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlerRun {
    #[default]
    New,
    Successful,
    Failed,
    Skipped,
}

/// Whether it may run at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blocked {
    #[default]
    NotBlocked,
    /// It is undefined, or something that it requires, near or far, is.
    Blocked,
    /// It waits for something that is known to be bad.
    TemporarilyBlocked,
}

/// The one word that people see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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

/// What is kept of a resource between versions and over restarts.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceState {
    /// The intent of the newest processed version; `None` for an orphan.
    pub intent: Option<AttributeHash>,
    pub undefined: bool,
    pub blocked: Blocked,
    pub deploying: bool,
    pub last_run: HandlerRun,
    /// Whether the last run left it as wanted; `None` before the first.
    pub last_run_compliant: Option<bool>,
    /// The verdict of the last run.
    pub last_outcome: Option<OutcomeStatus>,
    /// When the last run ended.
    pub last_run_at: Option<Timestamp>,
    /// The intent that the last run worked on.
    pub last_deployed: Option<AttributeHash>,
    /// When the last run that ended well began.
    pub last_success: Option<Timestamp>,
    /// When it last gave its dependents a reason to look again.
    pub last_produced_events: Option<Timestamp>,
    /// Failed runs since the last good one.
    pub attempts: u32,
    /// Given up after too many attempts; a person or a new intent starts it again.
    pub parked: bool,
}

impl ResourceState {
    pub fn new(intent: AttributeHash, undefined: bool) -> Self {
        ResourceState {
            intent: Some(intent),
            undefined,
            blocked: if undefined { Blocked::Blocked } else { Blocked::NotBlocked },
            deploying: false,
            last_run: HandlerRun::New,
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

    /// `None` for an orphan: nothing is wanted of it.
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

impl From<OutcomeStatus> for HandlerRun {
    fn from(status: OutcomeStatus) -> Self {
        match status {
            OutcomeStatus::Deployed | OutcomeStatus::NonCompliant => HandlerRun::Successful,
            OutcomeStatus::Failed | OutcomeStatus::Unavailable => HandlerRun::Failed,
            OutcomeStatus::Skipped | OutcomeStatus::SkippedForDependency => HandlerRun::Skipped,
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
            last_run: HandlerRun::Successful,
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
