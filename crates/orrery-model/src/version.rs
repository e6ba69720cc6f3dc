//! Versions: numbered, immutable sets of resources, built from named sets that versions share.

use crate::{Resource, Timestamp, VersionNumber};

/// A version with all its resources, as an export creates it.
#[derive(Clone, Debug)]
pub struct Version {
    pub number: VersionNumber,
    pub made_at: Timestamp,
    /// Origin of the version, as JSON for display: the command, the user, the commit.
    pub info: serde_json::Value,
    /// Sorted by id.
    pub resources: Vec<Resource>,
}
