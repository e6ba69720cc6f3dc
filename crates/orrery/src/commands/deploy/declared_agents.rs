//! Declarations of a project about its agents, as stored with each version of a local deployment.

use std::sync::Arc;

use orrery_host::bundle::sha1_hex;
use orrery_model::HostInventory;
use orrery_project::ProjectInventory;
use orrery_store::{ContentHash, INVENTORY, LOCAL_AGENTS, Store, StoreError};
use serde_json::Value;

/// Agents that are this machine, and the inventory.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct DeclaredAgents {
    /// Patterns of agents that are this machine.
    pub(in crate::commands) patterns: Vec<String>,
    pub(in crate::commands) hosts: Arc<HostInventory>,
    /// Content with the inventory, and its hash.
    document: Option<(ContentHash, Vec<u8>)>,
}

impl DeclaredAgents {
    /// Declarations of a compiled project.
    pub(super) fn of_project(patterns: Vec<String>, inventory: Option<ProjectInventory>) -> Self {
        let Some(ProjectInventory { document, hosts }) = inventory else {
            return DeclaredAgents { patterns, ..DeclaredAgents::default() };
        };
        let content = document.to_string().into_bytes();
        let document = ContentHash::from_hex(&sha1_hex(&content)).map(|hash| (hash, content));
        DeclaredAgents { patterns, hosts, document }
    }

    /// Declarations of a stored version.
    pub(in crate::commands) fn of_version(store: &Store, info: &Value) -> Result<Self, StoreError> {
        let patterns = orrery_store::local_agents(info);
        let Some(hash) = orrery_store::inventory_hash(info) else {
            return Ok(DeclaredAgents { patterns, ..DeclaredAgents::default() });
        };
        let unreadable = || StoreError::Unreadable(format!("inventory {hash}"));
        let hash = ContentHash::from_hex(hash).ok_or_else(unreadable)?;
        let content = store.contents().get(&hash)?.ok_or_else(unreadable)?;
        let document: Value = serde_json::from_slice(&content).map_err(|_| unreadable())?;
        let hosts = HostInventory::resolve(&document).map_err(|_| unreadable())?;
        let document = Some((hash, content));
        Ok(DeclaredAgents { patterns, hosts: Arc::new(hosts), document })
    }

    /// Adds the declarations to the information on a version, and the inventory to the contents.
    pub(super) fn record(&self, store: &Store, info: &mut Value) -> Result<(), StoreError> {
        if !self.patterns.is_empty() {
            info[LOCAL_AGENTS] = self.patterns.as_slice().into();
        }
        if let Some((hash, content)) = &self.document {
            store.contents().put(&[(*hash, content)])?;
            info[INVENTORY] = hash.to_hex().into();
        }
        Ok(())
    }

    /// True if a stored version has the same declarations.
    pub(super) fn are_those_of(&self, info: &Value) -> bool {
        let own = self.document.as_ref().map(|(hash, _)| hash.to_hex());
        orrery_store::local_agents(info) == self.patterns
            && orrery_store::inventory_hash(info) == own.as_deref()
    }
}
