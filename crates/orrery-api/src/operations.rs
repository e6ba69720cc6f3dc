//! Operations: work that was asked of an environment, how far it is, and what it did.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Actions, ResourceAction, Transitioning};

/// Something that was begun and takes its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    pub id: uuid::Uuid,
    /// What was asked for: `deploy`, `repair`, `dry_run`, `facts`, `clear`, `delete`.
    pub kind: String,
    /// What exactly was asked for. A deploy with `verify` looks at everything, as a repair does.
    pub request: serde_json::Value,
    /// When it was asked for.
    pub created: String,
    /// When the engine of the environment took it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// What it came to: for deploys and repairs, counts of the resources that they mean. Before that, agents it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<serde_json::Value>,
    /// How far a deploy or a repair is that is under way. Absent during its first second, and when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<OperationProgress>,
    /// Whether it is still under way, or went wrong.
    pub transitioning: Transitioning,
    /// What it is doing, or what went wrong.
    pub transitioning_message: String,
    /// What can be done with it now.
    #[serde(default)]
    pub actions: Actions,
}

/// Progress of a deploy or a repair, about once a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationProgress {
    /// Resources that it runs; those that it has nothing to do for are not among them.
    pub total: u64,
    /// Of those, how many have had their run.
    pub done: u64,
    /// Some of the resources whose handlers run now, the longest running first.
    pub running: Vec<String>,
}

/// What a deploy or a repair did so far, counted exactly. Each resource counts once, however often it was run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationReport {
    /// Resources that it means.
    pub total: u64,
    /// Those by the status that they have now.
    pub by_status: BTreeMap<String, u64>,
    /// Resources that it created, and that are deployed.
    pub created: u64,
    /// Resources that it changed otherwise, and that are deployed.
    pub updated: u64,
    /// Resources that it removed as wanted.
    pub purged: u64,
}

/// One run of a handler that changed something or did not end well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationResult {
    /// The id of the resource.
    pub resource: String,
    #[serde(flatten)]
    pub run: ResourceAction,
    /// Why it did not end well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What can be done about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Of a skipped resource: the requirements that are not deployed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
}

/// Effects that must not be repeated, were begun, and whose results were lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnknownEffects {
    pub items: Vec<UnknownEffect>,
}

/// An effect of which nobody knows whether it happened. Its resource is not run again until somebody decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnknownEffect {
    /// The id of the resource.
    pub resource: String,
    /// The version that it was begun for.
    pub version: u32,
    /// When it was begun.
    pub started: String,
    /// What was decided, until the engine has acted on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<SettleChoice>,
}

/// What an effect counts as of which nobody knows whether it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettleChoice {
    /// It happened: its resource counts as deployed.
    Done,
    /// It did not, or may happen again: it is run again.
    Again,
}

/// A decision about an effect of which nobody knows whether it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleRequest {
    /// The id of the resource.
    pub resource: String,
    pub choice: SettleChoice,
}
