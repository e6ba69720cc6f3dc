//! Tasks: self-contained work for a provider or an automator, and its report.
//!
//! A task has all that is needed to carry it out, also on a worker without a store. Field values
//! may be resolved secrets: they are in no debug output.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::NodeFacts;
use crate::machine_name::MachineName;
use crate::node_state::{ServiceRecord, StateChange};
use crate::redacted::RedactedMap;

/// Longest output that a report keeps, in bytes: the last ones.
pub const OUTPUT_BYTES_MAX: usize = 4096;

/// Work on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique; names the task in logs and journals.
    pub id: String,
    pub tenant: String,
    pub cluster: String,
    /// Name of the node.
    pub node: String,
    /// Name of the machine: `orr-CLUSTER-NUMBER-INCARNATION`.
    pub machine: String,
    pub provider: PluginInvocation,
    pub description: NodeDescription,
    /// Known facts of the machine.
    #[serde(default)]
    pub facts: NodeFacts,
    pub work: Work,
    /// Digests of the plug-in resources that it may use, by `TYPE/NAME`.
    #[serde(default)]
    pub plugin_resources: BTreeMap<String, String>,
    /// Time limit of the work, from its start.
    pub limit_ms: u64,
}

/// A plug-in and the values of its fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginInvocation {
    /// Type of the plug-in, such as `netns` or `shell`.
    pub plugin: String,
    pub fields: RedactedMap,
}

/// Properties of a node that do not depend on its machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeDescription {
    pub number: u64,
    pub incarnation: u32,
    pub cluster_name: String,
    pub hostname: String,
    /// Name of the provider, as its document has it.
    pub provider: String,
    /// Account for logins.
    pub ssh_user: String,
    #[serde(default)]
    pub hardwaretype: String,
    #[serde(default)]
    pub imagetype: String,
    #[serde(default)]
    pub flavor: String,
    #[serde(default)]
    pub image: String,
    #[serde(default)]
    pub services: Vec<String>,
}

/// Kind of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// Create the machine. Repeatable: a machine of this name is adopted.
    Create,
    /// Check that the machine accepts logins, and find out its facts. Waits this long.
    Confirm { wait_ms: u64 },
    /// Delete the machine with this name. Repeatable.
    Delete { machine: String },
    /// Find all machines of the node, of any incarnation.
    List,
    /// Read the state of a service, or of the machine itself.
    Inspect { service: Option<String>, probe: Option<ServiceCall> },
    /// Carry out an action of an automator, and record its result.
    Act(ServiceWork),
}

/// An action on a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceWork {
    /// `None` for the machine itself.
    pub service: Option<String>,
    /// `None` only records the changes.
    pub call: Option<ServiceCall>,
    /// Expanded configuration of the cluster.
    pub config: RedactedMap,
    /// Key of an initialization: its start is recorded first.
    pub once: Option<String>,
    /// Changes to record after success, in one step.
    pub record: Vec<StateChange>,
}

/// A call of an automator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceCall {
    pub action: TaskAction,
    #[serde(flatten)]
    pub automator: PluginInvocation,
}

/// Action of an automator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskAction {
    Bootstrap,
    Install,
    Configure,
    Initialize,
    Start,
    Stop,
    Remove,
    Probe,
}

impl TaskAction {
    pub const ALL: [TaskAction; 8] = [
        TaskAction::Bootstrap,
        TaskAction::Install,
        TaskAction::Configure,
        TaskAction::Initialize,
        TaskAction::Start,
        TaskAction::Stop,
        TaskAction::Remove,
        TaskAction::Probe,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            TaskAction::Bootstrap => "bootstrap",
            TaskAction::Install => "install",
            TaskAction::Configure => "configure",
            TaskAction::Initialize => "initialize",
            TaskAction::Start => "start",
            TaskAction::Stop => "stop",
            TaskAction::Remove => "remove",
            TaskAction::Probe => "probe",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        TaskAction::ALL.into_iter().find(|action| action.as_str() == name)
    }
}

impl Task {
    /// Short description for logs.
    pub fn title(&self) -> String {
        match &self.work {
            Work::Create => format!("create {}", self.machine),
            Work::Confirm { .. } => format!("confirm {}", self.machine),
            Work::Delete { machine } => format!("delete {machine}"),
            Work::List => format!("list machines of {}", self.node),
            Work::Inspect { service, .. } => {
                format!("inspect {} on {}", service.as_deref().unwrap_or("machine"), self.machine)
            }
            Work::Act(work) => {
                let action = work.call.as_ref().map_or("record", |call| call.action.as_str());
                let service = work.service.as_deref().unwrap_or("machine");
                format!("{action} {service} on {}", self.machine)
            }
        }
    }

    /// Name of the machine in parts.
    ///
    /// # Errors
    /// If it is not a name of a machine.
    pub fn machine_name(&self) -> Result<MachineName, crate::machine_name::MachineNameError> {
        self.machine.parse()
    }
}

/// End of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    #[default]
    Succeeded,
    /// Failed; what it did is known.
    Failed,
    /// Its end was not seen: it may have done its work, or a part.
    Unclear,
}

/// Report of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    pub status: TaskStatus,
    /// Reason of a failure; empty otherwise.
    #[serde(default)]
    pub message: String,
    /// Remedy, if there is one.
    #[serde(default)]
    pub hint: Option<String>,
    /// Last output of the action.
    #[serde(default)]
    pub stdout: String,
    #[serde(default)]
    pub stderr: String,
    #[serde(default)]
    pub outputs: Outputs,
}

/// Typed outputs of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outputs {
    /// Of `create` and `confirm`.
    pub facts: Option<NodeFacts>,
    /// Of `list`.
    pub machines: Vec<MachineRecord>,
    /// Of `inspect`.
    pub state: Option<ServiceRecord>,
    /// Of `inspect` with a probe: the complaint of the probe, if the service does not work.
    pub probe_failure: Option<String>,
}

/// A machine at its provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineRecord {
    pub name: String,
    pub provider_id: Option<String>,
    /// False if it exists and does not run, or is incomplete: `create` repairs it.
    pub is_running: bool,
}

/// Keeps the last bytes of an output, from the start of a character.
pub fn output_tail(output: &[u8]) -> String {
    let from = output.len().saturating_sub(OUTPUT_BYTES_MAX);
    let text = String::from_utf8_lossy(&output[from..]);
    if from == 0 {
        return text.into_owned();
    }
    let kept = text.trim_start_matches(char::REPLACEMENT_CHARACTER);
    format!("[…]{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_keeps_its_end() {
        let long = [vec![b'a'; OUTPUT_BYTES_MAX], b"the end".to_vec()].concat();
        let tail = output_tail(&long);
        assert!(tail.starts_with("[…]a") && tail.ends_with("the end"), "{tail}");
        assert_eq!(output_tail(b"short"), "short");
        // Cut inside a character.
        let wide = "é".repeat(OUTPUT_BYTES_MAX);
        assert!(!output_tail(&wide.as_bytes()[1..]).contains(char::REPLACEMENT_CHARACTER));
    }

    #[test]
    fn actions_have_the_names_of_documents() {
        for action in TaskAction::ALL {
            assert_eq!(TaskAction::from_name(action.as_str()), Some(action));
            assert_eq!(serde_json::to_value(action).unwrap(), action.as_str());
        }
    }
}
