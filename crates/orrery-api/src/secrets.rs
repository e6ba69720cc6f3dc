//! Secrets in the server's vault: write-only.

use orrery_model::SecretText;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Time;
use crate::accounts::serialize_secret;

/// A secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    pub name: String,
    /// Time at which the value was set.
    pub updated: Time,
    /// Increases with each change. Sent in quotes as `If-Match`, it limits a change to this
    /// revision.
    #[serde(default)]
    pub revision: i64,
}

/// A secret value to store.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretValue {
    #[serde(serialize_with = "serialize_secret")]
    #[schema(value_type = String, max_length = 65536)]
    pub value: SecretText,
}
