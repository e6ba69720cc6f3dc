//! Audit log entries and their verification.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::Time;

/// One request that changed something, or tried to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Consecutive number, from 1.
    pub id: i64,
    pub at: Time,
    /// `user:NAME`, `token:NAME` or `anonymous`.
    pub actor: String,
    /// Client address of the request.
    pub address: String,
    /// Method and route.
    pub action: String,
    /// Object of the request.
    pub subject: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Uuid>,
    /// HTTP status of the response.
    pub status: i64,
    pub detail: String,
    /// SHA-256 over the previous hash and this entry.
    pub hash: String,
}

/// A known head to verify the hash chain against.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditCheck {
    /// Number of an entry with a hash recorded earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// Recorded hash of that entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub hash: Option<String>,
}

/// Result of a verification of the hash chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditVerdict {
    pub good: bool,
    /// Number of entries that were verified.
    pub entries: i64,
    /// Hash of the last verified entry. Store it elsewhere to detect a truncated log later.
    pub head: String,
    /// The first entry with a wrong hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
