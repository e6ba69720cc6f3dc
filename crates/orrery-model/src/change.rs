//! Changes that a handler made or would make.

use serde::{Deserialize, Serialize};

/// A differing attribute with its current and its desired value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttributeDiff {
    pub name: String,
    pub current: serde_json::Value,
    pub desired: serde_json::Value,
}

/// Kind of change of the resource as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    #[default]
    NoChange,
    Created,
    Updated,
    Purged,
}

impl ChangeKind {
    pub const ALL: [ChangeKind; 4] =
        [ChangeKind::NoChange, ChangeKind::Created, ChangeKind::Updated, ChangeKind::Purged];

    pub fn as_str(self) -> &'static str {
        match self {
            ChangeKind::NoChange => "nochange",
            ChangeKind::Created => "created",
            ChangeKind::Updated => "updated",
            ChangeKind::Purged => "purged",
        }
    }
}

/// A change with its attributes. Without attributes, `Created` and `Purged` mean that only the
/// existence changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub kind: ChangeKind,
    pub attributes: Vec<AttributeDiff>,
}
