//! Routing of an environment's agents: to this machine, over SSH, to remote agents, or nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock};

use orrery_base::lock::IgnorePoison;
use orrery_executor::{ExecutionSite, NoTarget, TargetResolver, machine_site, outward_site};
use orrery_gateway::RemoteSite;
use orrery_handlers::target::host_name;
use orrery_model::{Deployer, Inventory, Placement, RemoteAgentId, SshAddress};
use orrery_ssh::MachineDrift;
use orrery_store::{EnvironmentRecord, ServedName, Store, StoreError};
use uuid::Uuid;

use crate::placement::{self, DeclaredAgents};
use crate::settings::EnvironmentSettings;
use crate::state::ServerState;

use super::own_machine::OwnMachine;
use super::secrets::EnvironmentSecrets;
use super::ssh_machines::EnvironmentMachines;

/// Resolves the execution sites of an environment's agents.
pub(super) struct AgentRouter {
    app: ServerState,
    environment: Uuid,
    own_machine: Arc<OwnMachine>,
    machines: Arc<EnvironmentMachines>,
    table: RwLock<RoutingTable>,
    /// Agents that were resolved to a machine over SSH.
    over_ssh: Mutex<BTreeSet<String>>,
    /// Number of commands sent.
    sent: Arc<AtomicU64>,
}

#[derive(Default)]
struct RoutingTable {
    served: BTreeMap<String, ServedName>,
    inventory: Inventory,
}

/// Difference between two routing tables.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RoutingChanges {
    /// Cached execution sites are outdated.
    pub(super) changed: bool,
    /// Agents that moved to another machine: their current runs happen on the wrong one.
    pub(super) moved: BTreeSet<String>,
    /// Agents that became reachable.
    pub(super) reachable: BTreeSet<String>,
}

impl AgentRouter {
    pub(super) fn read(
        app: &ServerState,
        store: &Store,
        environment: &EnvironmentRecord,
        settings: &EnvironmentSettings,
        declared: DeclaredAgents,
        own_machine: Arc<OwnMachine>,
        (data, drift): (&Path, Option<MachineDrift>),
    ) -> Result<Self, StoreError> {
        let served = store.remote_agents().served_names(environment.key)?;
        let enrolled = placement::enrolled(&served);
        let table = RoutingTable {
            inventory: Inventory {
                is_provisioned: environment.cluster.is_some(),
                ..placement::inventory(&host_name(), settings, declared, enrolled)
            },
            served: served.into_iter().map(|one| (one.name.clone(), one)).collect(),
        };
        let uuid = environment.uuid.uuid();
        let secrets = EnvironmentSecrets::new(app, environment.key, Arc::clone(&own_machine));
        Ok(AgentRouter {
            app: app.clone(),
            environment: uuid,
            machines: Arc::new(EnvironmentMachines::new(data, uuid, Arc::new(secrets), drift)),
            own_machine,
            table: RwLock::new(table),
            over_ssh: Mutex::default(),
            sent: Arc::default(),
        })
    }

    /// Connections to the machines of the environment.
    pub(super) fn machines(&self) -> Arc<EnvironmentMachines> {
        Arc::clone(&self.machines)
    }

    /// Uses connections of another router of the same environment.
    pub(super) fn sharing(mut self, machines: Option<Arc<EnvironmentMachines>>) -> Self {
        if let Some(machines) = machines {
            self.machines = machines;
        }
        self
    }

    /// The server's own machine.
    pub(super) fn own_machine(&self) -> &Arc<OwnMachine> {
        &self.own_machine
    }

    /// Returns the agents that use a machine over SSH, with its address; forgets those that moved.
    pub(super) fn agents_over_ssh(&self) -> Vec<(String, SshAddress)> {
        let table = self.table.read().ignore_poison();
        let mut over_ssh = self.over_ssh.lock().ignore_poison();
        let mut found = Vec::new();
        over_ssh.retain(|agent| match table.inventory.placement_of(agent) {
            Placement::Ssh { address, .. } => {
                found.push((agent.clone(), *address));
                true
            }
            _ => false,
        });
        found
    }

