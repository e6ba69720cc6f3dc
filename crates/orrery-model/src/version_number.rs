//! Number of a version, which ids of resources refer to as well.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of a version within its environment; gaps are normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VersionNumber(pub u32);

impl fmt::Display for VersionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
