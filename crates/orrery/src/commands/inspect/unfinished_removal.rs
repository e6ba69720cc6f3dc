//! Unfinished removals: versions of `destroy` and `deploy --prune` without a following version.

use orrery_store::{VersionInfo, removal_count};

/// Note on an unfinished removal, if the newest version is one.
pub(in crate::commands) fn unfinished_removal(newest: &VersionInfo) -> Option<&'static str> {
    match removal_count(&newest.info) {
        0 => None,
        all if all == newest.total => Some(
            "a destroy is unfinished: `orrery destroy` continues it, `orrery deploy` restores the model",
        ),
        _ => Some(
            "a removal is unfinished: `orrery deploy --prune` continues it, `orrery deploy` leaves the rest in place",
        ),
    }
}
