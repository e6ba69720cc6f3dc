//! The intent of a cluster: what should exist, self-contained, without documents of a catalog.
//!
//! Operations are functions from one intent to the next; [`crate::render`] turns an intent into
//! resources of an environment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::document::{ClusterTemplate, Provider, Service};

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
    /// Configuration with macros, by service or topic.
    pub config: Map<String, Value>,
    pub dns_suffix: String,
    /// Nodes by name, such as `web-1000`.
    pub nodes: BTreeMap<String, IntentNode>,
    /// Number of the next node; numbers are never reused.
    pub next_number: u64,
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

/// Desired state of a service on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentService {
    pub running: bool,
    /// A changed number requests a restart.
    pub generation: u64,
    /// A changed number requests another initialization.
    pub epoch: u32,
}