    /// Returns those of the agents whose files this process watches: on its own machine and over
    /// SSH.
    pub(super) fn watched_here(&self, agents: impl IntoIterator<Item = String>) -> Vec<Arc<str>> {
        let table = self.table.read().ignore_poison();
        let is_here = |agent: &String| {
            let placement = table.inventory.placement_of(agent);
            matches!(placement, Placement::Local(_) | Placement::Ssh { .. })
        };
        agents.into_iter().filter(is_here).map(Arc::from).collect()
    }

    /// Returns one agent for each connected machine.
    pub(super) fn connected_agents(&self) -> Vec<String> {
        let table = self.table.read().ignore_poison();
        let machines: BTreeMap<RemoteAgentId, &String> = table
            .served
            .values()
            .filter(|served| served.gateway.is_some() && !served.revoked)
            .map(|served| (served.agent, &served.name))
            .collect();
        machines.into_values().cloned().collect()
    }

    /// Replaces the remote agents by those of the store; returns the difference.
    pub(super) fn set_served(&self, served: Vec<ServedName>) -> RoutingChanges {
        let mut table = self.table.write().ignore_poison();
        table.inventory.enrolled = placement::enrolled(&served);
        let served: BTreeMap<String, ServedName> =
            served.into_iter().map(|one| (one.name.clone(), one)).collect();
        let changes = diff_served(&table.served, &served);
        table.served = served;
        changes
    }

    /// Updates the declarations; returns the difference for `agents`.
    pub(super) fn set_declared(
        &self,
        agents: impl IntoIterator<Item = String>,
        change: impl FnOnce(&mut Inventory),
    ) -> RoutingChanges {
        let mut table = self.table.write().ignore_poison();
        let mut now = table.inventory.clone();
        change(&mut now);
        if now == table.inventory {
            return RoutingChanges::default();
        }
        let changes = diff_inventories(&table.inventory, &now, agents);
        table.inventory = now;
        changes
    }
}

fn diff_inventories(
    before: &Inventory,
    after: &Inventory,
    agents: impl IntoIterator<Item = String>,
) -> RoutingChanges {
    let mut changes = RoutingChanges { changed: true, ..RoutingChanges::default() };
    for agent in agents {
        let (then, now) = (before.placement_of(&agent), after.placement_of(&agent));
        if then.is_same_machine(&now) {
            continue;
        }
        if now.has_machine() {
            changes.reachable.insert(agent.clone());
        }
        changes.moved.insert(agent);
    }
    changes
}

fn diff_served(
    before: &BTreeMap<String, ServedName>,
    after: &BTreeMap<String, ServedName>,
) -> RoutingChanges {
    let mut changes = RoutingChanges::default();
    // A name without a remote agent may be declared local: resolve it again.
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        changes.moved.insert(name.clone());
        changes.reachable.insert(name.clone());
    }
    for (name, now) in after {
        let then = before.get(name);
        if then.is_none_or(|then| then.agent != now.agent) {
            changes.moved.insert(name.clone());
        }
        changes.changed |=
            then.is_some_and(|then| then.revoked != now.revoked || then.offered != now.offered);
        let is_new = then.is_none_or(|then| then.session != now.session || then.gateway.is_none());
        if now.gateway.is_some() && is_new {
            changes.reachable.insert(name.clone());
        }
    }
    changes.changed |= !changes.moved.is_empty();
    changes
}

