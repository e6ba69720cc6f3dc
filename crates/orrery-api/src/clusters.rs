//! Clusters: their life cycle, operations on them with plan and progress, and nodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::string_enum::string_enums;
use crate::{Actions, LayoutGroup, PreviewedStep, Time, Transitioning};

string_enums! {
    /// Status of a cluster.
    pub enum ClusterStatus {
        /// An operation is open.
        Pending = "pending",
        /// The last operation succeeded.
        Active = "active",
        /// Active, and something drifted or fails.
        Degraded = "degraded",
        /// A creation or deletion failed halfway. It can be resumed.
        Incomplete = "incomplete",
        /// Another operation failed halfway.
        Inconsistent = "inconsistent",
        /// Deleted. The record stays.
        Terminated = "terminated",
    }

    /// Kind of an operation on a cluster.
    pub enum ClusterOperationKind {
        Create = "create",
        /// Changes the number of nodes.
        Resize = "resize",
        AddServices = "add-services",
        RemoveServices = "remove-services",
        /// Moves nodes to another hardware type, by replacing their machines.
        ChangeHardware = "change-hardware",
        /// Replaces the configuration as a whole.
        Reconfigure = "reconfigure",
        Start = "start",
        Stop = "stop",
        Restart = "restart",
        /// Adopts the newest revisions of the template and of the services.
        Update = "update",
        /// Replaces the machine of a node.
        Replace = "replace",
        /// Returns to the intent before the last operation.
        Revert = "revert",
        Delete = "delete",
    }

    /// State of an operation on a cluster.
    pub enum ClusterOperationState {
        Running = "running",
        Paused = "paused",
        Done = "done",
        Failed = "failed",
        Aborted = "aborted",
    }

    /// Restarts of services whose configuration changes.
    pub enum RestartMode {
        /// No restarts. Services with an outdated configuration are reported.
        None = "none",
        /// All instances at once.
        Together = "together",
        /// A bounded number of instances at a time.
        Rolling = "rolling",
    }

    /// Effect of an abort on the intent.
    pub enum AbortPolicy {
        /// Keeps the intent of the operation. Nothing more is done for it.
        Hold = "hold",
        /// Returns to the intent before the operation.
        Revert = "revert",
    }
}

/// A cluster to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCluster {
    /// Unique in the project among clusters that are not terminated: 1 to 63 lower-case letters,
    /// digits and hyphens.
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// Name of the template.
    pub template: String,
    /// Number of nodes.
    #[schema(minimum = 1, maximum = 10000)]
    pub size: u32,
    /// Replaces the template's provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The only hardware type of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardwaretype: Option<String>,
    /// The only image type of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imagetype: Option<String>,
    /// Replaces the template's services as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<String>>,
    /// Replaces the template's configuration as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub config: Option<Map<String, Value>>,
    /// Suffix of host names. Default: the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_suffix: Option<String>,
    /// Duration of the lease in seconds; 0 for no end. Default: the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u64>,
    /// Returns the plan and creates nothing.
    #[serde(default)]
    pub plan_only: bool,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// Lower-case letters and digits. Part of the names of machines.
    pub id: String,
    pub name: String,
    pub description: String,
    pub project: Uuid,
    pub project_name: String,
    /// Environment with the resources of the cluster.
    pub environment: Uuid,
    /// Account that created the cluster.
    pub owner: String,
    pub template: String,
    /// Revision of the template that the cluster follows.
    pub template_revision: i64,
    pub provider: String,
    pub status: ClusterStatus,
    /// Reason of a status other than `active`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub created: Time,
    /// End of the lease; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
    /// Time of the end of a terminated cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminated: Option<Time>,
    /// Number of nodes of the intent.
    pub size: u32,
    /// Services of the intent, sorted.
    pub services: Vec<String>,
    /// Revision of the intent, for `If-Match`.
    pub revision: i64,
    /// The open operation, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<ClusterOperationSummary>,
    pub transitioning: Transitioning,
    pub transitioning_message: String,
    /// Available actions.
    #[serde(default)]
    pub actions: Actions,
}

/// Change of a cluster without an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterUpdate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// New end of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
    /// Remaining duration of the lease from now, in seconds; 0 for no end. Excludes `expires`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u64>,
}

/// Request of an operation on a cluster. Fields that do not belong to the kind are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterOperationRequest {
    pub kind: ClusterOperationKind,
    /// Of `resize`: number of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub size: Option<u32>,
    /// Of `add-services`, `remove-services`, `start`, `stop`, `restart` and `change-hardware`:
    /// names of services. Default of `start`, `stop` and `restart`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<String>>,
    /// Of `replace` and `change-hardware`: name of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Of `change-hardware`: name of the hardware type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardwaretype: Option<String>,
    /// Of `reconfigure`: the new configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub config: Option<Map<String, Value>>,
    /// Restarts of services whose configuration changes. Default: `together` for `reconfigure` and
    /// `restart`, `none` for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartMode>,
    /// Of rolling restarts: instances of a service that may be down at a time. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_unavailable: Option<u32>,
    /// Returns the plan and changes nothing.
    #[serde(default)]
    pub plan_only: bool,
}

