//! Environments and their settings.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::string_enum::string_enums;
use crate::{Actions, FollowedBranch, Time, Transitioning};

string_enums! {
    /// Type of the value of a setting.
    pub enum SettingType {
        Bool = "bool",
        Integer = "integer",
        Number = "number",
        Interval = "interval",
        Cron = "cron",
        Patterns = "patterns",
        Placements = "placements",
        DriftPolicies = "drift_policies",
        Choice = "choice",
        Text = "text",
    }

    /// Topic of a setting.
    pub enum SettingSection {
        Deploy = "deploy",
        Agent = "agent",
        Scheduler = "scheduler",
        Compiler = "compiler",
        Storage = "storage",
        Environment = "environment",
    }
}

/// A desired state and its history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Environment {
    pub id: Uuid,
    /// Project of the environment.
    pub project: Uuid,
    /// Name of the project.
    pub project_name: String,
    /// Unique in the project.
    pub name: String,
    /// Free text.
    pub description: String,
    /// Image as a data URL; empty if there is none.
    pub icon: String,
    /// Git repository of the model; empty if versions are pushed.
    pub repository: String,
    /// Branch of the repository; empty for its default branch.
    pub branch: String,
    /// State of that branch. Absent if versions are pushed, or the branch was not read yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed: Option<FollowedBranch>,
    /// Name of the project directory that the environment is bound to; empty if there is none.
    /// Versions of other projects are refused.
    #[serde(default)]
    pub model_project: String,
    /// Creation time.
    pub created: Time,
    /// True if all deploys and compiles are halted.
    pub halted: bool,
    /// True if the environment cannot be cleared or deleted.
    pub protected: bool,
    /// `yes` while the environment is being deleted.
    pub transitioning: Transitioning,
    /// Current activity.
    pub transitioning_message: String,
    /// Available actions.
    pub actions: Actions,
}

/// An environment to create.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEnvironment {
    /// Chosen by the server if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// Project of the environment.
    pub project: Uuid,
    /// Unique in the project.
    #[schema(min_length = 1, max_length = 255)]
    pub name: String,
    /// Free text.
    #[serde(default)]
    #[schema(max_length = 255)]
    pub description: String,
    /// Data URL of a PNG, JPEG, WebP or SVG image.
    #[serde(default)]
    #[schema(max_length = 65536)]
    pub icon: String,
    /// Git repository of the model.
    #[serde(default)]
    #[schema(max_length = 2048)]
    pub repository: String,
    /// Branch of the repository.
    #[serde(default)]
    #[schema(max_length = 255)]
    pub branch: String,
}

/// Changes to an environment. Absent fields keep their values.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentUpdate {
    /// Moves the environment to another project. Requires administration rights in both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Uuid>,
    /// Unique in the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub name: Option<String>,
    /// Free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub description: Option<String>,
    /// Data URL of a PNG, JPEG, WebP or SVG image; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 65536)]
    pub icon: Option<String>,
    /// Git repository of the model; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2048)]
    pub repository: Option<String>,
    /// Branch of the repository; empty for its default branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub branch: Option<String>,
    /// Binds the environment to the project of this name. Empty removes the binding, and the next
    /// version binds it again; so does a new repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub model_project: Option<String>,
}

/// A setting of an environment, with its definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Setting {
    pub name: String,
    /// Effective value.
    pub value: Value,
    /// Default value.
    pub default: Value,
    /// True if the value was set explicitly.
    pub set: bool,
    /// Type of the value.
    pub r#type: SettingType,
    /// Smallest value of a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<u64>,
    /// Possible values of a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Topic.
    pub section: SettingSection,
    /// Description of its effect.
    pub doc: String,
    /// True if the setting cannot be changed through this API.
    pub protected: bool,
    /// Source of the protection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_by: Option<String>,
}

/// New value of a setting.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingUpdate {
    pub value: Value,
}

/// Settings to protect from changes, because files of a project define them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtectedSettings {
    /// Value of each setting. A setting that the same source protected before and that is absent
    /// here loses its protection.
    pub settings: std::collections::BTreeMap<String, Value>,
    /// Source of the protection, for display: `project.yml`.
    #[schema(min_length = 1, max_length = 255)]
    pub protected_by: String,
}
