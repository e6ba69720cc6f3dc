//! Unfinished removals: versions of `destroy` and `deploy --prune` without a following version.

use super::view::VersionView;

/// Note on an unfinished removal, if the newest version is one.
pub(in crate::commands) fn unfinished_removal(newest: &VersionView) -> Option<&'static str> {
    match newest.removes {
        0 => None,
        all if all == newest.total => Some(
            "a destroy is unfinished: `orrery destroy` continues it, `orrery deploy` restores the model",
        ),
        _ => Some(
            "a removal is unfinished: `orrery deploy --prune` continues it, `orrery deploy` leaves the rest in place",
        ),
    }
}
