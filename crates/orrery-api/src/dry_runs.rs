//! Dry runs and their results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::string_enum::string_enums;
use crate::{Actions, AttributeChange, SourceLocation, Time, Transitioning, counts};

string_enums! {
    /// Predicted status of a resource.
    pub enum DryRunStatus {
        Added = "added",
        Deleted = "deleted",
        Modified = "modified",
        Unmodified = "unmodified",
        AgentDown = "agent_down",
        Undefined = "undefined",
        SkippedForUndefined = "skipped_for_undefined",
        Failed = "failed",
    }

    /// Reason of a predicted change.
    pub enum DryRunCause {
        New = "new",
        Model = "changed in the model",
        Drift = "drift",
        Failed = "failed before",
        Dependency = "dependency",
        /// A command without a condition.
        EveryDeploy = "runs at every deploy",
        /// A command with a condition.
        Condition = "its condition holds",
        Existing = "exists already",
        Edited = "edited since it was deployed",
    }

    /// Risk of a predicted change.
    pub enum DryRunRisk {
        Low = "low",
        Medium = "medium",
        High = "high",
    }
}

impl counts::CountedValue for DryRunStatus {
    fn name(self) -> &'static str {
        self.as_str()
    }
}

/// A dry run of a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DryRun {
    pub id: Uuid,
    pub version: u32,
    pub created: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Time>,
    /// Number of resources of the version.
    pub total: u64,
    /// Number of pending results.
    pub todo: u64,
    /// Number of results by status.
    #[serde(serialize_with = "counts::serialize")]
    pub by_status: BTreeMap<DryRunStatus, u64>,
    /// `yes` while in progress.
    pub transitioning: Transitioning,
    /// Current activity.
    pub transitioning_message: String,
    /// Available actions.
    #[serde(default)]
    pub actions: Actions,
}

/// Predicted change of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DryRunChange {
    /// Resource id.
    pub resource: String,
    pub status: DryRunStatus,
    /// Differing attributes. For `failed`, the attribute `handler` contains the reason.
    pub changes: Vec<AttributeChange>,
    /// Reason of the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<DryRunCause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<DryRunRisk>,
    /// Source location of its definition in the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceLocation>,
}
