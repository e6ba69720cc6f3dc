//! Resources, their history and their logs.

use std::collections::BTreeMap;

use orrery_model::{
    Attributes, Blocked, ChangeKind, Compliance, LastRunStatus, LogLevel, OutcomeStatus, Status,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::string_enum::string_enums;
use crate::{Actions, StatusCondition, Time, Transitioning, counts};

string_enums! {
    /// Progress of the removal of a resource.
    pub enum RemovalState {
        /// The newest version removes it, and the removal is not confirmed.
        Pending = "pending",
        /// It was removed.
        Done = "done",
    }

    /// Kind of an action on a resource.
    pub enum ResourceActionKind {
        Deploy = "deploy",
        DryRun = "dry_run",
        GetFacts = "get_facts",
        Other = "other",
    }

    /// Kind of a placement. `local`: on the machine that runs the server's handlers. `remote`: on
    /// that of a remote agent. `ssh`: the agent has an address, which only Python handlers can
    /// reach. `revoked`: its remote agent was revoked. `none`: it is declared to have no machine.
    /// `unknown`: its machine is not known.
    pub enum PlacementKind {
        Local = "local",
        Remote = "remote",
        Ssh = "ssh",
        Revoked = "revoked",
        /// A machine of a cluster, which the server provisions.
        Provisioned = "provisioned",
        None = "none",
        Unknown = "unknown",
    }

    /// State of the connection to an agent's machine. `connected`: it answers. `unresponsive`: the
    /// connection exists, and the machine does not answer. `idle`: there is no connection, and none
    /// is needed. `backing_off`: the last attempt failed. `circuit_open`: several attempts in a row
    /// failed. `disconnected`: its remote agent has no session.
    pub enum AgentConnectionState {
        Connected = "connected",
        Unresponsive = "unresponsive",
        Idle = "idle",
        BackingOff = "backing_off",
        CircuitOpen = "circuit_open",
        Disconnected = "disconnected",
    }

    /// Status of an agent. `unavailable`: its resources need a machine and there is none. `up`: an
    /// engine works for the environment and can reach the agent's machine. `down`: otherwise.
    pub enum AgentStatus {
        Paused = "paused",
        Unavailable = "unavailable",
        Up = "up",
        Down = "down",
    }
}

impl AgentConnectionState {
    /// True if nothing is known that keeps commands from the machine.
    pub fn is_reachable(self) -> bool {
        match self {
            AgentConnectionState::Connected | AgentConnectionState::Idle => true,
            AgentConnectionState::Unresponsive
            | AgentConnectionState::BackingOff
            | AgentConnectionState::CircuitOpen
            | AgentConnectionState::Disconnected => false,
        }
    }
}

/// A source location in a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SourcePlace)]
pub struct SourceLocation {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

/// An entry of a list of resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceSummary {
    /// `std::File[web1,path=/etc/motd]`
    pub id: String,
    /// Entity, such as `std::File`.
    pub r#type: String,
    pub agent: String,
    /// Identifying value, unique for its type and agent.
    pub value: String,
    /// Summary of its state.
    pub status: Status,
    /// Absent for the shared set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// End time of its last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_at: Option<Time>,
    /// Outcome of its last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_outcome: Option<OutcomeStatus>,
    /// Failed runs since the last successful one.
    pub attempts: u32,
    /// True if it is not retried any more, after too many attempts.
    pub parked: bool,
    /// `pending` if the newest version removes it and the removal is not confirmed, `done` if it
    /// was removed. Absent if nothing removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<RemovalState>,
    /// Source location of its definition in the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceLocation>,
    /// `yes` while its handler runs, `error` if the last run failed.
    pub transitioning: Transitioning,
}

/// The state of a resource, on its independent axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceAxes {
    /// Absent for an orphan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compliance: Option<Compliance>,
    /// Result of its last run.
    pub last_handler_run: LastRunStatus,
    pub blocked: Blocked,
    /// True while its handler runs.
    pub is_deploying: bool,
    /// True if the last run left it compliant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_compliant: Option<bool>,
    /// End time of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_at: Option<Time>,
    /// Start time of the last successful run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Time>,
    /// Failed runs since the last successful one.
    pub attempts: u32,
    /// True if it is not retried any more, after too many attempts.
    pub parked: bool,
}

/// A resource with its desired state, its dependencies and its next run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceDetails {
    #[serde(flatten)]
    pub summary: ResourceSummary,
    /// Desired attributes in the newest version that contains it.
    #[schema(value_type = Map<String, Value>)]
    pub attributes: Attributes,
    /// Resources that must be deployed before it, with their states.
    pub requires: Vec<RelatedResource>,
    pub state: ResourceAxes,
    /// Time of the next automatic run, if it is not compliant. A past time means as soon as a
    /// worker is free. Absent if no run is planned: it is compliant or parked, or no interval is
    /// set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_at: Option<Time>,
    /// Current activity, or the error.
    pub transitioning_message: String,
    /// Available actions.
    pub actions: Actions,
}

