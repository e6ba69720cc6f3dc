//! The `orrery` section of `project.yml`: settings that the reference compiler does not have and
//! ignores.

use crate::metadata::MetadataReader;
use crate::yaml::Yaml;

/// Project settings that are specific to Orrery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectSettings {
    /// Agents that run on the deploying machine: names, with `*` and `?` as wildcards.
    pub local_agents: Vec<String>,
    pub templates: TemplateMode,
}

/// Treatment of undeclared attributes in templates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TemplateMode {
    /// An error.
    #[default]
    Strict,
    /// Empty, as in the reference compiler.
    Lenient,
}

impl ProjectSettings {
    /// Reads the section; each problem names its key.
    pub(super) fn read(fields: &Yaml, checks: &mut MetadataReader<'_>) -> Self {
        let mut settings = ProjectSettings::default();
        let entries = match fields.get("orrery") {
            None | Some(Yaml::Null) => return settings,
            Some(Yaml::Map(entries)) => entries,
            Some(other) => {
                let reason = format!("Input should be a mapping, but it is {}", other.kind());
                checks.refuse("orrery", reason);
                return settings;
            }
        };
        for (key, value) in entries {
            let Yaml::Text(key) = key else {
                checks.refuse(
                    "orrery",
                    format!("a key should be a string, but it is {}", key.kind()),
                );
                continue;
            };
            match (key.as_str(), value) {
                ("local_agents", Yaml::List(patterns)) => {
                    for (at, pattern) in patterns.iter().enumerate() {
                        match pattern {
                            Yaml::Text(text) => settings.local_agents.push(text.clone()),
                            other => checks.refuse(
                                format!("orrery.local_agents.{at}"),
                                format!(
                                    "Input should be a valid string, but it is {}",
                                    other.kind()
                                ),
                            ),
                        }
                    }
                }
                ("local_agents", other) => checks.refuse(
                    "orrery.local_agents",
                    format!("Input should be a list of agent names, but it is {}", other.kind()),
                ),
                ("templates", Yaml::Text(mode)) if mode == "strict" => {
                    settings.templates = TemplateMode::Strict;
                }
                ("templates", Yaml::Text(mode)) if mode == "lenient" => {
                    settings.templates = TemplateMode::Lenient;
                }
                ("templates", _) => {
                    checks.refuse("orrery.templates", "Input should be 'strict' or 'lenient'");
                }
                _ => checks.refuse(
                    format!("orrery.{key}"),
                    "unknown setting; expected local_agents or templates",
                ),
            }
        }
        settings
    }
}
