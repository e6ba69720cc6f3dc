//! Placement of an environment's agents: what the store, the settings and this machine know, as an inventory.

use std::collections::BTreeMap;

use orrery_executor::declared_address;
use orrery_handlers::target::host_name;
use orrery_model::{Enrolment, Inventory, Placement};
use orrery_store::{EnvironmentKey, ServedName, Store, StoreError, local_agents};

use crate::settings::EnvironmentSettings;

/// What a version declares about its agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) addresses: BTreeMap<String, String>,
    pub(crate) patterns: Vec<String>,
}

/// The agents that remote agents serve, for an inventory.
pub(crate) fn enrolled<'s>(
    served: impl IntoIterator<Item = &'s ServedName>,
) -> BTreeMap<String, Enrolment> {
    let enrolment = |one: &ServedName| {
        if one.revoked { Enrolment::Revoked } else { Enrolment::Active }
    };
    served.into_iter().map(|one| (one.name.clone(), enrolment(one))).collect()
}

/// The inventory of an environment, with what a version declares. `host` is the machine on which handlers run.
pub(crate) fn inventory(
    host: &str,
    settings: &EnvironmentSettings,
    declared: Declared,
    enrolled: BTreeMap<String, Enrolment>,
) -> Inventory {
    let Declared { addresses, patterns } = declared;
    Inventory {
        addresses,
        project_patterns: patterns,
        environment_patterns: settings.local_agents.clone(),
        enrolled,
        ..Inventory::default()
    }
    .on_host(host)
}

/// The inventory as the store has it, for those who ask about agents. Of the declared addresses, those of the agents that
/// `addresses_of` names are read.
pub(crate) fn read_inventory(
    store: &dyn Store,
    environment: EnvironmentKey,
    declared: Option<Declared>,
    addresses_of: &[&str],
) -> Result<Inventory, StoreError> {
    let settings = EnvironmentSettings::from_map(&store.settings(environment)?);
    let served = store.records().served_names(environment)?;
    // Handlers run where the engine is, which may be another machine than the one that is asked.
    let host = store.lease_holder(environment)?.map_or_else(host_name, |holder| holder.host);
    let declared = match declared {
        Some(declared) => declared,
        None => read_declared(store, environment, addresses_of)?,
    };
    Ok(inventory(&host, &settings, declared, enrolled(&served)))
}

/// What the released version declares.
fn read_declared(
    store: &dyn Store,
    environment: EnvironmentKey,
    agents: &[&str],
) -> Result<Declared, StoreError> {
    let versions = store.versions(environment)?;
    let released = versions.iter().rev().find(|version| version.released);
    let patterns = released.map(|version| local_agents(&version.info)).unwrap_or_default();
    let mut addresses = BTreeMap::new();
    for agent in agents {
        let id = format!("std::AgentConfig[internal,agentname={agent}]");
        if let Some(resource) = store.read_resource(environment, &id)? {
            addresses.extend(declared_address(&resource));
        }
    }
    Ok(Declared { addresses, patterns })
}

/// A placement for the API.
pub(crate) fn shown(agent: &str, placement: &Placement) -> orrery_api::AgentPlacement {
    orrery_api::AgentPlacement {
        kind: placement.as_str().to_owned(),
        has_machine: placement.has_machine(),
        reason: placement.reason(agent),
        help: placement.help(agent, orrery_model::Deployer::Server),
    }
}
