//! Agents: their status, their placement, and pausing them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use orrery_api::{AgentConnectionState, AgentStatus, PlacementRequest};
use orrery_model::{HostInventory, Inventory, Placement, RemoteAgentId, Status, Timestamp};
use orrery_store::{
    AgentConnectionRecord, AgentRecord, ConnectionPhase, EnvironmentKey, ServedName, Store,
    StoreError,
};

use crate::auth::Caller;
use crate::contents::VersionAuthor;
use crate::count_cache::CachedCounts;
use crate::error::ServerError;
use crate::host_inventory;
use crate::placement::{self, DeclaredAgents};
use crate::services::Services;

/// Change of an agent's work, now or at the end of a halt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseChange {
    /// Finishes running handlers and starts no more.
    Pause,
    /// Resumes.
    Unpause,
    /// In a halted environment: stays paused when the environment resumes.
    KeepPausedOnResume,
    /// In a halted environment: resumes with the environment.
    UnpauseOnResume,
}

/// Changes the work of an agent, or of all.
pub async fn change_pause(
    services: &Services,
    environment: EnvironmentKey,
    agent: Option<String>,
    change: PauseChange,
) -> Result<(), ServerError> {
    let now = services.now();
    services
        .change(move |store| {
            let (agents, agent) = (store.agents(), agent.as_deref());
            match change {
                PauseChange::Pause => agents.pause(environment, agent, true, now),
                PauseChange::Unpause => agents.pause(environment, agent, false, now),
                PauseChange::KeepPausedOnResume => {
                    agents.set_on_resume(environment, agent, false, now)
                }
                PauseChange::UnpauseOnResume => agents.set_on_resume(environment, agent, true, now),
            }
        })
        .await?;
    Ok(())
}

/// Inputs for the status of agents.
pub(crate) struct AgentContext {
    has_engine: bool,
    served: BTreeMap<String, ServedName>,
    inventory: Inventory,
    /// Connections over SSH, by agent.
    connections: BTreeMap<String, AgentConnectionRecord>,
    /// Round trips of remote agents.
    latencies: HashMap<RemoteAgentId, Duration>,
}

/// Connection to the machine of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineConnection {
    pub(crate) state: AgentConnectionState,
    pub(crate) latency: Option<Duration>,
    pub(crate) retry_at: Option<Timestamp>,
    pub(crate) last_seen: Option<Timestamp>,
    pub(crate) problem: Option<String>,
}

/// Status of an agent, and its reasons.
pub(crate) struct AgentCondition<'a> {
    pub(crate) status: AgentStatus,
    pub(crate) placement: Placement,
    /// Remote agent that serves it.
    pub(crate) served: Option<&'a ServedName>,
    /// False if a remote agent serves it and is not connected.
    pub(crate) is_reachable: bool,
    /// Connection to its machine, if it needs one.
    pub(crate) connection: Option<MachineConnection>,
    /// Number of its resources by status.
    pub(crate) by_status: BTreeMap<Status, u64>,
}

impl AgentCondition<'_> {
    /// True if handlers of the agent are running.
    pub(crate) fn is_deploying(&self) -> bool {
        self.has(Status::Deploying)
    }

    /// Number of its resources, without orphans.
    pub(crate) fn resources(&self) -> u64 {
        let counts = self.by_status.iter();
        counts.filter(|(status, _)| **status != Status::Orphaned).map(|(_, count)| count).sum()
    }

    fn has(&self, status: Status) -> bool {
        self.by_status.get(&status).is_some_and(|count| *count > 0)
    }
}

impl AgentContext {
    pub(crate) fn read(
        store: &Store,
        environment: EnvironmentKey,
        agents: &[&str],
    ) -> Result<Self, StoreError> {
        let served = store.remote_agents().served_names(environment)?;
        Ok(AgentContext {
            has_engine: store.leases().holder(environment)?.is_some(),
            inventory: placement::read_inventory(store, environment, None, agents)?,
            served: served.into_iter().map(|one| (one.name.clone(), one)).collect(),
            connections: store.agents().connections(environment)?,
            latencies: store.gateways().latencies(environment)?,
        })
    }

