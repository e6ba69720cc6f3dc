//! Builds the placement inventory of an environment's agents from the store, its settings and this
//! machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_api::PlacementKind;
use orrery_executor::declared_address;
use orrery_handlers::target::host_name;
use orrery_model::{Enrolment, HostInventory, Inventory, Placement};
use orrery_store::{EnvironmentKey, ServedName, Store, StoreError, VersionInfo, local_agents};

use crate::host_inventory::read_hosts;
use crate::settings::EnvironmentSettings;

/// Agent addresses, inventory and local-agent patterns that a version declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeclaredAgents {
    pub(crate) addresses: BTreeMap<String, String>,
    pub(crate) patterns: Vec<String>,
    pub(crate) hosts: Arc<HostInventory>,
}

impl DeclaredAgents {
    /// Declarations of a version with these addresses.
    pub(crate) fn of_version(
        store: &Store,
        addresses: BTreeMap<String, String>,
        info: &serde_json::Value,
    ) -> Result<Self, StoreError> {
        let hosts = Arc::new(read_hosts(store, info)?);
        Ok(DeclaredAgents { addresses, patterns: local_agents(info), hosts })
    }
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
    let DeclaredAgents { addresses, patterns, hosts } = declared;
    Inventory {
        environment_addresses: settings.agent_placements.clone(),
        addresses,
        hosts,
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
    let is_provisioned = store.clusters().of_environment(environment)?.is_some();
    let found = inventory(&host, &settings, declared, enrolled(&served));
    Ok(Inventory { is_provisioned, ..found })
}

/// Reads the declarations of the released version.
fn read_declared(
    store: &Store,
    environment: EnvironmentKey,
    agents: &[&str],
) -> Result<DeclaredAgents, StoreError> {
    let versions = store.versions().list(environment)?;
    let addresses = read_addresses(store, environment, agents)?;
    match versions.iter().rev().find(|version| version.released) {
        Some(released) => DeclaredAgents::of_version(store, addresses, &released.info),
        None => Ok(DeclaredAgents { addresses, ..DeclaredAgents::default() }),
    }
}

/// Reads the inventory under the declarations of the newest version, which need not be released.
pub(crate) fn read_newest(
    store: &Store,
    environment: EnvironmentKey,
    newest: &VersionInfo,
    agents: &[&str],
) -> Result<Inventory, StoreError> {
    let addresses = read_addresses(store, environment, agents)?;
    let declared = DeclaredAgents::of_version(store, addresses, &newest.info)?;
    read_inventory(store, environment, Some(declared), &[])
}

/// Reads the addresses that the model declares for some agents.
fn read_addresses(
    store: &Store,
    environment: EnvironmentKey,
    agents: &[&str],
) -> Result<BTreeMap<String, String>, StoreError> {
    let mut addresses = BTreeMap::new();
    for agent in agents {
        let id = format!("std::AgentConfig[internal,agentname={agent}]");
        if let Some(resource) = store.resources().read(environment, &id)? {
            addresses.extend(declared_address(&resource));
        }
    }
    Ok(addresses)
}

/// Converts a placement to its API view.
pub(crate) fn to_view(agent: &str, placement: &Placement) -> orrery_api::AgentPlacement {
    orrery_api::AgentPlacement {
        kind: match placement {
            Placement::Local(_) => PlacementKind::Local,
            Placement::Remote => PlacementKind::Remote,
            Placement::Revoked => PlacementKind::Revoked,
            Placement::Ssh { .. } => PlacementKind::Ssh,
            Placement::Provisioned => PlacementKind::Provisioned,
            Placement::Nowhere(_) => PlacementKind::None,
            Placement::Invalid { .. } | Placement::Unknown { .. } => PlacementKind::Unknown,
        },
        has_machine: placement.has_machine(),
        address: placement.address(),
        reason: placement.reason(agent),
        help: placement.help(agent, orrery_model::Deployer::Server),
    }
}
