//! Settings of package installation.

use serde::{Deserialize, Serialize};

/// Package installation settings of a project. Other programs write them with the same keys as
/// `project.yml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct PipSettings {
    #[serde(alias = "index_url", skip_serializing_if = "Option::is_none")]
    pub index_url: Option<String>,
    #[serde(alias = "extra_index_url", skip_serializing_if = "Vec::is_empty")]
    pub extra_index_url: Vec<String>,
    /// Allows prereleases. Default: false, unless the system's pip configuration applies and allows
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre: Option<bool>,
    /// True if pip's own configuration applies too, where the project names an index.
    #[serde(alias = "use_system_config", skip_serializing_if = "std::ops::Not::not")]
    pub use_system_config: bool,
}

impl PipSettings {
    /// True if no setting is present.
    pub fn is_empty(&self) -> bool {
        *self == PipSettings::default()
    }
}
