//! Manifest of a plug-in: the fields that it reads, and the files that it uses.
//!
//! Forms, validation and documentation come from it. It serializes to the form that administrators
//! of the original system know: `parameters`, `admin`, `user`, `fields`, `required`.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Kind of a plug-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PluginKind {
    /// Creates machines.
    Provider,
    /// Acts on services.
    Automator,
}

/// Description of a plug-in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginManifest {
    pub name: String,
    pub kind: PluginKind,
    pub label: String,
    pub description: String,
    pub parameters: Parameters,
    /// Files that administrators upload for it, by type, such as `scripts`.
    #[serde(rename = "resourceTypes")]
    pub resource_types: BTreeMap<String, ResourceSpec>,
}

/// Fields of a plug-in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Set by an administrator: in a provider, or in the action of a service.
    pub admin: ParameterGroup,
    /// Set by the user of a cluster, with its operations.
    pub user: ParameterGroup,
}

/// Fields in the order of a form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ParameterGroup {
    pub fields: IndexMap<String, FieldSchema>,
    /// At least one of these sets must be complete; no sets require nothing.
    pub required: Vec<Vec<String>>,
}

/// One field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldSchema {
    pub label: String,
    #[serde(rename = "type")]
    pub format: FieldFormat,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tip: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// A field of administrators that users may set for their cluster.
    #[serde(default, rename = "override")]
    pub is_overridable: bool,
    /// Kept as a secret.
    #[serde(default, rename = "sensitive")]
    pub is_sensitive: bool,
}

/// Form of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldFormat {
    Text,
    Password,
    /// One of the options.
    Select,
    Checkbox,
    Number,
    /// A list or an object.
    Json,
}

/// Type of files of a plug-in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceSpec {
    pub format: ResourceFormat,
    /// Mode of a file in octal digits, such as `0755`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceFormat {
    File,
    /// A tar archive, unpacked on the machine.
    Archive,
}

impl FieldSchema {
    pub fn new(label: &str, format: FieldFormat, tip: &str) -> Self {
        FieldSchema {
            label: label.to_owned(),
            format,
            tip: tip.to_owned(),
            options: Vec::new(),
            default: None,
            is_overridable: false,
            is_sensitive: false,
        }
    }

    #[must_use]
    pub fn or(self, default: impl Into<Value>) -> Self {
        FieldSchema { default: Some(default.into()), ..self }
    }

    #[must_use]
    pub fn one_of(self, options: &[&str]) -> Self {
        FieldSchema { options: options.iter().map(|&option| option.to_owned()).collect(), ..self }
    }

    #[must_use]
    pub fn sensitive(self) -> Self {
        FieldSchema { is_sensitive: true, ..self }
    }

    #[must_use]
    pub fn overridable(self) -> Self {
        FieldSchema { is_overridable: true, ..self }
    }
}

impl PluginManifest {
    pub fn new(kind: PluginKind, name: &str, label: &str, description: &str) -> Self {
        PluginManifest {
            name: name.to_owned(),
            kind,
            label: label.to_owned(),
            description: description.to_owned(),
            parameters: Parameters::default(),
            resource_types: BTreeMap::new(),
        }
    }

    /// Adds a field of administrators.
    #[must_use]
    pub fn field(mut self, name: &str, schema: FieldSchema) -> Self {
        self.parameters.admin.fields.insert(name.to_owned(), schema);
        self
    }

    /// Adds a set of fields of administrators that suffices.
    #[must_use]
    pub fn requires(mut self, names: &[&str]) -> Self {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        self.parameters.admin.required.push(names);
        self
    }

    #[must_use]
    pub fn resource_type(
        mut self,
        name: &str,
        format: ResourceFormat,
        permissions: Option<&str>,
    ) -> Self {
        let permissions = permissions.map(str::to_owned);
        self.resource_types.insert(name.to_owned(), ResourceSpec { format, permissions });
        self
    }

    /// Names of the fields whose values are secrets.
    pub fn sensitive_fields(&self) -> Vec<&str> {
        let groups = [&self.parameters.admin, &self.parameters.user];
        let fields = groups.into_iter().flat_map(|group| &group.fields);
        fields.filter(|(_, field)| field.is_sensitive).map(|(name, _)| name.as_str()).collect()
    }
}
