//! Tenants: separate owners of documents and clusters, with quotas.

use serde::{Deserialize, Serialize};

/// An owner of documents and clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Maximum number of concurrent tasks.
    #[serde(default)]
    pub workers: u32,
    /// No limit if absent.
    #[serde(default, rename = "maxClusters", skip_serializing_if = "Option::is_none")]
    pub max_clusters: Option<u32>,
    /// No limit if absent.
    #[serde(default, rename = "maxNodes", skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
}
