//! Declarations of a project about its agents, as stored with each version of a local deployment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use orrery_executor::declared_address;
use orrery_host::bundle::sha1_hex;
use orrery_model::{HostInventory, Inventory, Placement, Resource};
use orrery_project::{INVENTORY_FILE, ProjectInventory};
use orrery_store::{ContentHash, INVENTORY, LOCAL_AGENTS, Store, StoreError};
use serde_json::Value;

use crate::commands::hosts::read_inventory_in;
use crate::{Exit, output, style};

use super::unplaced::inventory_here;

/// Number of moved agents in a note.
const MOVED_SHOWN: usize = 3;

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
    pub(in crate::commands) fn of_project(
        patterns: Vec<String>,
        inventory: Option<ProjectInventory>,
    ) -> Self {
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

    /// These declarations with the inventory of the project as it is now, if it has one: placement
    /// is no part of the desired state. Names the agents that moved since. Problems of the file are
    /// printed.
    pub(super) fn with_current_inventory(
        self,
        project: &Path,
        resources: &[&Resource],
    ) -> Result<Self, Exit> {
        let Some(inventory) = read_inventory_in(project)? else { return Ok(self) };
        let current = DeclaredAgents::of_project(self.patterns.clone(), Some(inventory));
        if current.document == self.document {
            return Ok(self);
        }
        let addresses: BTreeMap<String, String> =
            resources.iter().filter_map(|resource| declared_address(resource)).collect();
        let agents: BTreeSet<&str> = resources.iter().map(|one| one.id.agent()).collect();
        let (then, now) =
            (inventory_here(addresses.clone(), &self), inventory_here(addresses, &current));
        let moved: Vec<String> = agents
            .into_iter()
            .filter_map(|agent| {
                let places = (location_of(&then, agent), location_of(&now, agent));
                (places.0 != places.1)
                    .then(|| format!("{agent} is at {} now, before: {}", places.1, places.0))
            })
            .collect();
        if !moved.is_empty() {
            let more = match moved.len().saturating_sub(MOVED_SHOWN) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            let shown = moved.iter().take(MOVED_SHOWN).map(String::as_str).collect::<Vec<_>>();
            output::print_status(&format!(
                "{}: {INVENTORY_FILE} has changed since the last deploy: {}{more}",
                style::help("note"),
                style::sanitize(&shown.join("; ")),
            ));
        }
        Ok(current)
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

/// Location of an agent, for people.
fn location_of(inventory: &Inventory, agent: &str) -> String {
    match inventory.placement_of(agent) {
        Placement::Ssh { address, .. } => address.location(),
        Placement::Local(_) => "this machine".to_owned(),
        other => other.address().unwrap_or_else(|| "no machine".to_owned()),
    }
}
