//! Plug-ins of clusters, their resources, and the workers that execute tasks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::Time;

/// Plug-ins of the server, with their schemas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterPlugins {
    #[schema(value_type = Vec<Object>)]
    pub providers: Vec<Value>,
    #[schema(value_type = Vec<Object>)]
    pub automators: Vec<Value>,
}

/// One version of a plug-in resource, such as a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginResource {
    /// Type of the plug-in, such as `shell`.
    pub plugin: String,
    /// Type of the resource, such as `scripts`.
    pub r#type: String,
    pub name: String,
    /// Counts up from 1 for each name.
    pub version: i64,
    /// SHA-256 of the content.
    pub digest: String,
    /// Size in bytes.
    pub size: u64,
    /// True for the version that new operations use.
    pub live: bool,
    /// True for the version that becomes live with the next sync.
    pub staged: bool,
    pub created: Time,
    pub created_by: String,
}

/// Workers of the installation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerList {
    pub items: Vec<WorkerInfo>,
}

/// A process that executes tasks of clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerInfo {
    pub name: String,
    pub host: String,
    /// True for the slots of a server.
    pub in_process: bool,
    /// Number of tasks at a time.
    pub slots: u32,
    /// Slots in use, by project.
    pub busy: BTreeMap<String, u32>,
    pub seen: Time,
}
