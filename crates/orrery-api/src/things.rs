//! Smaller things: parameters, facts, notifications, discovered resources, dry runs, files, metrics and events.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{Actions, AttributeChange, SourcePlace, Transitioning};

/// A named value of an environment, or a fact of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Parameter {
    pub name: String,
    pub value: String,
    /// The resource that it is a fact of; absent for a parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Who told: `fact`, `plugin`, `user`, `report`.
    pub source: String,
    /// When it was last told.
    pub updated: String,
    /// Whether it has to be told again from time to time.
    pub expires: bool,
    /// Whether that time has passed.
    pub expired: bool,
}

/// A value to be set.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ParameterUpdate {
    pub value: String,
    /// Who tells: `user` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Compile again if the value is new or another one. If it was unknown, that happens anyway.
    #[serde(default)]
    pub recompile: bool,
    /// Only for facts: whether it has to be told again from time to time. It has, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<bool>,
    /// What whoever sets it says about it. What was said before stays, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

/// What a new value did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParameterSet {
    #[serde(flatten)]
    pub parameter: Parameter,
    /// Whether it is new, or another value than before.
    pub changed: bool,
    /// Unknowns that are known now.
    pub resolved: usize,
    /// The compile that was asked for because of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile: Option<Uuid>,
}

/// Something that a compile could not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unknown {
    pub name: String,
    /// The resource whose fact it is; absent for a parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// What would tell: `fact`, `plugin`, `user`.
    pub source: String,
    /// Whether it is known by now.
    pub resolved: bool,
}

/// Something that people should know of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Notification {
    pub id: Uuid,
    pub created: String,
    pub title: String,
    pub message: String,
    /// `message`, `info`, `success`, `warning`, `error`
    pub severity: String,
    /// The path of what it is about; or empty.
    pub uri: String,
    /// The compile that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile: Option<Uuid>,
    pub read: bool,
    pub cleared: bool,
}

/// What to change of a notification; what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NotificationUpdate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared: Option<bool>,
}

/// Something that was found to exist, wanted or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiscoveredResource {
    /// The id that it has, or would have, as a resource.
    pub id: String,
    pub attributes: Map<String, Value>,
    pub discovered_at: String,
    /// The resource whose handler found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery_resource: Option<String>,
    /// The path of the resource, if a version wants it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<String>,
}

/// Things that were found.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiscoveredUpload {
    #[schema(max_items = 10000)]
    pub resources: Vec<NewDiscovered>,
}

/// One thing that was found.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDiscovered {
    /// The id that it has, or would have, as a resource.
    pub id: String,
    pub attributes: Map<String, Value>,
    /// The resource whose handler found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery_resource: Option<String>,
}

/// What a version would change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DryRun {
    pub id: Uuid,
    pub version: u32,
    pub created: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// Resources of the version.
    pub total: u64,
    /// Resources whose result is not there yet.
    pub todo: u64,
    /// Results of each kind.
    pub by_status: BTreeMap<String, u64>,
    /// Whether it is still under way.
    pub transitioning: Transitioning,
    /// What it is doing.
    pub transitioning_message: String,
    /// What can be done with it now.
    #[serde(default)]
    pub actions: Actions,
}

/// What would become of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DryRunChange {
    /// The id of the resource.
    pub resource: String,
    /// `added`, `deleted`, `modified`, `unmodified`, `agent_down`, `undefined`, `skipped_for_undefined`, `failed`
    pub status: String,
    /// Attributes that differ. For `failed`, the attribute `handler` has the reason.
    pub changes: Vec<AttributeChange>,
    /// Why it would be changed: `new`, `changed in the model`, `drift`, `failed before`, `dependency`, and for commands
    /// `runs at every deploy` or `its condition holds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// How much can go wrong: `low`, `medium` or `high`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// Where the model defines it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourcePlace>,
}

/// Which files are to be looked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileHashes {
    /// SHA-1 of each, in hexadecimal digits.
    #[schema(max_items = 10000)]
    pub hashes: Vec<String>,
}

/// A measurement over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MetricSeries {
    pub name: String,
    /// For each kind of thing that was counted (a status, or empty) one value for each span of time; null where nothing
    /// was measured.
    pub values: BTreeMap<String, Vec<Option<f64>>>,
}

/// Measurements over time, in equal spans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Metrics {
    /// The end of each span.
    pub timestamps: Vec<String>,
    pub metrics: Vec<MetricSeries>,
}

/// A hint that something changed: where to look, never what it is now. Sent as the data of a server-sent event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeEvent {
    /// Absent for what belongs to no environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Uuid>,
    /// What kind of thing: `environment`, `setting`, `version`, `resources`, `request` (an operation), `dry_run`, `agent`,
    /// `remote_agent`, `invitation`, `compile`, `parameter` (also facts), `secret`, `notification`, `discovered`, `project`, `user`
    /// or `token`.
    pub kind: String,
    /// Which one; its form depends on the kind, and `*` stands for many.
    pub subject: String,
    pub at: String,
}
