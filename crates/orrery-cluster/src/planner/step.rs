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
    /// The machine accepts logins.
    Reachable,
    /// The prerequisites of the automators are installed.
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
    /// The resource is unchanged, but others rely on it: it is verified first.
    Verify,
    /// The resource is removed.
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
    /// Identity of an initialization.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
    /// Numbers of preceding steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<usize>,
    /// Numbers of groups of steps that all precede this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<usize>,
    /// Number of the gate that has to open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<usize>,
}

impl Step {
    /// The action name in plans.
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
    /// Services that provide its permits, each with the step that releases the permit.
    pub permits: BTreeMap<String, usize>,
}

/// Ordered steps, valid for sequential execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// Steps that others wait for as a whole, such as all instances of a service.
    pub groups: Vec<Vec<usize>>,
    pub gates: Vec<Gate>,
    /// Maximum number of instances of each service that may be down at the same time.
    pub permits: BTreeMap<String, u32>,
    /// The resulting state: services with stopped dependencies are stopped, too.
    #[serde(skip)]
    pub target: ClusterState,
    /// Every stage waits for the whole previous stage.
    pub is_staged: bool,
}

impl Plan {
    /// Numbers of the direct predecessors of a step.
    pub fn requirements(&self, step: usize) -> BTreeSet<usize> {
        let step = &self.steps[step];
        let grouped = step.after.iter().flat_map(|group| &self.groups[*group]);
        step.requires.iter().chain(grouped).copied().collect()
    }
}

/// Options for the transition from one state to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanPolicy {
    /// Barriers between stages, instead of starting each step as early as possible. Not with a
    /// rolling restart: a stage would wait for all instances, and these for permits that only the
    /// next stage releases.
    pub is_staged: bool,
    pub restart: Restart,
    /// Plans exactly like the original: machines are deleted without stopping and removing their
    /// services first, steps do not wait for dependencies behind a service outside the plan, and
    /// services may lack their requirements.
    pub is_compatible: bool,
}

/// Restart strategy for services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// All instances at once, with all their dependents.
    #[default]
    Together,
    /// A few instances at a time; their dependents keep running.
    Rolling {
        /// Maximum number of instances of a service that may be down at the same time.
        max_unavailable: BTreeMap<String, u32>,
        /// The same for all other services.
        default: u32,
    },
}
