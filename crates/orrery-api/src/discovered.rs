//! Discovered resources.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::Time;

/// A resource that was found on a target, managed or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiscoveredResource {
    /// Id that it has, or would have, as a managed resource.
    pub id: String,
    pub attributes: Map<String, Value>,
    pub discovered_at: Time,
    /// Resource with the handler that found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery_resource: Option<String>,
    /// Path of the managed resource, if a version contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<String>,
}

/// Discovered resources to store.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiscoveredUpload {
    #[schema(max_items = 10000)]
    pub resources: Vec<NewDiscovered>,
}

/// A discovered resource to store.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDiscovered {
    /// Id that it has, or would have, as a managed resource.
    pub id: String,
    pub attributes: Map<String, Value>,
    /// Resource with the handler that found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery_resource: Option<String>,
}
