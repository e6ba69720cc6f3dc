//! Dry runs and their results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{Actions, AttributeChange, SourceLocation, Transitioning};

/// A dry run of a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DryRun {
    pub id: Uuid,
    pub version: u32,
    pub created: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// Number of resources of the version.
    pub total: u64,
    /// Number of pending results.
    pub todo: u64,
    /// Number of results by status.
    pub by_status: BTreeMap<String, u64>,
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
    /// `added`, `deleted`, `modified`, `unmodified`, `agent_down`, `undefined`, `skipped_for_undefined`, `failed`
    pub status: String,
    /// Differing attributes. For `failed`, the attribute `handler` contains the reason.
    pub changes: Vec<AttributeChange>,
    /// Reason of the change: `new`, `changed in the model`, `drift`, `failed before`, `dependency`,
    /// and for commands `runs at every deploy` or `its condition holds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Risk: `low`, `medium` or `high`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// Source location of its definition in the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceLocation>,
}
