//! Webhooks of forges for pushes, and the state of followed branches.

use orrery_model::SecretText;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Time;
use crate::accounts::serialize_secret;
use crate::string_enum::string_enums;

string_enums! {
    /// Effect of a webhook request. `pong` answers a test of the forge.
    pub enum WebhookEffect {
        Accepted = "accepted",
        Ignored = "ignored",
        Pong = "pong",
    }
}

/// The webhook of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Webhook {
    /// Path for the requests of the forge, below the address of the server.
    pub path: String,
    /// True if a secret is set. Without one, all requests are refused.
    pub enabled: bool,
    /// Creation time of the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated: Option<Time>,
}

/// A new webhook secret. Returned only once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NewWebhookSecret {
    /// Path for the requests of the forge, below the address of the server.
    pub path: String,
    /// Key for the signatures of the forge.
    #[serde(serialize_with = "serialize_secret")]
    #[schema(value_type = String)]
    pub secret: SecretText,
}

/// Effect of a webhook request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookReceived {
    pub result: WebhookEffect,
    /// Reason.
    pub detail: String,
}

/// State of the branch that an environment follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FollowedBranch {
    /// Newest known commit of the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Commit of the last successful compile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiled: Option<String>,
    /// Time of the last read of the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<Time>,
    /// Time of the next read. Absent if only webhooks trigger reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_check: Option<Time>,
    /// Error of the last read, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
