//! Tokens for programs.

use orrery_model::SecretText;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::accounts::exposed;

/// What a program may do with a token. It never can do more than its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    pub id: Uuid,
    pub name: String,
    /// Whose it is.
    pub user: Uuid,
    /// `viewer`, `operator`, `developer` or `admin`: no more than this.
    pub role: String,
    /// Present if it is good in one project only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Uuid>,
    /// Present if it is good in one environment only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Uuid>,
    /// Methods that it may use; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbs: Option<Vec<String>>,
    /// Groups of routes that it may use, as they stand in the paths, such as `versions` or `compiles`; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    pub created: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
    /// To the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<String>,
}

/// A token to be made for the caller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    #[schema(min_length = 1, max_length = 255)]
    pub name: String,
    /// `viewer`, `operator`, `developer` or `admin`.
    #[schema(max_length = 32)]
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 8)]
    pub verbs: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub groups: Option<Vec<String>>,
    /// Days until it expires; 90 if absent, 0 for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 3650)]
    pub days: Option<u32>,
}

/// A token that was just made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    /// Told this one time; the server keeps only a hash of it.
    #[serde(serialize_with = "exposed")]
    #[schema(value_type = String)]
    pub secret: SecretText,
    pub token: Token,
}