impl ClusterOperationRequest {
    /// A request without optional fields.
    pub fn new(kind: ClusterOperationKind) -> Self {
        ClusterOperationRequest {
            kind,
            size: None,
            services: None,
            node: None,
            hardwaretype: None,
            config: None,
            restart: None,
            max_unavailable: None,
            plan_only: false,
        }
    }
}

/// Request of an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AbortRequest {
    pub policy: AbortPolicy,
}

/// Answer to a request of a change: the plan, or the operation that carries it out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterChangeAnswer {
    /// The cluster after the request; absent for the plan of a creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// Absent for a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<ClusterOperation>,
    /// With `plan_only`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<ClusterPlan>,
}

/// Plan of an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterPlan {
    /// Names of new nodes.
    pub added: Vec<String>,
    /// Names of removed nodes.
    pub removed: Vec<String>,
    /// Names of nodes whose machine is replaced.
    pub replaced: Vec<String>,
    /// Services that would run with an outdated configuration until their restart.
    pub pending_restarts: Vec<String>,
    /// Groups of identical nodes after the operation.
    pub layout: Vec<LayoutGroup>,
    /// Number of steps.
    pub steps: u64,
    /// Stages in order. The steps of a stage can run in parallel.
    pub stages: Vec<Vec<PreviewedStep>>,
    /// Number of resources that the operation adds, changes and removes.
    pub resources: ClusterResourceChanges,
}

/// Numbers of changed resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterResourceChanges {
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
}

/// An operation without its progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterOperationSummary {
    /// Counts up from 1 for each cluster.
    pub number: i64,
    pub kind: ClusterOperationKind,
    pub state: ClusterOperationState,
    /// Result or current activity.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// An operation on a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterOperation {
    /// Counts up from 1 for each cluster.
    pub number: i64,
    /// Id of the cluster.
    pub cluster: String,
    pub kind: ClusterOperationKind,
    pub state: ClusterOperationState,
    /// Result or current activity.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub author: String,
    pub requested: Time,
    /// End time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// The request as it was sent.
    #[schema(value_type = Object)]
    pub request: Value,
    /// Revision of the intent of this operation.
    pub revision: i64,
    /// Version of the environment that carries it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Only of a single operation; lists omit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ClusterProgress>,
    pub transitioning: Transitioning,
    pub transitioning_message: String,
    /// Available actions.
    #[serde(default)]
    pub actions: Actions,
}

/// Progress of an operation, from the states of its resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterProgress {
    #[serde(flatten)]
    pub counts: ProgressCounts,
    /// Stages in the order of their first action.
    pub stages: Vec<StageProgress>,
    /// Nodes by name. At most 1,000: unfinished ones first.
    pub nodes: Vec<NodeProgress>,
    /// Failed resources. At most 100.
    pub failures: Vec<ClusterFailure>,
    /// Actions with a lost outcome that wait for a decision. At most 100.
    pub unknown_effects: Vec<ClusterFailure>,
}

/// Counts of resources by progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProgressCounts {
    pub total: u64,
    pub done: u64,
    pub failed: u64,
}

/// Progress of one kind of action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StageProgress {
    /// Action, such as `create` or `configure`.
    pub action: String,
    #[serde(flatten)]
    pub counts: ProgressCounts,
}

/// Progress of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeProgress {
    pub node: String,
    #[serde(flatten)]
    pub counts: ProgressCounts,
}

/// A failed action, or one with a lost outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterFailure {
    /// Resource id.
    pub resource: String,
    pub node: String,
    /// Absent for actions on the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    pub action: String,
    /// Number of failed attempts since the last success.
    pub attempts: u32,
    pub message: String,
    /// True if it is not attempted again without a decision.
    pub is_final: bool,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterNode {
    pub name: String,
    pub number: u64,
    /// Number of machines that have had this name.
    pub incarnation: u32,
    pub hostname: String,
    pub hardwaretype: String,
    pub imagetype: String,
    /// Name of the machine at the provider.
    pub machine: String,
    /// Facts about the machine, such as `ip.access_v4`.
    pub facts: BTreeMap<String, String>,
    pub services: Vec<ClusterNodeService>,
    #[serde(flatten)]
    pub counts: ProgressCounts,
}

/// A service on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterNodeService {
    pub name: String,
    /// False if it should be stopped.
    pub running: bool,
    /// Status of its resources: `deployed`, `failed` or another one, the worst first.
    pub status: String,
}

/// Layout of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterLayout {
    pub groups: Vec<LayoutGroup>,
}

/// Ways to reach the nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterConnection {
    /// Links of the template.
    pub links: Vec<ClusterLink>,
    pub nodes: Vec<NodeConnection>,
}

/// A link of the template with expanded macros.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterLink {
    pub label: String,
    /// Absent while facts are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Address of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeConnection {
    pub node: String,
    pub hostname: String,
    /// Address for connections from outside; absent before the machine is reachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_port: Option<u16>,
    pub ssh_user: String,
    /// Pinned host key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
}
