//! API tokens.

use orrery_model::SecretText;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::accounts::serialize_secret;
use crate::string_enum::string_enums;
use crate::{RoleName, Time};

string_enums! {
    /// HTTP method that a token may use, in uppercase.
    pub enum Verb {
        Get = "GET",
        Post = "POST",
        Put = "PUT",
        Patch = "PATCH",
        Delete = "DELETE",
    }
}

/// An API token. Its rights never exceed those of its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    pub id: Uuid,
    pub name: String,
    /// Id of the owner.
    pub user: Uuid,
    /// Maximum role.
    pub role: RoleName,
    /// The project to which the token is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Uuid>,
    /// The environment to which the token is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Uuid>,
    /// Allowed methods; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbs: Option<Vec<Verb>>,
    /// Allowed groups of routes, as in the paths, such as `versions` or `compiles`; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    pub created: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Time>,
    /// Time of the last use, to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Time>,
}

/// A token to create for the caller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    #[schema(min_length = 1, max_length = 255)]
    pub name: String,
    pub role: RoleName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 8)]
    pub verbs: Option<Vec<Verb>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub groups: Option<Vec<String>>,
    /// Validity in days. Default: 90. 0 for no expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 3650)]
    pub days: Option<u32>,
}

/// A newly created token.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    /// Returned only once: the server stores a hash of it.
    #[serde(serialize_with = "serialize_secret")]
    #[schema(value_type = String)]
    pub secret: SecretText,
    pub token: Token,
}
