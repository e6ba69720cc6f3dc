//! Remote agents: processes on other machines that run handlers there.

use std::collections::BTreeMap;

use orrery_model::SecretText;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::accounts::serialize_secret;
use crate::string_enum::string_enums;
use crate::{Actions, Time, Transitioning};

string_enums! {
    /// Status of a remote agent.
    pub enum RemoteAgentStatus {
        Connected = "connected",
        Disconnected = "disconnected",
        Revoked = "revoked",
    }
}

/// A remote agent: a process on another machine, and the agents that it serves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RemoteAgent {
    pub id: Uuid,
    /// Agents that it serves.
    pub names: Vec<String>,
    pub status: RemoteAgentStatus,
    /// Machine information that it reported.
    #[schema(value_type = Object)]
    pub machine: serde_json::Value,
    /// Version of its program; empty before its first session.
    pub program_version: String,
    /// Resource types of its own that it offers.
    #[serde(default)]
    pub types: Vec<OfferedResourceType>,
    pub joined: Time,
    /// Start time of its newest session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<Time>,
    /// Time of its last heartbeat, with a precision of about two seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Time>,
    /// Number of its newest session; increases with each.
    pub session: i64,
    /// `yes` before its first connection, `error` after it disconnected.
    #[serde(default)]
    pub transitioning: Transitioning,
    /// Expected event, or the error.
    #[serde(default)]
    pub transitioning_message: String,
    /// Available actions.
    #[serde(default)]
    pub actions: Actions,
}

/// A resource type that a remote agent offers by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OfferedResourceType {
    /// Full name of the entity, such as `notes::Note`.
    pub entity: String,
    /// Path from an instance to the name of its agent.
    pub agent: String,
    /// Attribute that identifies a resource on its agent.
    pub id_attribute: String,
    /// Types of the attributes, by name.
    pub attributes: BTreeMap<String, String>,
}

/// An invitation to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewInvitation {
    /// Agents that the joining machine will serve.
    #[schema(min_items = 1, max_items = 1000)]
    pub names: Vec<String>,
    /// Validity in seconds. Default: an hour. Maximum: a week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 604_800)]
    pub expires_in: Option<u32>,
}

/// An invitation that no machine has used yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingInvitation {
    pub id: Uuid,
    pub names: Vec<String>,
    pub created: Time,
    pub expires: Time,
}

/// A newly created invitation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Invitation {
    /// Returned only once: the server stores a hash of it. Valid for one machine.
    #[serde(serialize_with = "serialize_secret")]
    #[schema(value_type = String)]
    pub token: SecretText,
    pub names: Vec<String>,
    pub expires: Time,
    /// Address to join, as `host:port`.
    pub gateway: String,
    /// Names that already have a place, with what happens when the machine joins, and the remedy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