impl TargetResolver for AgentRouter {
    fn resolve(&self, agent: &str) -> Result<ExecutionSite, NoTarget> {
        let table = self.table.read().ignore_poison();
        let placement = table.inventory.placement_of(agent);
        match (&placement, table.served.get(agent)) {
            (Placement::Local(_), _) => Ok(self.own_machine.execution_site()),
            (Placement::Remote, Some(served)) => {
                let identity = (agent.to_owned(), served.agent.uuid());
                let sent = Arc::clone(&self.sent);
                let site =
                    RemoteSite::new(self.app.agent_access(), self.environment, identity, sent)
                        .offering(served.offered.clone());
                Ok(ExecutionSite::Remote(Arc::new(site)))
            }
            (Placement::Revoked, _) => {
                let help = placement.help(agent, Deployer::Server).unwrap_or_default();
                Err(NoTarget(format!("{}; {help}", placement.reason(agent))))
            }
            (Placement::Ssh { address, .. }, _) => {
                self.over_ssh.lock().ignore_poison().insert(agent.to_owned());
                machine_site(agent, &placement, address, &*self.machines, Deployer::Server)
            }
            _ => Ok(outward_site(agent, &placement, Deployer::Server)),
        }
    }

    fn sync(&self) {
        self.own_machine.sync();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(name: &str, agent: u8, session: i64, connected: bool) -> (String, ServedName) {
        let one = ServedName {
            name: name.to_owned(),
            agent: orrery_model::Id::from_bytes([agent; 16]),
            revoked: false,
            session,
            gateway: connected.then_some(orrery_model::Id::from_bytes([9; 16])),
            seen: None,
            offered: Vec::new(),
        };
        (name.to_owned(), one)
    }

    /// Returns the moved agents and the newly reachable ones.
    fn changes(
        before: &[(String, ServedName)],
        after: &[(String, ServedName)],
    ) -> (Vec<String>, Vec<String>) {
        let map = |of: &[(String, ServedName)]| of.iter().cloned().collect::<BTreeMap<_, _>>();
        let changes = diff_served(&map(before), &map(after));
        assert!(changes.changed || changes.moved.is_empty());
        (changes.moved.into_iter().collect(), changes.reachable.into_iter().collect())
    }

    #[test]
    fn newly_reachable_agents_are_detected() {
        let away = [served("a", 1, 1, false)];
        let here = [served("a", 1, 2, true)];
        assert_eq!(changes(&away, &away), (vec![], vec![]));
        assert_eq!(changes(&away, &here), (vec![], vec!["a".to_owned()]));
        assert_eq!(changes(&here, &here), (vec![], vec![]));
        let again = [served("a", 1, 3, true)];
        assert_eq!(
            changes(&here, &again),
            (vec![], vec!["a".to_owned()]),
            "it was away in between"
        );
        assert_eq!(changes(&here, &away), (vec![], vec![]));
    }

    #[test]
    fn moved_agents_are_detected() {
        let one = [served("a", 1, 1, false)];
        let a = || vec!["a".to_owned()];
        assert_eq!(changes(&[], &one), (a(), vec![]));
        assert_eq!(changes(&one, &[]), (a(), a()), "it is this machine again");
        assert_eq!(changes(&one, &[served("a", 2, 1, true)]), (a(), a()));
        let mut revoked = one.clone();
        revoked[0].1.revoked = true;
        assert_eq!(changes(&one, &revoked), (vec![], vec![]), "the machine is the same");
        let map = |of: &[(String, ServedName)]| of.iter().cloned().collect::<BTreeMap<_, _>>();
        assert!(diff_served(&map(&one), &map(&revoked)).changed);
    }

    #[test]
    fn declarations_move_agents() {
        let names = || ["localhost", "web1", "web2"].map(str::to_owned);
        let before = Inventory::default();
        let declared =
            Inventory { environment_patterns: vec!["web1".to_owned()], ..Inventory::default() };
        let web1 = || BTreeSet::from(["web1".to_owned()]);
        let there = diff_inventories(&before, &declared, names());
        assert_eq!((there.changed, there.moved, there.reachable), (true, web1(), web1()));
        let back = diff_inventories(&declared, &before, names());
        assert_eq!((back.moved, back.reachable), (web1(), BTreeSet::new()));
    }
}
