//! What a handler changed, or would change.

use serde::{Deserialize, Serialize};

/// One attribute that differs: what it is and what it should be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttributeChange {
    pub name: String,
    pub current: serde_json::Value,
    pub desired: serde_json::Value,
}

/// What happened to the resource as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// A change with its attributes; empty attributes with `Created` or `Purged` mean that only the existence changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub kind: ChangeKind,
    pub attributes: Vec<AttributeChange>,
}