/// A requirement or a dependent of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RelatedResource {
    pub id: String,
    pub status: Status,
}

/// Numbers of resources by status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceCounts {
    /// Number of resources, without orphans.
    pub total: u64,
    /// Number of resources by status.
    #[serde(serialize_with = "counts::serialize")]
    pub by_status: BTreeMap<Status, u64>,
    /// Time of the count; cached in large environments.
    pub counted_at: Time,
    /// Number of parked resources: they failed too often and run again only on request.
    #[serde(default)]
    pub parked: u64,
    /// Number of deployed resources that the newest version removes and that no longer exist.
    #[serde(default)]
    pub removed: u64,
    /// Oldest last run among the resources that have run: each was verified since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_since: Option<Time>,
}

/// Desired state of a resource, from one version on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceHistoryEntry {
    /// First version with this desired state.
    pub version: u32,
    /// Creation time of that version.
    pub at: Time,
    /// Hash of the intent.
    pub hash: String,
    pub attributes: Map<String, Value>,
    pub requires: Vec<String>,
}

/// A log line of a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceLogLine {
    /// Kind of action.
    pub action: ResourceActionKind,
    /// Number of the action; the same for all its lines.
    pub action_id: i64,
    /// Version of the action.
    pub version: u32,
    pub at: Time,
    pub level: LogLevel,
    pub message: String,
    /// Values that the message refers to.
    pub values: Map<String, Value>,
}

/// One action on a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceAction {
    /// Increasing number.
    pub id: i64,
    /// Kind of action.
    pub action: ResourceActionKind,
    pub version: u32,
    pub started: Time,
    /// Absent if it was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Time>,
    /// Outcome of the handler. Absent if it was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeStatus>,
    pub change: ChangeKind,
    /// Changed attributes.
    pub changes: Vec<AttributeChange>,
    /// Number of log lines of the handler.
    pub log_lines: usize,
}

/// An attribute with its current and desired values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AttributeChange {
    pub name: String,
    pub current: Value,
    pub desired: Value,
}

/// Selection of resources for a deploy or a repair. All given conditions must hold; without any,
/// all resources are selected.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeployRequest {
    /// Agents of the resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// Resource ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Filter with the semantics of the list of resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<ResourceSelection>,
}

/// A filter for resources.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceSelection {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Entity, such as `std::File`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Part of the identifying value; with `*` or `?`, a pattern for the whole value. In any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Any of these statuses; or, with a `!` before each, none of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<StatusCondition>,
    /// Name of a resource set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
}

/// Placement of an agent: the machine on which its resources are applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentPlacement {
    pub kind: PlacementKind,
    /// True if resources that act on a machine, such as files and commands, can be applied. Other
    /// resources do not need a machine.
    pub has_machine: bool,
    /// Address of the machine, if one is declared: `ssh://user@host:port`, with options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Reason, as a sentence that names the source.
    pub reason: String,
    /// Remedy, if there is no machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// A query for the placements of agents under the declarations of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementRequest {
    /// Names of agents.
    #[schema(max_items = 100_000)]
    pub agents: Vec<String>,
    /// Patterns of agents that are the deploying machine, as in `local_agents` of a version.
    #[serde(default)]
    pub local_agents: Vec<String>,
    /// Addresses that the version declares, by agent.
    #[serde(default)]
    pub addresses: BTreeMap<String, String>,
    /// SHA-1 of the version's inventory, as in `inventory` of a version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<String>,
}

/// Placements of the requested agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacementAnswer {
    /// Placement by agent.
    pub placements: BTreeMap<String, AgentPlacement>,
}

/// Connection to the machine of an agent, as it was at most ten seconds ago.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentConnection {
    pub state: AgentConnectionState,
    /// Last round trip in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// Time before which no attempt to connect is made. Absent if the next run tries at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
    /// Time of the last message of a remote agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    /// Reason for the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An agent: one queue of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Agent {
    pub name: String,
    pub status: AgentStatus,
    /// Placement of its resources.
    pub placement: AgentPlacement,
    /// Remote agent that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_agent: Option<Uuid>,
    /// Connection to its machine. Absent for the server's own machine, without a machine, and
    /// while no engine works for the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<AgentConnection>,
    pub paused: bool,
    /// Only in a halted environment: true if the agent resumes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpause_on_resume: Option<bool>,
    /// Number of its resources, without orphans.
    pub resources: u64,
    /// Number of its resources by status.
    #[serde(serialize_with = "counts::serialize")]
    pub by_status: BTreeMap<Status, u64>,
    /// `yes` until a pause takes effect, `error` if it cannot be reached.
    #[serde(default)]
    pub transitioning: Transitioning,
    /// Current activity, or the error.
    #[serde(default)]
    pub transitioning_message: String,
    /// Available actions.
    pub actions: Actions,
}
