//! Operations: requests to the engine of an environment, their progress and their results.

use std::collections::BTreeMap;

use orrery_model::Status;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::string_enum::string_enums;
use crate::{Actions, ResourceAction, Time, Transitioning, counts};

string_enums! {
    /// Kind of an operation.
    pub enum OperationKind {
        Deploy = "deploy",
        Repair = "repair",
        DryRun = "dry_run",
        Facts = "facts",
        /// Files changed, and their resources are verified.
        Drift = "drift",
        Clear = "clear",
        Delete = "delete",
        Cancel = "cancel",
        /// Cancels another operation.
        CancelOperation = "cancel_operation",
        /// A request of a newer program.
        Unknown = "unknown",
    }
}

/// A request to the engine that runs in the background.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    pub id: uuid::Uuid,
    /// Id of the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<uuid::Uuid>,
    pub kind: OperationKind,
    /// Parameters of the request. A deploy with `verify` checks all resources, as a repair does.
    pub request: serde_json::Value,
    /// Caller, as in the audit log: `user:ada`. Absent if the server requested it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Time of the request.
    pub created: Time,
    /// Time at which the engine accepted the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Time>,
    /// End time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Time>,
    /// Result: for deploys and repairs, counts of the selected resources. Before the end, the
    /// agents that the operation waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<serde_json::Value>,
    /// Progress of a running deploy or repair. Absent during the first second and after the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<OperationProgress>,
    /// `yes` while in progress, `error` after a failure.
    pub transitioning: Transitioning,
    /// Current activity, or the error.
    pub transitioning_message: String,
    /// Available actions.
    #[serde(default)]
    pub actions: Actions,
}

/// Progress of a deploy or a repair, updated about once a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationProgress {
    /// Number of resources to run. Resources without pending work are not counted.
    pub total: u64,
    /// Number of those that have run.
    pub done: u64,
    /// Some of the running resources, the longest running first.
    pub running: Vec<String>,
    /// Ended runs by outcome.
    #[serde(default)]
    pub by_outcome: OutcomeCounts,
}

/// Number of ended runs by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutcomeCounts {
    pub deployed: u64,
    /// Of those, the runs that changed something.
    pub changed: u64,
    pub failed: u64,
    pub skipped: u64,
    pub unavailable: u64,
    pub non_compliant: u64,
    pub cancelled: u64,
}

/// Exact counts of the effects of a deploy or a repair so far. Each resource counts once,
/// regardless of its number of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationReport {
    /// Number of selected resources.
    pub total: u64,
    /// Selected resources by their current status.
    #[serde(serialize_with = "counts::serialize")]
    pub by_status: BTreeMap<Status, u64>,
    /// Resources that it created and that are deployed.
    pub created: u64,
    /// Resources that it changed in another way and that are deployed.
    pub updated: u64,
    /// Resources that it removed as the version requires.
    pub purged: u64,
}

/// One run of a handler that changed something or failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationResult {
    /// Resource id.
    pub resource: String,
    #[serde(flatten)]
    pub run: ResourceAction,
    /// Reason of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// For a skipped resource, the requirements that are not deployed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
}

/// Lists unknown effects: non-repeatable, begun, and with a lost outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnknownEffects {
    pub items: Vec<UnknownEffect>,
}

/// A non-repeatable effect with a lost outcome. Its resource does not run until an operator
/// decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnknownEffect {
    /// Resource id.
    pub resource: String,
    /// Version of the run.
    pub version: u32,
    /// Start time.
    pub started: Time,
    /// Decision of the operator, until the engine has applied it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<SettleChoice>,
}

/// Decision about an unknown effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettleChoice {
    /// The effect happened: the resource counts as deployed.
    Done,
    /// The effect did not happen, or may be repeated: the resource runs again.
    Again,
}

/// Request to settle an unknown effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleRequest {
    /// Resource id.
    pub resource: String,
    pub choice: SettleChoice,
}
