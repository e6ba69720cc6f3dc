//! Cluster templates and the partial templates that they include.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::about::{About, LeaseTime, Link, is_default};

/// A configuration: by service or by topic, then whatever the automators understand.
pub type Config = serde_json::Map<String, Value>;

/// A blueprint from which clusters of many sizes are made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterTemplate {
    #[serde(flatten)]
    pub about: About,
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
    /// A template that this one completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<Reference>,
    /// Partial templates, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub includes: Vec<Reference>,
}

impl ClusterTemplate {
    pub fn name(&self) -> &str {
        &self.about.name
    }
}

/// A part of templates: defaults and compatibility that several of them share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartialTemplate {
    #[serde(flatten)]
    pub about: About,
    #[serde(default, skip_serializing_if = "is_default")]
    pub defaults: Defaults,
    #[serde(default, skip_serializing_if = "is_default")]
    pub compatibility: Compatibility,
    /// Accepted for compatibility, and without effect.
    #[serde(default, skip_serializing_if = "is_default")]
    pub constraints: Constraints,
    /// Accepted for compatibility, and without effect.
    #[serde(default, skip_serializing_if = "is_default")]
    pub administration: Administration,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// If true, later templates must not set the configuration keys that this one sets.
    #[serde(default)]
    pub immutable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    pub name: String,
}

/// Values for everything that a request leaves open.
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

    /// The configuration, with that of each service below the service's name.
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

/// What a cluster may consist of. An empty list allows everything.
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
    /// Each list is on a node as a whole, or not at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mustcoexist: Vec<Vec<String>>,
    /// No list is on a node as a whole.
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
    #[serde(default = "one")]
    pub max: u32,
}

fn one() -> u32 {
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
    /// If true, the service may end up on no node at all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional: bool,
}

/// On how many nodes a service runs.
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

/// Which of several valid layouts is better.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preferences {
    /// The best first; what is not listed comes last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hardwaretypes: Vec<String>,
    /// The best first; what is not listed comes last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imagetypes: Vec<String>,
    /// If true, the cheaper hardware wins before the alphabet decides.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Administration {
    #[serde(default, skip_serializing_if = "is_default")]
    pub leaseduration: LeaseDuration,
}

/// How long clusters live.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseDuration {
    /// Zero for ever.
    #[serde(default)]
    pub initial: LeaseTime,
    /// Zero for no limit.
    #[serde(default)]
    pub max: LeaseTime,
    /// Longest prolongation at once; zero for any.
    #[serde(default)]
    pub step: LeaseTime,
}
