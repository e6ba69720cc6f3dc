//! Parameters, facts and unknowns.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::Time;
use crate::string_enum::string_enums;

string_enums! {
    /// Source of a value.
    pub enum ValueSource {
        Fact = "fact",
        Plugin = "plugin",
        User = "user",
        Report = "report",
    }
}

/// A parameter of an environment, or a fact of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Parameter {
    pub name: String,
    pub value: String,
    /// Resource of the fact. Absent for a parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    pub source: ValueSource,
    /// Time of the last update.
    pub updated: Time,
    /// True if the value expires without periodic updates.
    pub expires: bool,
    /// True if it has expired.
    pub expired: bool,
}

/// A parameter value to set.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ParameterUpdate {
    pub value: String,
    /// Source; default: `user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ValueSource>,
    /// Requests a compile if the value is new or changed. A value that resolves an unknown always
    /// does.
    #[serde(default)]
    pub recompile: bool,
    /// For facts: expires without periodic updates. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<bool>,
    /// Metadata of the value. Absent keeps the present metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Effect of a new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParameterSet {
    #[serde(flatten)]
    pub parameter: Parameter,
    /// True if the value is new or differs from the previous one.
    pub changed: bool,
    /// Number of unknowns that the value resolved.
    pub resolved: usize,
    /// Compile that the value triggered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile: Option<Uuid>,
}

/// A value that was not available during the compile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unknown {
    pub name: String,
    /// Resource of the fact. Absent for a parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Expected source: `fact`, `plugin`, `user`.
    pub source: String,
    /// True if the value is available now.
    pub resolved: bool,
}
