//! Execution sites of agents.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use orrery_handlers::run::Remote;
use orrery_handlers::target::TransportError;
use orrery_handlers::{CancelToken, LocalTarget, OutwardTarget, Target, TargetCache};
use orrery_model::{Deployer, Inventory, Placement, Resource, SshAddress};

/// No target for an agent; the reason is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoTarget(pub String);

/// Resolved placement of an agent.
#[derive(Clone)]
pub enum ExecutionSite {
    /// In this process.
    Local(Arc<dyn Target>),
    /// On a remote agent, which receives commands.
    Remote(Arc<dyn Remote>),
    /// In this process, for handlers that need no machine; all others are unavailable.
    Outward(Arc<OutwardTarget>),
    /// On a machine that is connected by the first run. Handlers that need no machine run in this
    /// process.
    Machine { machine: Arc<dyn ReachableMachine>, outward: Arc<OutwardTarget> },
}

/// A machine that handlers act on over a connection.
pub trait ReachableMachine: Send + Sync {
    /// Connects if necessary, and returns where handlers run. Blocks.
    ///
    /// # Errors
    /// If the machine is not reached.
    fn connect(&self, stop: &CancelToken) -> Result<ConnectedMachine, TransportError>;
}

/// Execution site of a machine's handlers.
#[derive(Clone)]
pub enum ConnectedMachine {
    /// In this process, acting over the connection: there is no helper, for this reason.
    Target { target: Arc<dyn Target>, no_helper: Arc<str> },
    /// In a helper on the machine.
    Helper(Arc<dyn Remote>),
}

/// Machines by address.
pub trait Machines: Send + Sync {
    /// Returns a machine without connecting to it. Must not block.
    ///
    /// # Errors
    /// If the address cannot be resolved.
    fn machine(&self, address: &SshAddress) -> Result<Arc<dyn ReachableMachine>, NoTarget>;
}

impl fmt::Debug for ExecutionSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExecutionSite::Local(_) => "Here",
            ExecutionSite::Remote(_) => "Remote",
            ExecutionSite::Outward(_) => "Outward",
            ExecutionSite::Machine { .. } => "Machine",
        })
    }
}

/// Context that the runs of one agent share.
pub(crate) struct AgentContext {
    pub(crate) site: Result<ExecutionSite, NoTarget>,
    pub(crate) cache: TargetCache,
}

impl AgentContext {
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.site, Ok(ExecutionSite::Local(_)))
    }
}

/// Resolves the execution site of an agent.
pub trait TargetResolver: Send + Sync {
    /// Called once per agent and engine, and again after
    /// [`Engine::invalidate_sites`](crate::Engine::invalidate_sites). Must not block: it runs under
    /// the engine's lock.
    ///
    /// # Errors
    /// If the agent has no site.
    fn resolve(&self, agent: &str) -> Result<ExecutionSite, NoTarget>;

    /// Makes writes to all local targets durable. Remote agents do this before they report a
    /// result.
    fn sync(&self);
}

/// Returns the site of an agent that has no local machine and no remote agent.
pub fn outward_site(agent: &str, placement: &Placement, deployer: Deployer) -> ExecutionSite {
    ExecutionSite::Outward(outward_target(agent, placement, deployer))
}

/// Returns the site of an agent on a machine that SSH reaches.
///
/// # Errors
/// If the address cannot be resolved.
pub fn machine_site(
    agent: &str,
    placement: &Placement,
    address: &SshAddress,
    machines: &dyn Machines,
    deployer: Deployer,
) -> Result<ExecutionSite, NoTarget> {
    let machine = machines.machine(address)?;
    Ok(ExecutionSite::Machine { machine, outward: outward_target(agent, placement, deployer) })
}

fn outward_target(agent: &str, placement: &Placement, deployer: Deployer) -> Arc<OutwardTarget> {
    let address = match placement {
        Placement::Ssh { address, .. } => address.for_python_handlers(),
        other => other.address(),
    };
    let (mut reason, mut help) =
        (placement.reason(agent), placement.help(agent, deployer).unwrap_or_default());
    if matches!(placement, Placement::Ssh { .. }) && address.is_none() {
        reason.push_str(
            ", whose options a handler in Python does not know when it connects on its own, as without a helper on the machine",
        );
        "remove the cause, or the options from its address; helpers for other platforms are binaries of the agent in lib/orrery/agents, beside the directory of `orrery`".clone_into(&mut help);
    }
    Arc::new(OutwardTarget::new(address, reason, help))
}

/// Returns the agent and address of a `std::AgentConfig`; `None` for other resources and for a
/// purged one.
pub fn declared_address(resource: &Resource) -> Option<(String, String)> {
    if resource.id.entity() != "std::AgentConfig" {
        return None;
    }
    let attributes = resource.attributes.to_object();
    if attributes.get("purged").and_then(serde_json::Value::as_bool) == Some(true) {
        return None;
    }
    let text = |name: &str| Some(attributes.get(name)?.as_str()?.to_owned());
    Some((text("agentname")?, text("uri")?))
}

/// Addresses of agents that a version declares.
pub fn declared_addresses(resources: &[Resource]) -> BTreeMap<String, String> {
    resources.iter().filter_map(declared_address).collect()
}

/// Resolver of a command without a server: each agent is this machine, one that SSH reaches, or has
/// none.
pub struct LocalTargets {
    target: Arc<LocalTarget>,
    inventory: Inventory,
    machines: Option<Arc<dyn Machines>>,
}

impl LocalTargets {
    pub fn new(target: LocalTarget, inventory: Inventory) -> Self {
        LocalTargets { target: Arc::new(target), inventory, machines: None }
    }

    /// Reaches other machines.
    #[must_use]
    pub fn with_machines(mut self, machines: Arc<dyn Machines>) -> Self {
        self.machines = Some(machines);
        self
    }
}

impl fmt::Debug for LocalTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalTargets")
    }
}

impl TargetResolver for LocalTargets {
    fn resolve(&self, agent: &str) -> Result<ExecutionSite, NoTarget> {
        let placement = self.inventory.placement_of(agent);
        match (&placement, &self.machines) {
            (Placement::Local(_), _) => {
                Ok(ExecutionSite::Local(Arc::clone(&self.target) as Arc<dyn Target>))
            }
            (Placement::Ssh { address, .. }, Some(machines)) => {
                machine_site(agent, &placement, address, &**machines, Deployer::Command)
            }
            _ => Ok(outward_site(agent, &placement, Deployer::Command)),
        }
    }

    fn sync(&self) {
        if let Err(error) = self.target.sync() {
            tracing::warn!(%error, "cannot sync written files; they may not survive a power loss");
        }
    }
}
