//! Builds the placement inventory of an environment's agents from the store, its settings and this
//! machine.

use std::collections::BTreeMap;

use orrery_api::PlacementKind;
use orrery_executor::declared_address;
use orrery_handlers::target::host_name;
use orrery_model::{Enrolment, Inventory, Placement};
use orrery_store::{EnvironmentKey, ServedName, Store, StoreError, local_agents};

use crate::settings::EnvironmentSettings;

/// Agent addresses and local-agent patterns that a version declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeclaredAgents {
    pub(crate) addresses: BTreeMap<String, String>,
    pub(crate) patterns: Vec<String>,
}

/// Returns the enrolment state of each agent name that a remote agent serves.
pub(crate) fn enrolled<'s>(
    served: impl IntoIterator<Item = &'s ServedName>,
) -> BTreeMap<String, Enrolment> {
    let enrolment = |one: &ServedName| {
        if one.revoked { Enrolment::Revoked } else { Enrolment::Active }
    };
    served.into_iter().map(|one| (one.name.clone(), enrolment(one))).collect()
}

/// Builds the inventory of an environment. `host` is the machine on which handlers run.
pub(crate) fn inventory(
    host: &str,
    settings: &EnvironmentSettings,
    declared: DeclaredAgents,
    enrolled: BTreeMap<String, Enrolment>,
) -> Inventory {
    let DeclaredAgents { addresses, patterns } = declared;
    Inventory {
        addresses,
        project_patterns: patterns,
        environment_patterns: settings.local_agents.clone(),
        enrolled,
        ..Inventory::default()
    }
    .on_host(host)
}

/// Reads the inventory from the store. Addresses are read only for the agents in `addresses_of`.
pub(crate) fn read_inventory(
    store: &Store,
    environment: EnvironmentKey,
    declared: Option<DeclaredAgents>,
    addresses_of: &[&str],
) -> Result<Inventory, StoreError> {
    let settings = EnvironmentSettings::from_map(&store.settings().values(environment)?);
    let served = store.remote_agents().served_names(environment)?;
    // Handlers run on the machine of the engine, which may not be this one.
    let host = store.leases().holder(environment)?.map_or_else(host_name, |holder| holder.host);
    let declared = match declared {
        Some(declared) => declared,
        None => read_declared(store, environment, addresses_of)?,
    };
    Ok(inventory(&host, &settings, declared, enrolled(&served)))
}

/// Reads the declarations of the released version.
fn read_declared(
    store: &Store,
    environment: EnvironmentKey,
    agents: &[&str],
) -> Result<DeclaredAgents, StoreError> {
    let versions = store.versions().list(environment)?;
    let released = versions.iter().rev().find(|version| version.released);
    let patterns = released.map(|version| local_agents(&version.info)).unwrap_or_default();
    let mut addresses = BTreeMap::new();
    for agent in agents {
        let id = format!("std::AgentConfig[internal,agentname={agent}]");
        if let Some(resource) = store.resources().read(environment, &id)? {
            addresses.extend(declared_address(&resource));
        }
    }
    Ok(DeclaredAgents { addresses, patterns })
}

/// Converts a placement to its API view.
pub(crate) fn to_view(agent: &str, placement: &Placement) -> orrery_api::AgentPlacement {
    orrery_api::AgentPlacement {
        kind: match placement {
            Placement::Local(_) => PlacementKind::Local,
            Placement::Remote => PlacementKind::Remote,
            Placement::Revoked => PlacementKind::Revoked,
            Placement::Ssh { .. } => PlacementKind::Ssh,
            Placement::Nowhere(_) | Placement::Invalid { .. } | Placement::Unknown { .. } => {
                PlacementKind::Unknown
            }
        },
        has_machine: placement.has_machine(),
        reason: placement.reason(agent),
        help: placement.help(agent, orrery_model::Deployer::Server),
    }
}
