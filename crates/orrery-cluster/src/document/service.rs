//! Services: their dependencies on each other, and the actions that automators run for them.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::common::{DocumentInfo, Link, is_default, texts};

/// Software that runs on the nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    #[serde(flatten)]
    pub info: DocumentInfo,
    #[serde(default, skip_serializing_if = "is_default")]
    pub dependencies: Dependencies,
    #[serde(default, skip_serializing_if = "is_default")]
    pub provisioner: Provisioner,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Resources that one instance uses on its node.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resources: Demand,
}

impl Service {
    pub fn name(&self) -> &str {
        &self.info.name
    }

    pub fn action(&self, action: ServiceAction) -> Option<&AutomatorAction> {
        self.provisioner.actions.get(&action)
    }

    /// Names that have to be on the cluster in any phase, without repetition.
    pub fn required(&self) -> Vec<&str> {
        let phases = [&self.dependencies.install, &self.dependencies.runtime];
        let mut names: Vec<&str> = Vec::new();
        for name in phases.into_iter().flat_map(|phase| &phase.requires) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }
}

/// Relations to other services, by service name or provided name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependencies {
    /// Further names that other services may depend on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provides: Vec<String>,
    /// Services that must not be on the same cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub install: Phase,
    #[serde(default, skip_serializing_if = "is_default")]
    pub runtime: Phase,
}

/// Dependencies of one phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Must be on the cluster, and is processed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// Processed first if it is on the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<String>,
}

impl Phase {
    /// Both kinds of dependencies: they imply the same order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.requires.iter().chain(&self.uses).map(String::as_str)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provisioner {
    #[serde(default)]
    pub actions: IndexMap<ServiceAction, AutomatorAction>,
}

/// A lifecycle action of a service on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceAction {
    Install,
    Configure,
    Initialize,
    Start,
    Stop,
    Remove,
    /// Checks that a running service works; fails if it does not.
    Probe,
}

/// Instruction for an automator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutomatorAction {
    /// Name of the automator: `shell`, `puppet`, …
    #[serde(rename = "type")]
    pub automator: String,
    #[serde(default, deserialize_with = "texts", skip_serializing_if = "IndexMap::is_empty")]
    pub fields: IndexMap<String, String>,
}

/// Resources that one instance of a service uses on its node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu: Option<f64>,
    /// In the unit of the hardware types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ram: Option<f64>,
    /// Ports that no other service of the node may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
}
