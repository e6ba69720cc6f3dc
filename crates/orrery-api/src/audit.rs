//! Who did what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Something that somebody did or tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Counted from 1, without gaps.
    pub id: i64,
    pub at: String,
    /// `user:NAME`, `token:NAME` or `anonymous`.
    pub actor: String,
    /// Where the request came from.
    pub address: String,
    /// The method and the route.
    pub action: String,
    /// What it was about.
    pub subject: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Uuid>,
    /// How it was answered.
    pub status: i64,
    pub detail: String,
    /// SHA-256 over the hash before it and this entry.
    pub hash: String,
}

/// What to compare the chain with.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditCheck {
    /// A head that was noted earlier: the entry with this number …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// … must have this hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub hash: Option<String>,
}

/// Whether the chain is whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditVerdict {
    pub good: bool,
    /// How many entries were found to be as they were written.
    pub entries: i64,
    /// The hash of the last of them. Note it elsewhere: it also shows, later, whether the end was cut off.
    pub head: String,
    /// The first entry that does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
