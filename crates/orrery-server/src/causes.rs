//! Statuses as causes of each other: what explains a wait best, and what only passes it on.

use orrery_model::Status;

/// Rank of a requirement as a cause, the strongest first; `None` if it is compliant.
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

/// True if the reason of a status can be one of its requirements.
pub(crate) fn leads_on(status: Status) -> bool {
    matches!(status, Status::Skipped | Status::SkippedForUndefined | Status::Available)
}
