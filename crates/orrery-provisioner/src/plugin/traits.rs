//! Traits of providers and automators, and what they get.

use std::fmt;
use std::sync::Arc;

use orrery_handlers::{CancelToken, Target};

use super::error::PluginError;
use super::manifest::PluginManifest;
use crate::facts::NodeFacts;
use crate::machine_name::MachineName;
use crate::node_state::ServiceRecord;
use crate::redacted::RedactedMap;
use crate::task::{MachineRecord, NodeDescription, ServiceWork, Task, TaskAction};

/// Call of a provider for one machine.
#[derive(Clone, Copy, Debug)]
pub struct MachineCall<'t> {
    pub task: &'t Task,
    pub name: &'t MachineName,
    /// Checked fields of the provider, with defaults.
    pub fields: &'t RedactedMap,
    pub stop: &'t CancelToken,
}

impl MachineCall<'_> {
    pub fn description(&self) -> &NodeDescription {
        &self.task.description
    }

    pub fn facts(&self) -> &NodeFacts {
        &self.task.facts
    }
}

/// Creates and deletes machines.
///
/// Everything may be repeated after a failure or a lost answer: names of machines are known before
/// they exist.
pub trait MachineProvider: Send + Sync {
    fn manifest(&self) -> &PluginManifest;

    /// Creates the machine, or completes one of this name. Returns what is known of it.
    ///
    /// # Errors
    /// If there is no such machine afterwards, or that is not known.
    fn create(&self, call: &MachineCall<'_>) -> Result<NodeFacts, PluginError>;

    /// Waits until the machine accepts logins, and returns its facts.
    ///
    /// # Errors
    /// If it does not within the time.
    fn confirm(
        &self,
        call: &MachineCall<'_>,
        wait: std::time::Duration,
    ) -> Result<NodeFacts, PluginError>;

    /// Deletes a machine of the node with all that belongs to it. No machine is a success.
    ///
    /// # Errors
    /// If something of it is left.
    fn delete(&self, call: &MachineCall<'_>, machine: &MachineName) -> Result<(), PluginError>;

    /// Returns all machines of the node, of any incarnation, complete or not.
    ///
    /// # Errors
    /// If that is not known.
    fn list(&self, call: &MachineCall<'_>) -> Result<Vec<MachineRecord>, PluginError>;

    /// Returns access to the files and commands of the machine.
    ///
    /// # Errors
    /// If its facts do not suffice.
    fn access(&self, call: &MachineCall<'_>) -> Result<NodeAccess, PluginError>;

    /// Simulation of services on its machines, instead of access to them.
    fn simulation(&self) -> Option<&dyn NodeSimulation> {
        None
    }
}

/// Carries out actions on services of simulated machines.
pub trait NodeSimulation: Send + Sync {
    /// # Errors
    /// If the machine does not exist.
    fn inspect(
        &self,
        call: &MachineCall<'_>,
        service: Option<&str>,
    ) -> Result<ServiceRecord, PluginError>;

    /// # Errors
    /// If the action fails, as the simulation decides.
    fn run_action(&self, call: &MachineCall<'_>, work: &ServiceWork) -> Result<(), PluginError>;
}

/// Access to a machine.
#[derive(Clone)]
pub struct NodeAccess {
    pub target: Arc<dyn Target>,
    /// Directory of this program on the machine: state, scripts, data of tasks.
    pub home: String,
    /// Variables for scripts.
    pub environment: Vec<(String, String)>,
    /// Way to the machine for tools that connect themselves.
    pub ssh: Option<SshLogin>,
}

/// Login that other tools, such as `ansible`, can use.
#[derive(Clone)]
pub struct SshLogin {
    pub host: String,
    pub port: u16,
    pub user: String,
    /// Private key in the format of OpenSSH.
    pub identity: orrery_model::SecretText,
    /// Type and base64 of the key of the machine.
    pub host_key: Option<String>,
}

impl fmt::Debug for NodeAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAccess").field("home", &self.home).finish_non_exhaustive()
    }
}

/// One action of an automator.
#[derive(Clone, Copy)]
pub struct ActionRun<'t> {
    pub task: &'t Task,
    pub action: TaskAction,
    /// `None` for the machine itself.
    pub service: Option<&'t str>,
    /// Checked fields of the automator, with defaults.
    pub fields: &'t RedactedMap,
    /// Expanded configuration of the cluster.
    pub config: &'t RedactedMap,
    pub access: &'t NodeAccess,
    pub resources: &'t dyn PluginResources,
    pub stop: &'t CancelToken,
}

impl fmt::Debug for ActionRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActionRun({})", self.task.title())
    }
}

/// Ends of the output of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActionOutput {
    pub stdout: String,
    pub stderr: String,
}

/// Acts on services.
pub trait ServiceAutomator: Send + Sync {
    fn manifest(&self) -> &PluginManifest;

    /// Carries out an action. `TaskAction::Bootstrap` prepares the machine, and may be repeated.
    ///
    /// # Errors
    /// If it fails; `is_unclear` if it may have been carried out nevertheless.
    fn run(&self, run: &ActionRun<'_>) -> Result<ActionOutput, PluginError>;
}

/// Contents of plug-in resources, where tasks run.
pub trait PluginResources: Send + Sync {
    /// Content with this SHA-256 in hexadecimal digits; `None` if there is none.
    ///
    /// # Errors
    /// If the contents are not available.
    fn content(&self, tenant: &str, digest: &str) -> Result<Option<Arc<[u8]>>, PluginError>;
}
