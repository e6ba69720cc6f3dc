//! Handlers of the resources of clusters.
//!
//! | module | entities |
//! |---|---|
//! | `machine` | `cluster::Machine` |
//! | `reachable` | `cluster::Reachable` |
//! | `toolchain` | `cluster::Toolchain` |
//! | `service`, `service_steps` | `cluster::Installed`, `Quiesced`, `Configured`, `Initialized`, `Running` |
//! | `barrier` | `cluster::Barrier` |

mod barrier;
mod calls;
mod machine;
mod reachable;
mod service;
mod service_steps;
mod toolchain;

use std::sync::Arc;
use std::time::Duration;

use orrery_cluster::render::entity;
use orrery_handlers::Registry;
use orrery_model::ResourceType;

use crate::directory::ClusterDirectory;
use crate::dispatch::Dispatcher;
use crate::plugins::Plugins;
use service::{ServiceHandler, ServiceStep};

/// What the handlers need.
#[derive(Clone)]
pub struct ClusterServices {
    pub dispatcher: Arc<dyn Dispatcher>,
    pub directory: Arc<dyn ClusterDirectory>,
    /// Plug-ins of this installation, for the validation of fields.
    pub plugins: Arc<Plugins>,
    pub limits: ActionLimits,
}

/// Time limits of actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionLimits {
    /// One action of a provider or an automator.
    pub action: Duration,
    /// Wait for a new machine to accept logins.
    pub confirm: Duration,
    /// Look at a machine that should accept logins already.
    pub check: Duration,
    /// Wait for a started service to work, if it has a probe.
    pub probe: Duration,
}

impl Default for ActionLimits {
    fn default() -> Self {
        ActionLimits {
            action: Duration::from_mins(30),
            confirm: Duration::from_mins(5),
            check: Duration::from_secs(10),
            probe: Duration::from_mins(2),
        }
    }
}

/// Attributes of nodes that all resources but barriers have.
const NODE_FIELDS: [&str; 11] = [
    "cluster",
    "cluster_name",
    "node",
    "number",
    "incarnation",
    "hostname",
    "provider",
    "provider_type",
    "provider_fields",
    "ssh_user",
    "purged",
];
const MACHINE_FIELDS: [&str; 5] = ["hardwaretype", "imagetype", "flavor", "image", "services"];
const TOOLCHAIN_FIELDS: [&str; 2] = ["automators", "plugin_resources"];
const SERVICE_FIELDS: [&str; 10] = [
    "service",
    "action",
    "undo",
    "probe",
    "config",
    "digest",
    "generation",
    "running",
    "once",
    "plugin_resources",
];

/// Registers the handlers of all `cluster::*` entities. They need no machine of their agent.
pub fn register(registry: &mut Registry, services: ClusterServices) {
    let services = Arc::new(services);
    let declare = |entity: &'static str, more: &[&'static str]| {
        let fields: Vec<&'static str> = NODE_FIELDS.iter().chain(more).copied().collect();
        ResourceType::new(entity, "node", "name", &fields).outward()
    };
    let machine = machine::MachineHandler(Arc::clone(&services));
    registry.register(declare(entity::MACHINE, &MACHINE_FIELDS), Arc::new(machine));
    let reachable = reachable::ReachableHandler(Arc::clone(&services));
    registry.register(declare(entity::REACHABLE, &MACHINE_FIELDS), Arc::new(reachable));
    let toolchain = toolchain::ToolchainHandler(Arc::clone(&services));
    registry.register(declare(entity::TOOLCHAIN, &TOOLCHAIN_FIELDS), Arc::new(toolchain));
    for (name, step) in [
        (entity::INSTALLED, ServiceStep::Installed),
        (entity::QUIESCED, ServiceStep::Quiesced),
        (entity::CONFIGURED, ServiceStep::Configured),
        (entity::INITIALIZED, ServiceStep::Initialized),
        (entity::RUNNING, ServiceStep::Running),
    ] {
        let handler = ServiceHandler { step, services: Arc::clone(&services) };
        registry.register(declare(name, &SERVICE_FIELDS), Arc::new(handler));
    }
    barrier::register(registry);
}
