//! Resources, their history and their logs.

use std::collections::BTreeMap;

use orrery_model::Attributes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{Actions, SourcePlace, Transitioning};

/// One line of a list of resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceSummary {
    /// `std::File[web1,path=/etc/motd]`
    pub id: String,
    /// The entity: `std::File`.
    pub r#type: String,
    pub agent: String,
    /// The value that identifies it among those of its type and agent.
    pub value: String,
    /// The one word for its state: `available`, `deploying`, `deployed`, `failed`, `skipped`, `unavailable`,
    /// `non_compliant`, `undefined`, `skipped_for_undefined`, `orphaned`.
    pub status: String,
    /// Absent for the shared set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// When its handler last ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_at: Option<String>,
    /// The verdict of its handler's last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_outcome: Option<String>,
    /// Failed runs since the last good one.
    pub attempts: u32,
    /// Whether it was given up after too many attempts.
    pub parked: bool,
    /// `pending` if the newest version removes it and it is not known to be gone; `done` if it was removed. Absent if nothing
    /// removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<String>,
    /// Where the model defines it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourcePlace>,
    /// Whether its handler runs now, or the last run failed.
    pub transitioning: Transitioning,
}

/// The state of a resource, on its independent axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceAxes {
    /// `compliant`, `has_update`, `non_compliant`, `undefined`; absent for an orphan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compliance: Option<String>,
    /// How its handler's last run ended: `new`, `successful`, `failed`, `skipped`.
    pub last_handler_run: String,
    /// `not_blocked`, `blocked`, `temporarily_blocked`
    pub blocked: String,
    /// Whether its handler runs now.
    pub is_deploying: bool,
    /// Whether the last run left it as wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_compliant: Option<bool>,
    /// When the last run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_at: Option<String>,
    /// When the last run that ended well began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<String>,
    /// Failed runs since the last good one.
    pub attempts: u32,
    /// Whether it was given up after too many attempts.
    pub parked: bool,
}

/// All that is known of a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceDetails {
    #[serde(flatten)]
    pub summary: ResourceSummary,
    /// What the newest version that has it wants.
    #[schema(value_type = Map<String, Value>)]
    pub attributes: Attributes,
    /// What has to be handled before it, with their states.
    pub requires: Vec<RelatedResource>,
    pub state: ResourceAxes,
    /// When it is tried again by itself, if it is not as wanted. A time that has passed: as soon as its turn comes. Absent if
    /// that is not planned: nothing is to be done, it is parked, or no interval is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_at: Option<String>,
    /// What is happening to it, or what went wrong.
    pub transitioning_message: String,
    /// What can be done with it now.
    pub actions: Actions,
}

/// A resource that another one requires, or that requires it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RelatedResource {
    pub id: String,
    pub status: String,
}

/// How many resources there are of each kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceCounts {
    /// Resources, orphans not among them.
    pub total: u64,
    /// Resources of each status.
    pub by_status: BTreeMap<String, u64>,
    /// When they were counted; in large environments that is a while ago.
    pub counted_at: String,
    /// Resources that are parked: they failed too often, and are not tried again until they are asked for.
    #[serde(default)]
    pub parked: u64,
    /// Of the deployed resources, those that the newest version removes: they are gone.
    #[serde(default)]
    pub removed: u64,
    /// The oldest last run of all resources that have run: since then each of those was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_since: Option<String>,
}

/// What was wanted of a resource from one version on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceHistoryEntry {
    /// The first version that wanted this.
    pub version: u32,
    /// When that was made.
    pub at: String,
    /// The digest of the intent.
    pub hash: String,
    pub attributes: Map<String, Value>,
    pub requires: Vec<String>,
}

/// One line of the log of a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceLogLine {
    /// What was done: `deploy`, `dry_run`, `get_facts`, `other`.
    pub action: String,
    /// A number that all lines of one action share.
    pub action_id: i64,
    /// The version for which it was done.
    pub version: u32,
    pub at: String,
    /// `debug`, `info`, `warning`, `error`, `critical`
    pub level: String,
    pub message: String,
    /// Values that the message names.
    pub values: Map<String, Value>,
}

/// One action on a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceAction {
    /// A later action has a greater number.
    pub id: i64,
    /// What was done: `deploy`, `dry_run`, `get_facts`, `other`.
    pub action: String,
    pub version: u32,
    pub started: String,
    /// Absent if it was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// The handler's verdict; absent if it was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// `nochange`, `created`, `updated`, `purged`
    pub change: String,
    /// Attributes that were changed.
    pub changes: Vec<AttributeChange>,
    /// Lines that the handler wrote.
    pub log_lines: usize,
}

/// An attribute with what it is and what it should be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AttributeChange {
    pub name: String,
    pub current: Value,
    pub desired: Value,
}

/// Which resources a deploy or a repair is for. Everything that is given must hold; nothing given means all.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeployRequest {
    /// Those of these agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// These.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Those that a list of resources with the same filter shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<ResourceSelection>,
}

/// A filter for resources.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceSelection {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The entity: `std::File`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Part of the identifying value; with `*` or `?`, a pattern for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Any of these statuses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<String>,
    /// Those of one named set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
}

/// Where the resources of an agent are applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentPlacement {
    /// `local`: on the machine that runs the server's handlers. `remote`: on that of a remote agent. `ssh`: it has an address, which only
    /// handlers in Python reach. `revoked`: its remote agent was revoked. `unknown`: nobody knows its machine.
    pub kind: String,
    /// Whether files, commands and whatever else acts on a machine can be applied. All else needs none.
    pub has_machine: bool,
    /// Why, in a sentence.
    pub reason: String,
    /// What helps if there is no machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// A question where agents would be, if a version declared this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementRequest {
    /// Names of agents.
    #[schema(max_items = 100_000)]
    pub agents: Vec<String>,
    /// Patterns of agents that are the deploying machine, as `local_agents` of a version.
    #[serde(default)]
    pub local_agents: Vec<String>,
    /// Addresses of agents that the version declares.
    #[serde(default)]
    pub addresses: BTreeMap<String, String>,
}

/// Where agents would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacementAnswer {
    /// By agent.
    pub placements: BTreeMap<String, AgentPlacement>,
}

/// An agent: one queue of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Agent {
    pub name: String,
    /// `paused`; `unavailable` if resources of it need a machine and there is none; `up` if an engine works for the environment and can
    /// reach the agent's machine; else `down`.
    pub status: String,
    /// Where its resources are applied.
    pub placement: AgentPlacement,
    /// The remote agent that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_agent: Option<Uuid>,
    pub paused: bool,
    /// Only while the environment is halted: whether it goes on when that ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpause_on_resume: Option<bool>,
    /// Its resources, orphans not among them.
    pub resources: u64,
    /// Its resources of each status.
    pub by_status: BTreeMap<String, u64>,
    /// Whether it is on its way to a pause, or cannot be reached.
    #[serde(default)]
    pub transitioning: Transitioning,
    /// What it is doing, or what is wrong.
    #[serde(default)]
    pub transitioning_message: String,
    /// What can be done with it now.
    pub actions: Actions,
}
