//! Remote agents: processes on other machines that run handlers there.

use orrery_model::SecretText;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::accounts::exposed;
use crate::{Actions, Transitioning};

/// A process on another machine, and the agents that it serves there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RemoteAgent {
    pub id: Uuid,
    /// The agents whose resources are on its machine.
    pub names: Vec<String>,
    /// `connected`, `disconnected` or `revoked`.
    pub status: String,
    /// What it tells of its machine.
    #[schema(value_type = Object)]
    pub machine: serde_json::Value,
    /// Which program it is; empty before its first session.
    pub program_version: String,
    pub joined: String,
    /// When its newest session began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<String>,
    /// To some ten seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
    /// The number of its newest session; it grows with each.
    pub session: i64,
    /// Whether it is still to come for the first time, or went away.
    #[serde(default)]
    pub transitioning: Transitioning,
    /// What it is waited for, or what is wrong.
    #[serde(default)]
    pub transitioning_message: String,
    /// What can be done with it now.
    #[serde(default)]
    pub actions: Actions,
}

/// An invitation to be made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewInvitation {
    /// The agents that whoever joins will serve.
    #[schema(min_items = 1, max_items = 1000)]
    pub names: Vec<String>,
    /// Seconds until it expires; an hour if absent, a week at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 604_800)]
    pub expires_in: Option<u32>,
}

/// An invitation that was just made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Invitation {
    /// Told this one time; the server keeps only a hash of it. Good for one machine.
    #[serde(serialize_with = "exposed")]
    #[schema(value_type = String)]
    pub token: SecretText,
    pub names: Vec<String>,
    pub expires: String,
    /// Where to join, as `host:port`.
    pub gateway: String,
}