    /// Returns the connection to the machine of an agent.
    fn connection(&self, agent: &str, placement: &Placement) -> Option<MachineConnection> {
        match placement {
            Placement::Remote => self.served.get(agent).map(|served| {
                let is_connected = served.gateway.is_some();
                let latency = self.latencies.get(&served.agent).copied();
                MachineConnection {
                    state: match is_connected {
                        true => AgentConnectionState::Connected,
                        false => AgentConnectionState::Disconnected,
                    },
                    latency: latency.filter(|_| is_connected),
                    retry_at: None,
                    last_seen: served.seen,
                    problem: None,
                }
            }),
            Placement::Ssh { .. } if self.has_engine => {
                // Without a report, nothing has needed the machine yet.
                Some(self.connections.get(agent).map_or_else(unused_connection, ssh_connection))
            }
            _ => None,
        }
    }

    /// Derives the status of an agent.
    pub(crate) fn condition(
        &self,
        record: &AgentRecord,
        counted: &CachedCounts,
    ) -> AgentCondition<'_> {
        let served = self.served.get(&record.name);
        let own = counted.counts.iter().filter(|count| count.agent == record.name);
        let mut condition = AgentCondition {
            status: AgentStatus::Paused,
            placement: self.inventory.placement_of(&record.name),
            served,
            is_reachable: true,
            connection: None,
            by_status: own.map(|count| (count.status, count.count)).collect(),
        };
        condition.connection = self.connection(&record.name, &condition.placement);
        condition.is_reachable = match (&condition.connection, served) {
            (Some(connection), _) => connection.state.is_reachable(),
            (None, served) => served.is_none_or(|served| served.gateway.is_some()),
        };
        // An agent without machine resources is only a queue, which needs no machine.
        let lacks_machine =
            !condition.placement.has_machine() && condition.has(Status::Unavailable);
        condition.status = match (record.paused, self.has_engine && condition.is_reachable) {
            (true, _) => AgentStatus::Paused,
            (false, _) if lacks_machine => AgentStatus::Unavailable,
            (false, true) => AgentStatus::Up,
            (false, false) => AgentStatus::Down,
        };
        condition
    }
}

/// Returns the agents whose machines are not reached now, over SSH or as remote agents, by name.
/// Only true while an engine works for the environment.
///
/// # Errors
/// Those of the store.
pub fn unreachable_agents(
    store: &Store,
    environment: EnvironmentKey,
) -> Result<BTreeSet<String>, StoreError> {
    let served = store.remote_agents().served_names(environment)?;
    let is_away = |served: &ServedName| served.gateway.is_none();
    let mut found: BTreeSet<String> =
        served.into_iter().filter(is_away).map(|served| served.name).collect();
    // A connection over SSH is that of an agent which is placed there instead.
    for (agent, record) in store.agents().connections(environment)? {
        if ssh_connection(&record).state.is_reachable() {
            found.remove(&agent);
        } else {
            found.insert(agent);
        }
    }
    Ok(found)
}

fn unused_connection() -> MachineConnection {
    let state = AgentConnectionState::Idle;
    MachineConnection { state, latency: None, retry_at: None, last_seen: None, problem: None }
}

fn ssh_connection(record: &AgentConnectionRecord) -> MachineConnection {
    let AgentConnectionRecord { phase, latency, retry_at, problem } = record;
    MachineConnection {
        state: match phase {
            ConnectionPhase::Connected => AgentConnectionState::Connected,
            ConnectionPhase::Unresponsive => AgentConnectionState::Unresponsive,
            ConnectionPhase::Idle => AgentConnectionState::Idle,
            ConnectionPhase::BackingOff => AgentConnectionState::BackingOff,
            ConnectionPhase::CircuitOpen => AgentConnectionState::CircuitOpen,
        },
        latency: *latency,
        retry_at: *retry_at,
        last_seen: None,
        problem: (!problem.is_empty()).then(|| problem.clone()),
    }
}

/// Returns the inventory that places agents under hypothetical declarations of a version.
pub(crate) async fn inventory_for(
    services: &Services,
    caller: &Caller,
    environment: EnvironmentKey,
    request: PlacementRequest,
) -> Result<Inventory, ServerError> {
    let caller = caller.clone();
    let PlacementRequest { local_agents, addresses, inventory, .. } = request;
    let read = move |store: &Store| {
        let hosts = match inventory {
            Some(hash) => {
                let author = VersionAuthor::for_caller(store, &caller)?;
                host_inventory::check(store, &author, &hash)?
            }
            None => HostInventory::default(),
        };
        let hosts = Arc::new(hosts);
        let declared = DeclaredAgents { addresses, patterns: local_agents, hosts };
        Ok(placement::read_inventory(store, environment, Some(declared), &[])?)
    };
    services.try_with_store(read).await
}
