//! Logging in, users, roles.

use orrery_model::SecretText;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;
use uuid::Uuid;

/// Writes a secret into a request. Nothing else may.
pub(crate) fn exposed<S: Serializer>(
    secret: &SecretText,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

fn exposed_if_given<S: Serializer>(
    secret: &Option<SecretText>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match secret {
        Some(secret) => exposed(secret, serializer),
        None => serializer.serialize_none(),
    }
}

/// A name and a password.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    #[schema(max_length = 255)]
    pub name: String,
    #[serde(serialize_with = "exposed")]
    #[schema(value_type = String, max_length = 128)]
    pub password: SecretText,
    /// For browsers: the session is set as a cookie that scripts cannot read, and not told in the answer.
    #[serde(default)]
    pub cookie: bool,
}

/// An open session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// To be sent as `Authorization: Bearer …`; absent if it was set as a cookie.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "exposed_if_given")]
    #[schema(value_type = Option<String>)]
    pub token: Option<SecretText>,
    /// When it ends, unless it is renewed before.
    pub expires: String,
    pub user: Me,
}

/// The first account of an installation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// From the link that the server printed at its first start.
    #[serde(serialize_with = "exposed")]
    #[schema(value_type = String)]
    pub token: SecretText,
    #[schema(min_length = 1, max_length = 255)]
    pub name: String,
    #[serde(serialize_with = "exposed")]
    #[schema(value_type = String, min_length = 12, max_length = 128)]
    pub password: SecretText,
}

/// Where somebody has a role, and which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Granted {
    /// `viewer`, `operator`, `developer` or `admin`.
    pub role: String,
    /// Present if it counts in one project only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Uuid>,
    /// Present if it counts in one environment only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Uuid>,
}

/// The caller, as the server knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// `user:NAME` or `token:NAME`.
    pub name: String,
    /// The account, if there is one on this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    pub roles: Vec<Granted>,
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    pub id: Uuid,
    pub name: String,
    /// May do everything everywhere.
    pub admin: bool,
    pub disabled: bool,
    /// Who vouches for it, if it has no password here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    pub created: String,
}

/// An account to be made: with a password, or with the name of the issuer that vouches for it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    #[schema(min_length = 1, max_length = 255)]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "exposed_if_given")]
    #[schema(value_type = Option<String>, min_length = 12, max_length = 128)]
    pub password: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    #[serde(default)]
    pub admin: bool,
}

/// What to change of an account; what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserUpdate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
}

/// Another password.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    /// Needed for one's own account.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "exposed_if_given")]
    #[schema(value_type = Option<String>, max_length = 128)]
    pub current: Option<SecretText>,
    #[serde(serialize_with = "exposed")]
    #[schema(value_type = String, min_length = 12, max_length = 128)]
    pub password: SecretText,
}

/// What a role allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Role {
    pub name: String,
    /// The strongest right that it gives; the weaker ones are included.
    pub right: String,
    pub description: String,
}

/// A role that somebody has in a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleAssignment {
    pub user: Uuid,
    pub user_name: String,
    #[serde(flatten)]
    pub granted: Granted,
}

/// A role to be given in the place that the path names.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRoleAssignment {
    /// The user's name.
    #[schema(max_length = 255)]
    pub user: String,
    /// `viewer`, `operator`, `developer` or `admin`.
    #[schema(max_length = 32)]
    pub role: String,
}
