//! Secrets of the server's own store: they can be written and used, never read.

use orrery_model::SecretText;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::accounts::exposed;

/// A secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    pub name: String,
    /// When the value was set.
    pub updated: String,
    /// Grows with each change; in `If-Match`, between quotation marks, a change is made to this one alone.
    #[serde(default)]
    pub revision: i64,
}

/// A value to be kept.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretValue {
    #[serde(serialize_with = "exposed")]
    #[schema(value_type = String, max_length = 65536)]
    pub value: SecretText,
}
