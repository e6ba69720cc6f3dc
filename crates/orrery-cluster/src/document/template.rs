//! Cluster templates and the partial templates that they include.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::common::{DocumentInfo, LeaseTime, Link, is_default};

/// A configuration by service or topic; the automators define its content.
pub type Config = serde_json::Map<String, Value>;

/// A blueprint for clusters of many sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterTemplate {
    #[serde(flatten)]
    pub info: DocumentInfo,
    #[serde(default, skip_serializing_if = "is_default")]
    pub defaults: Defaults,
    #[serde(default, skip_serializing_if = "is_default")]
    pub compatibility: Compatibility,
    #[serde(default, skip_serializing_if = "is_default")]
    pub constraints: Constraints,
    #[serde(default, skip_serializing_if = "is_default")]
    pub administration: Administration,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub preferences: Preferences,
    /// The template that this one extends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<Reference>,
    /// Partial templates, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub includes: Vec<Reference>,
}

impl ClusterTemplate {
    pub fn name(&self) -> &str {
        &self.info.name
    }
}

/// A reusable part of templates: shared defaults and compatibility.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartialTemplate {
    #[serde(flatten)]
    pub info: DocumentInfo,
    #[serde(default, skip_serializing_if = "is_default")]
    pub defaults: Defaults,
    #[serde(default, skip_serializing_if = "is_default")]
    pub compatibility: Compatibility,
    /// Accepted for compatibility; no effect.
    #[serde(default, skip_serializing_if = "is_default")]
    pub constraints: Constraints,
    /// Accepted for compatibility; no effect.
    #[serde(default, skip_serializing_if = "is_default")]
    pub administration: Administration,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Forbids later templates to set the configuration keys that this one sets.
    #[serde(default)]
    pub immutable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    pub name: String,
}

/// Defaults for values that a request omits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Defaults {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<DefaultService>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The only hardware type of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardwaretype: Option<String>,
    /// The only image type of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imagetype: Option<String>,
    #[serde(default, rename = "dnsSuffix", skip_serializing_if = "Option::is_none")]
    pub dns_suffix: Option<String>,
    #[serde(default, skip_serializing_if = "Config::is_empty")]
    pub config: Config,
}

impl Defaults {
    pub fn service_names(&self) -> impl Iterator<Item = &str> {
        self.services.iter().map(DefaultService::name)
    }

    /// The complete configuration, with that of each service below the service's name.
    pub fn full_config(&self) -> Config {
        let mut config = self.config.clone();
        for service in &self.services {
            if let DefaultService::Configured { name, config: own } = service
                && !own.is_empty()
            {
                let entry = config.entry(name.clone()).or_insert_with(|| Config::new().into());
                match entry {
                    Value::Object(entry) => entry.extend(own.clone()),
                    other => *other = Value::Object(own.clone()),
                }
            }
        }
        config
    }
}

/// A service of a template, with its part of the configuration if it has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DefaultService {
    Name(String),
    Configured {
        name: String,
        #[serde(default)]
        config: Config,
    },
}

impl DefaultService {
    pub fn name(&self) -> &str {
        match self {
            DefaultService::Name(name) | DefaultService::Configured { name, .. } => name,
        }
    }
}

/// Allowed parts of a cluster. An empty list allows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compatibility {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hardwaretypes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imagetypes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Constraints {
    /// Number of nodes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub size: Range,
    #[serde(default, skip_serializing_if = "is_default")]
    pub layout: LayoutRules,
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub services: IndexMap<String, ServiceConstraint>,
}

/// Bounds, both inclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

/// Rules about services on the same node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutRules {
    /// Each list runs on a node as a whole, or not at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mustcoexist: Vec<Vec<String>>,
    /// No list runs on a node as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cantcoexist: Vec<Vec<String>>,
    /// Limits per value of a label of the nodes' hardware types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<Spread>,
}

/// Anti-affinity: at most `max` instances of each service on nodes with the same value of a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    pub services: Vec<String>,
    /// `zone`, `rack`, …
    pub label: String,
    #[serde(default = "default_spread_max")]
    pub max: u32,
}

fn default_spread_max() -> u32 {
    1
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceConstraint {
    /// Hardware on which the service may run; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hardwaretypes: Vec<String>,
    /// Images on which the service may run; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imagetypes: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub quantities: Quantities,
    /// Allows the service to run on no node at all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional: bool,
}

/// Number of nodes that run a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantities {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// The number of nodes is a multiple of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// `{app: 4}`: at least one instance for every 4 nodes with `app`, rounded up.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub ratio: IndexMap<String, u32>,
}

/// Preference among valid layouts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preferences {
    /// Best first; unlisted types come last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hardwaretypes: Vec<String>,
    /// Best first; unlisted types come last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imagetypes: Vec<String>,
    /// Cheaper hardware takes precedence over alphabetical order.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Administration {
    #[serde(default, skip_serializing_if = "is_default")]
    pub leaseduration: LeaseDuration,
}

/// Lifetime of clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseDuration {
    /// Zero: unlimited.
    #[serde(default)]
    pub initial: LeaseTime,
    /// Zero: no limit.
    #[serde(default)]
    pub max: LeaseTime,
    /// Longest single extension; zero: no limit.
    #[serde(default)]
    pub step: LeaseTime,
}
