//! Resources that need a machine which their agents do not have, reported before anything runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orrery_api::{PlacementAnswer, PlacementRequest, VersionUpload};
use orrery_executor::{declared_address, declared_addresses};
use orrery_handlers::Registry;
use orrery_handlers::target::host_name;
use orrery_model::{Deployer, Inventory, Resource, ResourceId};
use serde_json::{Value, json};

use super::declared_agents::DeclaredAgents;
use crate::cli::deploy::Selection;
use crate::error::CliError;
use crate::remote::RemoteEnvironment;
use crate::{output, style};

/// Maximum number of listed agents.
const AGENTS_TOLD_MAX: usize = 10;

/// An agent without a machine, and its resources.
#[derive(Clone, Debug)]
pub(in crate::commands) struct UnplacedAgent {
    name: String,
    reason: String,
    help: Option<String>,
    pub(in crate::commands) resources: Vec<ResourceId>,
}

impl UnplacedAgent {
    pub(in crate::commands) fn list_as_json(agents: &[UnplacedAgent]) -> Value {
        let shown = |agent: &UnplacedAgent| {
            json!({
                "agent": agent.name,
                "reason": agent.reason,
                "help": agent.help,
                "resources": agent.resources,
            })
        };
        agents.iter().map(shown).collect()
    }
}

/// Resources that cannot be applied, by agent.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Unplaced {
    /// Placement information of this machine; empty where a server decides.
    pub(super) inventory: Inventory,
    agents: Vec<UnplacedAgent>,
}

/// Placement information for a version that is applied on this machine.
pub(in crate::commands) fn inventory_here(
    addresses: BTreeMap<String, String>,
    declared_agents: &DeclaredAgents,
) -> Inventory {
    let inventory = Inventory {
        addresses,
        project_patterns: declared_agents.patterns.clone(),
        hosts: Arc::clone(&declared_agents.hosts),
        ..Inventory::default()
    };
    inventory.on_host(&host_name())
}

impl Unplaced {
    /// Checks resources that are applied locally.
    pub(super) fn here(
        resources: &[Resource],
        declared_agents: &DeclaredAgents,
        registry: &Registry,
    ) -> Self {
        let inventory = inventory_here(declared_addresses(resources), declared_agents);
        let bound = bound_to_machines(resources.iter().map(|one| &one.id), registry);
        let agents = bound.into_iter().filter_map(|(name, resources)| {
            let placement = inventory.placement_of(&name);
            (!placement.has_machine()).then(|| UnplacedAgent {
                reason: placement.reason(&name),
                help: placement.help(&name, Deployer::Command),
                resources,
                name,
            })
        });
        let agents = agents.collect();
        Unplaced { inventory, agents }
    }

    /// Asks a server about a version before uploading it. The targets of handlers of `coded`
    /// entities are known only when they run.
    pub(super) fn on_server(
        of: &RemoteEnvironment,
        upload: &VersionUpload,
        coded: &[String],
    ) -> Result<Self, CliError> {
        let mut addresses = BTreeMap::new();
        let mut ids = Vec::with_capacity(upload.resources.len());
        for one in &upload.resources {
            // Invalid ids are rejected by the upload.
            let Ok(id) = one.id.parse::<ResourceId>() else { continue };
            if id.entity() == "std::AgentConfig" {
                let resource = Resource::new(id.clone(), one.attributes.clone(), Vec::new());
                addresses.extend(declared_address(&resource));
            }
            if !coded.iter().any(|entity| entity == id.entity()) {
                ids.push(id);
            }
        }
        let mut bound = bound_to_machines(ids.iter(), &Registry::native());
        if bound.is_empty() {
            return Ok(Unplaced::default());
        }
        let question = PlacementRequest {
            agents: bound.keys().cloned().collect(),
            local_agents: upload.local_agents.clone(),
            addresses,
            inventory: upload.inventory.clone(),
        };
        let answer: PlacementAnswer = of.client.post(&of.path(&["placements"]), &question)?;
        let without = answer.placements.into_iter().filter(|(_, placed)| !placed.has_machine);
        let agents = without.map(|(name, placed)| UnplacedAgent {
            reason: placed.reason,
            help: placed.help,
            resources: bound.remove(&name).unwrap_or_default(),
            name,
        });
        Ok(Unplaced { inventory: Inventory::default(), agents: agents.collect() })
    }

    /// Keeps only selected resources.
    pub(super) fn of_selected(mut self, selection: &Selection) -> Self {
        for agent in &mut self.agents {
            agent.resources.retain(|id| selection.covers_id(id));
        }
        self.agents.retain(|agent| !agent.resources.is_empty());
        self
    }

    /// Reports resources that will not be applied, with reason and help.
    pub(super) fn report(&self) {
        for UnplacedAgent { name, reason, help, resources } in
            self.agents.iter().take(AGENTS_TOLD_MAX)
        {
            let name = style::sanitize(name);
            let count = style::count(resources.len(), "resource");
            let word = style::error("unavailable");
            output::print_status(&format!(
                "{word}: agent {name} with {count}: {}",
                style::sanitize(reason)
            ));
            if let Some(help) = help {
                output::print_status(&format!(
                    "  {}: {}",
                    style::help("help"),
                    style::sanitize(help)
                ));
            }
        }
        if self.agents.len() > AGENTS_TOLD_MAX {
            let more = self.agents.len() - AGENTS_TOLD_MAX;
            let agents = style::count(more, "more agent");
            output::print_status(&format!("… and {agents} without a machine; --json lists all"));
        }
    }

    pub(super) fn ids(&self) -> BTreeSet<ResourceId> {
        self.agents.iter().flat_map(|agent| agent.resources.iter().cloned()).collect()
    }

    pub(super) fn groups(&self) -> Vec<UnplacedAgent> {
        self.agents.clone()
    }

    pub(super) fn as_json(&self) -> Value {
        UnplacedAgent::list_as_json(&self.agents)
    }
}

/// Resources that need a machine, by agent.
fn bound_to_machines<'r>(
    ids: impl Iterator<Item = &'r ResourceId>,
    registry: &Registry,
) -> BTreeMap<String, Vec<ResourceId>> {
    let mut bound: BTreeMap<String, Vec<ResourceId>> = BTreeMap::new();
    for id in ids.filter(|id| registry.acts_on_machine(id.entity())) {
        bound.entry(id.agent().to_owned()).or_default().push(id.clone());
    }
    bound
}
