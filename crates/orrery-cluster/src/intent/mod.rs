//! The intent of a cluster: what should exist, self-contained, without documents of a catalog.
//!
//! Operations are functions from one intent to the next; [`crate::render`] turns an intent into
//! resources of an environment.
//!
//! | module | purpose |
//! |---|---|
//! | `create` | the first intent, from documents and a request |
//! | `problem` | the intent as input of the solver |
//! | `layout` | operations that change nodes or their services |
//! | `services` | services that are added, removed, started, stopped and restarted |
//! | `naming` | names of nodes and hosts |

mod create;
mod error;
mod layout;
mod naming;
mod problem;
mod services;

pub use create::{ClusterRequest, create};
pub use error::IntentError;
pub use layout::HardwareChange;
pub use problem::read_config;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::document::{ClusterTemplate, HardwareType, ImageType, Provider, Service};

/// Desired state of one cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterIntent {
    /// Short id, unique in the installation: lower-case letters and digits. Part of the names of
    /// machines.
    pub cluster: String,
    pub name: String,
    /// Name of the account that owns the cluster, for macros.
    pub owner: String,
    /// Resolved copy of the template.
    pub template: ClusterTemplate,
    /// Revision of the stored template that the copy was taken from.
    pub template_revision: i64,
    pub provider: Provider,
    /// Copies of the services on the cluster, by name.
    pub services: BTreeMap<String, Service>,
    /// Copies of the hardware types that nodes may have.
    #[serde(default)]
    pub hardware_types: BTreeMap<String, HardwareType>,
    /// Copies of the image types that nodes may have.
    #[serde(default)]
    pub image_types: BTreeMap<String, ImageType>,
    /// The only hardware type of the cluster, if the request named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_hardware: Option<String>,
    /// The only image type of the cluster, if the request named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_image: Option<String>,
    /// Configuration with macros, by service or topic.
    pub config: Map<String, Value>,
    pub dns_suffix: String,
    /// Nodes by name, such as `web-1000`.
    pub nodes: BTreeMap<String, IntentNode>,
    /// Number of the next node; numbers are never reused.
    pub next_number: u64,
    /// Number of operations so far.
    #[serde(default)]
    pub serial: u64,
    /// Digests of the plug-in resources in use, by `TYPE/NAME`, such as `scripts/app.sh`.
    #[serde(default)]
    pub plugin_resources: BTreeMap<String, String>,
}

/// Desired state of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentNode {
    pub number: u64,
    /// Number of machines that have had this name, from 1.
    pub incarnation: u32,
    pub hostname: String,
    pub hardwaretype: String,
    pub imagetype: String,
    /// Names at the provider.
    pub flavor: String,
    pub image: String,
    /// Account for the first login.
    pub ssh_user: String,
    pub services: BTreeMap<String, IntentService>,
}

impl IntentNode {
    /// True if the node has the same machine in both intents.
    pub fn is_same_machine(&self, other: &IntentNode) -> bool {
        (self.number, self.incarnation) == (other.number, other.incarnation)
    }
}

/// Desired state of a service on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentService {
    pub running: bool,
    /// A changed number requests a restart.
    pub generation: u64,
    /// A changed number requests another initialization.
    pub epoch: u32,
    /// True if the configuration changed after the last restart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart_pending: bool,
}

impl Default for IntentService {
    fn default() -> Self {
        IntentService { running: true, generation: 0, epoch: 0, restart_pending: false }
    }
}

impl ClusterIntent {
    /// Nodes in the order of their numbers.
    pub fn nodes_by_number(&self) -> Vec<(&String, &IntentNode)> {
        let mut nodes: Vec<(&String, &IntentNode)> = self.nodes.iter().collect();
        nodes.sort_by_key(|(_, node)| node.number);
        nodes
    }

    /// Services with at least one node.
    pub fn placed_services(&self) -> BTreeSet<&str> {
        self.nodes.values().flat_map(|node| node.services.keys()).map(String::as_str).collect()
    }

    /// A copy with the next serial number, for an operation to change.
    fn successor(&self) -> Self {
        ClusterIntent { serial: self.serial + 1, ..self.clone() }
    }

    /// Replaces the digests of the plug-in resources.
    #[must_use]
    pub fn with_plugin_resources(&self, digests: BTreeMap<String, String>) -> Self {
        ClusterIntent { plugin_resources: digests, ..self.successor() }
    }

    /// Adds what an earlier intent has and this one does not: everything that may exist while the
    /// transition from the earlier one is incomplete.
    #[must_use]
    pub fn including(&self, earlier: &ClusterIntent) -> Self {
        let mut all = self.clone();
        for (name, service) in &earlier.services {
            all.services.entry(name.clone()).or_insert_with(|| service.clone());
        }
        for (name, node) in &earlier.nodes {
            let known = all.nodes.entry(name.clone()).or_insert_with(|| node.clone());
            for (service, state) in &node.services {
                known.services.entry(service.clone()).or_insert_with(|| state.clone());
            }
        }
        all.next_number = all.next_number.max(earlier.next_number);
        all
    }

    /// Services whose configuration changed after their last restart, with their nodes.
    pub fn pending_restarts(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut pending: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, node) in self.nodes_by_number() {
            for (service, _) in node.services.iter().filter(|(_, one)| one.restart_pending) {
                pending.entry(service).or_default().push(name);
            }
        }
        pending
    }
}
