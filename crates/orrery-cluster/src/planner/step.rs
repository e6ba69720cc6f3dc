//! Plans and their steps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::state::ClusterState;

/// Kind of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceKind {
    /// The machine exists.
    Machine,
    /// It can be logged into.
    Reachable,
    /// What the automators need is on it.
    Toolchain,
    Installed,
    Configured,
    /// Not running with an outdated generation.
    Quiesced,
    /// A latch: once per machine, service and epoch.
    Initialized,
    Running,
    Stopped,
    /// No longer installed.
    Removed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The resource differs.
    Apply,
    /// The resource is unchanged, but others rely on it: it is looked at first.
    Verify,
    /// The resource goes away.
    Remove,
}

/// One resource of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    pub node: String,
    pub kind: ResourceKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    pub effect: Effect,
    /// Of an initialization: its identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
    /// Numbers of steps that come before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<usize>,
    /// Numbers of groups whose steps all come before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<usize>,
    /// Number of the gate that has to open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<usize>,
}

impl Step {
    /// The name of what is done, as plans show it.
    pub fn action(&self) -> &'static str {
        match self.kind {
            ResourceKind::Machine if self.effect == Effect::Remove => "DELETE",
            ResourceKind::Machine => "CREATE",
            ResourceKind::Reachable => "CONFIRM",
            ResourceKind::Toolchain => "BOOTSTRAP",
            ResourceKind::Installed => "INSTALL",
            ResourceKind::Configured => "CONFIGURE",
            ResourceKind::Initialized => "INITIALIZE",
            ResourceKind::Running => "START",
            ResourceKind::Quiesced | ResourceKind::Stopped => "STOP",
            ResourceKind::Removed => "REMOVE",
        }
    }
}

/// `node:ACTION:service`
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.node, self.action(), self.service.as_deref().unwrap_or_default())
    }
}

/// Admission: steps behind it start when a permit of each service is free.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gate {
    /// Services whose permits it takes, each with the step that gives the permit back.
    pub permits: BTreeMap<String, usize>,
}

/// What is to be done. Steps are in an order in which they can be carried out one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// Steps that others wait for as a whole, such as all instances of a service.
    pub groups: Vec<Vec<usize>>,
    pub gates: Vec<Gate>,
    /// How many instances of each service may be down at the same time.
    pub permits: BTreeMap<String, u32>,
    /// The state that the plan leads to: services whose dependencies are stopped are stopped, too.
    #[serde(skip)]
    pub target: ClusterState,
    /// Every stage waits for the one before as a whole.
    pub is_staged: bool,
}

impl Plan {
    /// Numbers of the steps that come directly before one.
    pub fn requirements(&self, step: usize) -> BTreeSet<usize> {
        let step = &self.steps[step];
        let grouped = step.after.iter().flat_map(|group| &self.groups[*group]);
        step.requires.iter().chain(grouped).copied().collect()
    }
}

/// Choices of how to get from one state to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Barriers between stages, instead of each step as soon as it can. Not with a rolling restart: a stage would wait
    /// for all instances, and these for permits that only the next stage gives back.
    pub is_staged: bool,
    pub restart: Restart,
    /// Exactly as the reference plans: machines are deleted without stopping and removing their services first, what
    /// is only reached through a service outside the plan is not waited for, and services may lack what they require.
    pub is_compatible: bool,
}

/// How services are restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// All instances at once, and everything that depends on them.
    #[default]
    Together,
    /// A few instances at a time; what depends on them goes on.
    Rolling {
        /// Instances of a service that may be down at the same time.
        max_unavailable: BTreeMap<String, u32>,
        /// The same for services that are not named.
        default: u32,
    },
}
