//! Clusters as callers describe them: statuses, new records, and changes that are stored with a version
//! of the cluster's environment.

use orrery_model::{EnvironmentId, ProjectId, Timestamp, VersionNumber};

/// Status of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterPhase {
    /// An operation is open.
    Pending,
    Active,
    /// Active, and something drifted or fails.
    Degraded,
    /// A creation or deletion failed halfway.
    Incomplete,
    /// Another operation failed halfway.
    Inconsistent,
    Terminated,
}

impl ClusterPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            ClusterPhase::Pending => "pending",
            ClusterPhase::Active => "active",
            ClusterPhase::Degraded => "degraded",
            ClusterPhase::Incomplete => "incomplete",
            ClusterPhase::Inconsistent => "inconsistent",
            ClusterPhase::Terminated => "terminated",
        }
    }
}

/// State of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterOperationPhase {
    Running,
    Paused,
    Done,
    Failed,
    Aborted,
}

impl ClusterOperationPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            ClusterOperationPhase::Running => "running",
            ClusterOperationPhase::Paused => "paused",
            ClusterOperationPhase::Done => "done",
            ClusterOperationPhase::Failed => "failed",
            ClusterOperationPhase::Aborted => "aborted",
        }
    }

    /// True for an operation that has not ended.
    pub fn is_open(self) -> bool {
        matches!(self, ClusterOperationPhase::Running | ClusterOperationPhase::Paused)
    }
}

/// End of an operation.
#[derive(Clone, Copy, Debug)]
pub struct OperationEnd<'a> {
    pub state: ClusterOperationPhase,
    /// Status of the cluster from now on.
    pub status: ClusterPhase,
    pub message: &'a str,
    pub progress: Option<&'a serde_json::Value>,
    /// Halts the environment: nothing more is done for the operation.
    pub halt: bool,
}

/// A cluster to be created, with its environment.
#[derive(Clone, Copy, Debug)]
pub struct NewClusterRecord<'a> {
    pub id: &'a str,
    pub project: ProjectId,
    pub environment: EnvironmentId,
    pub name: &'a str,
    pub description: &'a str,
    pub owner: &'a str,
    pub provider: &'a str,
    pub expires: Option<Timestamp>,
    /// Settings of the environment.
    pub settings: &'a [(&'a str, serde_json::Value)],
}

/// Limits of a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterQuota {
    pub clusters_max: Option<u32>,
    pub nodes_max: Option<u32>,
}

/// A new intent, and the operation that carries it out.
#[derive(Clone, Copy, Debug)]
pub struct NewClusterOperation<'a> {
    pub kind: &'a str,
    pub author: &'a str,
    pub request: &'a serde_json::Value,
    pub plan: &'a serde_json::Value,
    pub intent: NewIntent<'a>,
    /// A version without the removed resources follows.
    pub is_transition: bool,
    pub quota: ClusterQuota,
}

/// A new intent, and what its cluster's record has of it.
#[derive(Clone, Copy, Debug)]
pub struct NewIntent<'a> {
    pub content: &'a [u8],
    pub template: &'a str,
    pub template_revision: i64,
    pub size: u32,
    pub services: &'a [String],
}

/// Part of a cluster in the transaction that stores a version of its environment.
#[derive(Clone, Copy, Debug)]
pub enum ClusterWrite<'a> {
    /// Creates a cluster and its environment, which gets the version.
    Create { cluster: &'a NewClusterRecord<'a>, operation: &'a NewClusterOperation<'a> },
    /// Begins an operation on the intent with a revision.
    Begin {
        cluster: &'a str,
        /// Revision of the cluster that the caller expects.
        expected: Option<i64>,
        /// Revision of the intent that the new one was computed from.
        base: i64,
        operation: &'a NewClusterOperation<'a>,
        /// Ends the open operation with this number first.
        ends: Option<(i64, OperationEnd<'a>)>,
    },
    /// Changes the intent of the open operation, which continues.
    Amend { cluster: &'a str, operation: i64, base: i64, intent: NewIntent<'a>, author: &'a str },
    /// Follows the transition of an open operation.
    Settle { cluster: &'a str, operation: i64, version: VersionNumber },
}
