//! Checks of version numbers, set names and hashes.

use orrery_api::VersionUpload;
use orrery_model::VersionNumber;
use orrery_store::ContentHash;

use crate::error::ServerError;

const SET_NAME_MAX: usize = 1024;

pub(super) fn version_number(given: u64) -> Result<VersionNumber, ServerError> {
    // Databases use signed numbers.
    let number = u32::try_from(given).ok().filter(|number| (1..=i32::MAX as u32).contains(number));
    number.map(VersionNumber).ok_or_else(|| {
        ServerError::rule("version-not-reserved", format!("{given} is not a version number"))
    })
}

/// Checks the names of sets: not empty, and short enough for an index.
pub(super) fn check_sets(upload: &VersionUpload) -> Result<(), ServerError> {
    let used = upload.resources.iter().filter_map(|resource| resource.set.as_ref());
    for set in used.chain(&upload.removed_sets) {
        if set.is_empty() || set.len() > SET_NAME_MAX {
            let text = format!("the name of a set must have 1 to {SET_NAME_MAX} bytes: {set:?}");
            return Err(ServerError::rule("invalid-set-name", text));
        }
    }
    Ok(())
}

/// Parses the SHA-1 of a file.
pub fn content_hash(text: &str) -> Option<ContentHash> {
    ContentHash::from_hex(text)
}
