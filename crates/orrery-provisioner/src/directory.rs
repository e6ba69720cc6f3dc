//! Views of clusters that handlers read: nodes with their services and known facts.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use orrery_cluster::macros;

use crate::facts::NodeFacts;

/// A cluster as its stored intent and the stored facts describe it.
#[derive(Debug, Default)]
pub struct ClusterView {
    pub cluster: String,
    /// Account that owns the cluster, for macros.
    pub owner: String,
    /// Project that pays for slots.
    pub tenant: String,
    /// Values of users for fields of the provider.
    pub user_fields: serde_json::Map<String, serde_json::Value>,
    nodes: Vec<ViewNode>,
    /// Facts of machines whose nodes are not part of the intent any more.
    leaving: BTreeMap<String, NodeFacts>,
    positions: BTreeMap<String, usize>,
    /// Nodes as macros see them, made at the first use.
    macro_nodes: OnceLock<Vec<macros::Node>>,
}

/// A node of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewNode {
    pub name: String,
    pub number: u64,
    pub hostname: String,
    pub services: Vec<String>,
    /// Facts of its `cluster::Reachable`; empty if there are none yet.
    pub facts: NodeFacts,
}

/// Failure to read a view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    #[error("there is no cluster {0}")]
    NotFound(String),
    /// Temporary: the store does not answer.
    #[error("cannot read the cluster {cluster}: {reason}")]
    Unavailable { cluster: String, reason: String },
}

/// Source of views.
pub trait ClusterDirectory: Send + Sync {
    /// Returns the view of a cluster; `refresh` reads it anew.
    ///
    /// # Errors
    /// If there is no such cluster, or it cannot be read.
    fn view(&self, cluster: &str, refresh: bool) -> Result<Arc<ClusterView>, DirectoryError>;
}

impl ClusterView {
    pub fn new(cluster: &str, owner: &str, tenant: &str, mut nodes: Vec<ViewNode>) -> Self {
        nodes.sort_by_key(|node| node.number);
        let named = nodes.iter().enumerate().map(|(at, node)| (node.name.clone(), at));
        ClusterView {
            cluster: cluster.to_owned(),
            owner: owner.to_owned(),
            tenant: tenant.to_owned(),
            positions: named.collect(),
            nodes,
            ..ClusterView::default()
        }
    }

    /// Sets the values of users for fields of the provider.
    #[must_use]
    pub fn with_user_fields(self, fields: serde_json::Map<String, serde_json::Value>) -> Self {
        ClusterView { user_fields: fields, ..self }
    }

    /// Sets the facts of machines whose nodes are not part of the intent any more: their services
    /// stop before they are deleted.
    #[must_use]
    pub fn with_leaving(self, leaving: BTreeMap<String, NodeFacts>) -> Self {
        ClusterView { leaving, ..self }
    }

    /// Facts of the machine of a node, also of one that leaves.
    pub fn facts(&self, name: &str) -> Option<&NodeFacts> {
        self.node(name).map(|node| &node.facts).or_else(|| self.leaving.get(name))
    }

    pub fn node(&self, name: &str) -> Option<&ViewNode> {
        self.positions.get(name).map(|at| &self.nodes[*at])
    }

    /// All nodes, in the order of their numbers.
    pub fn nodes(&self) -> &[ViewNode] {
        &self.nodes
    }

    /// Expands the macros of a configuration for a node.
    ///
    /// # Errors
    /// A syntax error, an unknown fact, or an index without a node.
    pub fn expand(
        &self,
        config: &serde_json::Map<String, serde_json::Value>,
        node: &str,
    ) -> Result<serde_json::Map<String, serde_json::Value>, macros::MacroError> {
        if !config.values().any(has_macro) {
            return Ok(config.clone());
        }
        let nodes = self.macro_nodes.get_or_init(|| self.nodes.iter().map(macro_node).collect());
        let leaving = self.leaving.get(node).map(|facts| leaving_node(node, facts));
        let this = self.positions.get(node).map(|at| &nodes[*at]).or(leaving.as_ref());
        let context = macros::MacroContext { owner: &self.owner, nodes, this };
        let expand = |(name, value): (&String, &serde_json::Value)| {
            Ok((name.clone(), macros::expand_value(value, &context)?))
        };
        config.iter().map(expand).collect()
    }
}

/// Returns true if a text in the value may have a macro.
fn has_macro(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::String(text) => text.contains('%'),
        serde_json::Value::Array(items) => items.iter().any(has_macro),
        serde_json::Value::Object(entries) => entries.values().any(has_macro),
        _ => false,
    }
}

/// A node that leaves, as its own macros see it: it is a member of nothing.
fn leaving_node(name: &str, facts: &NodeFacts) -> macros::Node {
    macros::Node {
        id: name.to_owned(),
        addresses: facts.addresses.clone(),
        ..macros::Node::default()
    }
}

fn macro_node(node: &ViewNode) -> macros::Node {
    macros::Node {
        id: node.name.clone(),
        number: node.number,
        hostname: Some(node.hostname.clone()),
        addresses: node.facts.addresses.clone(),
        services: node.services.clone(),
    }
}
