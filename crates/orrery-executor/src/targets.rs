//! Where the resources of an agent live.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use orrery_handlers::{LocalTarget, OutwardTarget, Target};
use orrery_model::{Deployer, Inventory, Placement, Resource};

use crate::remote::Remote;

/// There is no way to an agent's target; the reason is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoTarget(pub String);

/// Where handlers run for an agent.
#[derive(Clone)]
pub enum Place {
    /// In this process.
    Here(Arc<dyn Target>),
    /// Elsewhere, by somebody who is told what to do.
    Remote(Arc<dyn Remote>),
    /// In this process, as far as they need no machine of the agent; all others are unavailable.
    Outward(Arc<OutwardTarget>),
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Here(_) => "Here",
            Place::Remote(_) => "Remote",
            Place::Outward(_) => "Outward",
        })
    }
}

/// Finds the place of an agent.
pub trait Targets: Send + Sync {
    /// Asked once per agent and engine, and again after [`Engine::forget_places`](crate::Engine::forget_places). It must not wait: the engine
    /// stands still meanwhile.
    ///
    /// # Errors
    /// If there is no way to it.
    fn place(&self, agent: &str) -> Result<Place, NoTarget>;

    /// Makes what was written to all targets here survive a loss of power. Who runs handlers elsewhere does this before answering.
    fn sync(&self);
}

/// The place of an agent that has no machine here and is not served elsewhere.
pub fn place_outward(agent: &str, placement: &Placement, deployer: Deployer) -> Place {
    let address = match placement {
        Placement::Address(address) => Some(address.clone()),
        _ => None,
    };
    let reason = placement.reason(agent);
    let help = placement.help(agent, deployer).unwrap_or_default();
    Place::Outward(Arc::new(OutwardTarget::new(address, reason, help)))
}

/// The agent and the address that a `std::AgentConfig` declares; `None` for other resources, and for one that is purged.
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

/// Addresses of agents, as a version declares them.
pub fn declared_addresses(resources: &[Resource]) -> BTreeMap<String, String> {
    resources.iter().filter_map(declared_address).collect()
}

/// Agents of a command that works alone: each is this machine, or has none.
pub struct LocalTargets {
    target: Arc<LocalTarget>,
    inventory: Inventory,
}

impl LocalTargets {
    pub fn new(target: LocalTarget, inventory: Inventory) -> Self {
        LocalTargets { target: Arc::new(target), inventory }
    }
}

impl fmt::Debug for LocalTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalTargets")
    }
}

impl Targets for LocalTargets {
    fn place(&self, agent: &str) -> Result<Place, NoTarget> {
        Ok(match self.inventory.place(agent) {
            Placement::Local(_) => Place::Here(Arc::clone(&self.target) as Arc<dyn Target>),
            other => place_outward(agent, &other, Deployer::Command),
        })
    }

    fn sync(&self) {
        if let Err(error) = self.target.sync() {
            tracing::warn!(%error, "what was written may not survive a loss of power");
        }
    }
}
