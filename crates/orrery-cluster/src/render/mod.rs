//! Rendering: the resources of an environment that an intent stands for.
//!
//! The attributes below are the contract between this crate, which writes them, and the handlers,
//! which read them.

mod digest;
mod draft;
mod rendering;
mod resources;
mod restarts;
mod transition;
mod view;
mod write;

pub use rendering::{RenderError, RenderPolicy, Rendering, RestartPolicy};
pub use resources::{render, settled};
pub use restarts::{plan, with_restarts};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Entities of rendered resources. The agent of each is the name of its node, so that a node runs
/// one action at a time.
pub mod entity {
    /// The machine exists. Identified by `name`, the name of the node.
    pub const MACHINE: &str = "cluster::Machine";
    /// The machine accepts logins. Its facts are the addresses of the node.
    pub const REACHABLE: &str = "cluster::Reachable";
    /// The prerequisites of the automators are installed.
    pub const TOOLCHAIN: &str = "cluster::Toolchain";
    /// Those of services are identified by `name`, `NODE/SERVICE`.
    pub const INSTALLED: &str = "cluster::Installed";
    /// The service does not run with an outdated generation.
    pub const QUIESCED: &str = "cluster::Quiesced";
    pub const CONFIGURED: &str = "cluster::Configured";
    /// Once per incarnation, service and epoch.
    pub const INITIALIZED: &str = "cluster::Initialized";
    /// Runs with its generation, or does not run.
    pub const RUNNING: &str = "cluster::Running";
    /// Does nothing: represents all instances of a service, so that n dependents of m instances
    /// need n + m requirements. Needs no machine.
    pub const BARRIER: &str = "cluster::Barrier";
}

/// Name of the resource set and of the agent of all barriers.
pub const BARRIERS: &str = "barriers";

/// Attributes of `cluster::Barrier`, identified by `name`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BarrierAttributes {
    /// Id of the cluster.
    pub cluster: String,
    pub service: String,
    /// State that all instances have behind the barrier, such as `running`.
    pub state: String,
    /// Changes whenever an instance changes: the engine orders only what differs.
    pub digest: String,
    #[serde(default)]
    pub purged: bool,
}

/// Attributes that all resources of a node share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeAttributes {
    /// Id of the cluster.
    pub cluster: String,
    pub cluster_name: String,
    /// Name of the node.
    pub node: String,
    pub number: u64,
    pub incarnation: u32,
    pub hostname: String,
    /// Name of the provider, and of its plug-in.
    pub provider: String,
    pub provider_type: String,
    /// Settings of the provider; values may be late-bound secrets.
    pub provider_fields: Map<String, Value>,
    pub ssh_user: String,
    #[serde(default)]
    pub purged: bool,
}

/// Attributes of `cluster::Machine` and `cluster::Reachable`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineAttributes {
    #[serde(flatten)]
    pub node: NodeAttributes,
    pub hardwaretype: String,
    pub imagetype: String,
    pub flavor: String,
    pub image: String,
    /// Services of the node, sorted.
    pub services: Vec<String>,
}

/// Attributes of `cluster::Toolchain`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolchainAttributes {
    #[serde(flatten)]
    pub node: NodeAttributes,
    /// Automator types of the node's services, sorted.
    pub automators: Vec<String>,
    /// Digests of plug-in resources, by `TYPE/NAME`.
    pub plugin_resources: BTreeMap<String, String>,
}

/// Attributes of the resources of a service on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceAttributes {
    #[serde(flatten)]
    pub node: NodeAttributes,
    pub service: String,
    /// Action that brings the resource into its state: `install`, `configure`, `initialize`,
    /// `start`; for a purged or quiesced one `stop` or `remove`. `None` if the service does not
    /// define it.
    pub action: Option<ActionAttributes>,
    /// Action that undoes it: `stop` of `cluster::Running` and `cluster::Quiesced`, `remove` of
    /// `cluster::Installed`.
    #[serde(default)]
    pub undo: Option<ActionAttributes>,
    /// Action that checks if a running service works.
    #[serde(default)]
    pub probe: Option<ActionAttributes>,
    /// Configuration with its macros, without expansion: the section of the service, and those
    /// that name no service of the cluster. All actions get it. Its digest is that of
    /// `cluster::Configured`, so that a change of it does not repeat other actions.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// Digest of everything that determines the result of the action.
    pub digest: String,
    pub generation: u64,
    /// Of `cluster::Running`: false if it should be stopped. Of `cluster::Initialized`: false if
    /// the service does not run, so that nothing is initialized yet.
    pub running: bool,
    /// Of `cluster::Initialized`: identity of the initialization.
    #[serde(default)]
    pub once: Option<String>,
    /// Digests of plug-in resources that the action uses, by `TYPE/NAME`.
    #[serde(default)]
    pub plugin_resources: BTreeMap<String, String>,
}

/// Action of an automator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActionAttributes {
    /// Name of the action, such as `install`.
    pub name: String,
    /// Type of the automator, such as `shell`.
    pub automator: String,
    pub fields: Map<String, Value>,
}
