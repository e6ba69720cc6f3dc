//! Versions: numbered, immutable sets of resources, built from named sets that versions share.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Resource, Timestamp};

/// Number of a version within its environment; gaps are normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VersionNumber(pub u32);

impl fmt::Display for VersionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Name of a resource set; `None` is the shared set.
pub type SetName = Option<Arc<str>>;

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
