//! Desired state of a cluster: its machines, their services, and which of them run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The desired state of a cluster. An empty state means no cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterState {
    /// By name of the node.
    pub nodes: BTreeMap<String, NodeState>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// Number of machines that have had this name.
    pub incarnation: u32,
    pub hardware: String,
    pub image: String,
    pub services: BTreeMap<String, ServiceState>,
    /// Keys of completed initializations on this machine, which are never repeated.
    pub latches: BTreeSet<String>,
}

impl NodeState {
    pub fn is_same_machine(&self, other: &NodeState) -> bool {
        (self.incarnation, &self.hardware, &self.image)
            == (other.incarnation, &other.hardware, &other.image)
    }
}

/// A service on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceState {
    /// Digest of the installation.
    pub install: String,
    /// Digest of the configuration.
    pub config: String,
    pub running: bool,
    /// A changed number requests a restart.
    pub generation: u64,
    /// A changed number requests another initialization.
    pub epoch: u32,
}

impl Default for ServiceState {
    fn default() -> Self {
        ServiceState {
            install: String::new(),
            config: String::new(),
            running: true,
            generation: 0,
            epoch: 0,
        }
    }
}

/// Identity of an initialization: once per machine, service and epoch.
pub(super) fn latch_key(node: &str, incarnation: u32, service: &str, epoch: u32) -> String {
    format!("{node}#{incarnation}/{service}@{epoch}")
}

impl ClusterState {
    /// Adds a node with running services.
    pub fn add_node<'s>(&mut self, name: &str, services: impl IntoIterator<Item = &'s str>) {
        let services = services.into_iter().map(|name| (name.to_owned(), ServiceState::default()));
        let node = NodeState { services: services.collect(), ..NodeState::default() };
        self.nodes.insert(name.to_owned(), node);
    }

    /// The same state after all initializations.
    #[must_use]
    pub fn established(mut self) -> Self {
        for (name, node) in &mut self.nodes {
            for (service, state) in &node.services {
                node.latches.insert(latch_key(name, node.incarnation, service, state.epoch));
            }
        }
        self
    }

    /// Names of all services.
    pub fn services(&self) -> BTreeSet<&str> {
        self.nodes.values().flat_map(|node| node.services.keys()).map(String::as_str).collect()
    }
}
