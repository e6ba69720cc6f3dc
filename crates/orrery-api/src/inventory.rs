//! The inventory of an environment: machines that SSH reaches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::AgentPlacement;

/// An inventory, as in `inventory.yml` of a project. Keys of settings are `port`, `user`, `identity`,
/// `jump`, `sudo`, `sudo_secret`, `password_secret`, `strict_host_key`, `connect_timeout`, `python`,
/// `retries` and `retry_wait`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InventoryDocument {
    /// Settings of all hosts.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Object)]
    pub defaults: Value,
    /// Groups by name, each with settings, `hosts` (names, ranges such as `web[3..9]`, and patterns)
    /// and `groups` inside it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Object)]
    pub groups: Value,
    /// Hosts by name, each with settings and `address`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Object)]
    pub hosts: Value,
}

impl InventoryDocument {
    /// The document as JSON.
    pub fn to_value(&self) -> Value {
        let mut sections = Map::new();
        for (name, value) in
            [("defaults", &self.defaults), ("groups", &self.groups), ("hosts", &self.hosts)]
        {
            if !value.is_null() {
                sections.insert(name.to_owned(), value.clone());
            }
        }
        Value::Object(sections)
    }
}

/// The inventory of an environment: that of its newest version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentInventory {
    /// Version that it belongs to; `null` if the environment has no version.
    #[serde(default)]
    pub version: Option<u64>,
    /// True if that version is released.
    pub released: bool,
    /// Number of hosts.
    pub hosts: u64,
    pub document: InventoryDocument,
}

/// A host of an inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostSummary {
    /// Name, which is also that of its agent.
    pub name: String,
    /// Groups that contain it, directly or through other groups.
    pub groups: Vec<String>,
    /// Resolved address: `ssh://user@host:port` with options, `local:` or `none:`.
    pub address: String,
    /// Values by key.
    pub values: BTreeMap<String, HostSetting>,
    /// Placement of the agent with its name: other sources may be stronger than the inventory.
    pub placement: AgentPlacement,
}

/// A value of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostSetting {
    pub value: String,
    /// Part of the inventory that gives it: `host`, `group NAME`, `defaults` or `name`.
    pub source: String,
}
