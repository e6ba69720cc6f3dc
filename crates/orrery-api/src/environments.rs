//! Environments and their settings.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{Actions, FollowedBranch, Transitioning};

/// One desired state and its history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Environment {
    pub id: Uuid,
    /// The project that it belongs to.
    pub project: Uuid,
    /// The name of that project.
    pub project_name: String,
    /// Unique in its project.
    pub name: String,
    /// For people.
    pub description: String,
    /// A picture as a data URL; empty if there is none.
    pub icon: String,
    /// Where the model comes from; empty if versions are pushed.
    pub repository: String,
    /// The branch of the repository; empty for its usual one.
    pub branch: String,
    /// What is known of that branch; absent if versions are pushed, or nothing is known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed: Option<FollowedBranch>,
    /// The name of the project whose model it has; empty if it is bound to none. Versions of other projects are refused.
    #[serde(default)]
    pub model_project: String,
    /// When it was made.
    pub created: String,
    /// Whether everything in it is stopped.
    pub halted: bool,
    /// Whether it is neither cleared nor deleted.
    pub protected: bool,
    /// Whether it is being deleted.
    pub transitioning: Transitioning,
    /// What is happening to it.
    pub transitioning_message: String,
    /// What can be done with it now.
    pub actions: Actions,
}

/// An environment to be made.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEnvironment {
    /// Chosen by the server if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// The project that it belongs to.
    pub project: Uuid,
    /// Not used by another environment of the project.
    #[schema(min_length = 1, max_length = 255)]
    pub name: String,
    /// For people.
    #[serde(default)]
    #[schema(max_length = 255)]
    pub description: String,
    /// A data URL of a PNG, JPEG, WebP or SVG picture.
    #[serde(default)]
    #[schema(max_length = 65536)]
    pub icon: String,
    /// The git repository with the model.
    #[serde(default)]
    #[schema(max_length = 2048)]
    pub repository: String,
    /// The branch of the repository.
    #[serde(default)]
    #[schema(max_length = 255)]
    pub branch: String,
}

/// What to change of an environment; what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentUpdate {
    /// Moves it to another project, which needs the right to administer that one too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Uuid>,
    /// Not used by another environment of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub name: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub description: Option<String>,
    /// A data URL of a PNG, JPEG, WebP or SVG picture; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 65536)]
    pub icon: Option<String>,
    /// The git repository with the model; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2048)]
    pub repository: Option<String>,
    /// The branch of the repository; empty for its usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub branch: Option<String>,
    /// Binds it to the project of this name; empty to bind it to none, so that the next version binds it. A new repository does so too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub model_project: Option<String>,
}

/// A setting of an environment: what it is, and what it means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Setting {
    pub name: String,
    /// The value that holds.
    pub value: Value,
    /// The value that holds if nobody says otherwise.
    pub default: Value,
    /// Whether somebody said otherwise.
    pub set: bool,
    /// The form of the value: `bool`, `integer`, `number`, `interval`, `cron`, `choice`, `text`.
    pub r#type: String,
    /// What it is about: `deploy`, `agent`, `scheduler`, `compiler`, `storage`, `environment`.
    pub section: String,
    /// What it does.
    pub doc: String,
    /// Whether it is set where people cannot change it.
    pub protected: bool,
    /// Who set it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_by: Option<String>,
}

/// The new value of a setting.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingUpdate {
    pub value: Value,
}

/// Settings that people cannot change then: those that a project's own files fix.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtectedSettings {
    /// Each setting and its value. What was protected by the same protector before and is absent here is protected no more.
    pub settings: std::collections::BTreeMap<String, Value>,
    /// Who protects them, for people: `project.yml`.
    #[schema(min_length = 1, max_length = 255)]
    pub protected_by: String,
}
