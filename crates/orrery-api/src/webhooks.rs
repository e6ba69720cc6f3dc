//! Webhooks, by which a forge tells a server about pushes; and what a server knows of the branch that it follows.

use orrery_model::SecretText;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::accounts::exposed;

/// The webhook of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Webhook {
    /// The path that the forge sends its requests to, below the address of the server.
    pub path: String,
    /// Whether there is a secret. Without one, every request is refused.
    pub enabled: bool,
    /// When the secret was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated: Option<String>,
}

/// The new secret of a webhook. It is told this once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NewWebhookSecret {
    /// The path that the forge sends its requests to, below the address of the server.
    pub path: String,
    /// What the forge signs its requests with.
    #[serde(serialize_with = "exposed")]
    #[schema(value_type = String)]
    pub secret: SecretText,
}

/// What follows from a request of a forge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookReceived {
    /// `accepted`, `ignored` or `pong`.
    pub result: String,
    /// Why.
    pub detail: String,
}

/// What the server knows of the branch that an environment follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FollowedBranch {
    /// The newest commit that the branch was found at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The commit of the last successful compile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiled: Option<String>,
    /// When the branch was last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<String>,
    /// When it is read next; absent if only a webhook makes the server look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_check: Option<String>,
    /// Why it cannot be read; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
