//! Logins, users and roles.

use orrery_model::SecretText;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::Time;
use crate::string_enum::string_enums;

string_enums! {
    /// Name of a role, from the weakest to the strongest.
    pub enum RoleName {
        Viewer = "viewer",
        Operator = "operator",
        Developer = "developer",
        Admin = "admin",
    }

    /// Name of a right, from the weakest to the strongest.
    pub enum RightName {
        View = "view",
        Operate = "operate",
        Develop = "develop",
        Administer = "administer",
    }
}

/// Serializes a secret into a request. The only function that does.
pub(crate) fn serialize_secret<S: Serializer>(
    secret: &SecretText,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

#[expect(clippy::ref_option, reason = "serde asks for it")]
fn serialize_optional_secret<S: Serializer>(
    secret: &Option<SecretText>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match secret {
        Some(secret) => serialize_secret(secret, serializer),
        None => serializer.serialize_none(),
    }
}

/// A name and a password.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    #[schema(max_length = 255)]
    pub name: String,
    #[serde(serialize_with = "serialize_secret")]
    #[schema(value_type = String, max_length = 128)]
    pub password: SecretText,
    /// Sets the session as an `HttpOnly` cookie instead of returning it. For browsers.
    #[serde(default)]
    pub cookie: bool,
}

/// A login session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Sent as `Authorization: Bearer …`. Absent if the session is a cookie.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "serialize_optional_secret"
    )]
    #[schema(value_type = Option<String>)]
    pub token: Option<SecretText>,
    /// Expiry time, unless the session is renewed before.
    pub expires: Time,
    pub user: Me,
}

/// The first account of an installation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Token from the link that the server prints at its first start.
    #[serde(serialize_with = "serialize_secret")]
    #[schema(value_type = String)]
    pub token: SecretText,
    #[schema(min_length = 1, max_length = 255)]
    pub name: String,
    #[serde(serialize_with = "serialize_secret")]
    #[schema(value_type = String, min_length = 12, max_length = 128)]
    pub password: SecretText,
}

/// A role and the scope in which it applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Granted {
    pub role: RoleName,
    /// The project to which the role is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Uuid>,
    /// The environment to which the role is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Uuid>,
}

/// The authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// `user:NAME` or `token:NAME`.
    pub name: String,
    /// Id of the account, if it exists on this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    pub roles: Vec<Granted>,
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    pub id: Uuid,
    pub name: String,
    /// Grants all rights in all scopes.
    pub admin: bool,
    pub disabled: bool,
    /// Name of the identity provider, for an account without a password here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    pub created: Time,
}

/// An account to create: with a password, or with the name of its identity provider.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    #[schema(min_length = 1, max_length = 255)]
    pub name: String,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "serialize_optional_secret"
    )]
    #[schema(value_type = Option<String>, min_length = 12, max_length = 128)]
    pub password: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    #[serde(default)]
    pub admin: bool,
}

/// Changes to an account. Absent fields keep their values.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserUpdate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
}

/// A new password.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    /// Current password. Required to change the caller's own password.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "serialize_optional_secret"
    )]
    #[schema(value_type = Option<String>, max_length = 128)]
    pub current: Option<SecretText>,
    #[serde(serialize_with = "serialize_secret")]
    #[schema(value_type = String, min_length = 12, max_length = 128)]
    pub password: SecretText,
}

/// Definition of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Role {
    pub name: RoleName,
    /// The strongest right of the role. It includes the weaker ones.
    pub right: RightName,
    pub description: String,
}

/// A role assigned to a user in a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleAssignment {
    pub user: Uuid,
    pub user_name: String,
    #[serde(flatten)]
    pub granted: Granted,
}

/// A role to assign in the scope that the path names.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRoleAssignment {
    /// Name of the user.
    #[schema(max_length = 255)]
    pub user: String,
    pub role: RoleName,
}
