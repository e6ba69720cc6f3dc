//! Answers to questions that span nouns: reasons, facets, search, health of environments.

use std::collections::BTreeMap;

use orrery_model::Status;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::string_enum::string_enums;
use crate::{Actions, Environment, Operation, SourceLocation, Time, counts};

string_enums! {
    /// Kind of a reason.
    pub enum ReasonKind {
        /// The environment is halted.
        Halted = "halted",
        /// The server cannot process the environment.
        EngineError = "engine_error",
        /// The agent is paused.
        AgentPaused = "agent_paused",
        /// A value is unknown.
        Undefined = "undefined",
        /// Its handler is running.
        Running = "running",
        /// It waits for its turn.
        Queued = "queued",
        /// It waits for its requirements.
        WaitingOn = "waiting_on",
        /// It failed too often, and runs again only on request.
        Parked = "parked",
        /// It begun something that must not be repeated, and the outcome is lost.
        UnknownEffect = "unknown_effect",
        /// It runs again at a time.
        Timer = "timer",
        /// It matches the model.
        Settled = "settled",
        /// No version has it.
        NotManaged = "not_managed",
        /// It differs, and no run is planned.
        NothingPlanned = "nothing_planned",
    }

    /// Kind of a search hit.
    pub enum SearchKind {
        Resource = "resource",
        Agent = "agent",
        Version = "version",
    }
}

/// Reasons for the status of a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceWhy {
    /// Resource id.
    pub id: String,
    pub status: Status,
    /// Location in the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceLocation>,
    /// Message of the last run, if it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Remedy that the handler suggests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Requirements that are not deployed, from the nearest to the root cause.
    pub chain: Vec<BlockingStep>,
    /// True if the chain is longer than listed.
    pub further: bool,
    /// Reasons and next steps, strongest first.
    pub reasons: Vec<StatusReason>,
}

/// A requirement that is not deployed, of the resource or of the previous step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BlockingStep {
    /// Resource id.
    pub id: String,
    pub status: Status,
    /// Location in the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceLocation>,
    /// Message of its last run. Only the root cause has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Number of failed attempts since the last success.
    pub attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_at: Option<Time>,
    /// Time of the next automatic run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_at: Option<Time>,
    /// Number of other requirements on this level that are not deployed.
    pub others: u32,
}

/// A reason or a next step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatusReason {
    pub kind: ReasonKind,
    /// Sentence.
    pub text: String,
    /// Agent that the reason is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Time of the next run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// Actions that end it, which the caller may take.
    pub actions: Actions,
}

/// Numbers of resources by properties, under a filter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceFacets {
    /// Number of resources that match the filter.
    pub total: u64,
    /// Time of the count; cached in large environments.
    pub counted_at: Time,
    /// By status. Each facet applies the filter without its own condition.
    #[serde(serialize_with = "counts::serialize")]
    pub status: BTreeMap<Status, u64>,
    /// By type, largest first.
    pub r#type: Vec<Facet>,
    /// By agent, largest first.
    pub agent: Vec<Facet>,
    /// By named set, largest first.
    pub set: Vec<Facet>,
    /// Numbers of values beyond `limit`: of `type`, `agent` and `set`.
    pub left_out: BTreeMap<String, u64>,
}

/// Number of resources with a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Facet {
    pub value: String,
    pub count: u64,
}

/// Results of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchResult {
    /// Hits, the environment of the request first.
    pub items: Vec<SearchHit>,
    /// False if large environments were searched in part.
    pub complete: bool,
}

/// A search hit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchHit {
    pub kind: SearchKind,
    /// Resource id, name of the agent, or number of the version.
    pub id: String,
    /// Text to show.
    pub name: String,
    pub environment: Uuid,
    /// Project and environment: `shop/live`.
    pub environment_name: String,
    /// Of a resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Of an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// An environment with its health.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentSummary {
    pub environment: Environment,
    /// Number of resources, without orphans.
    pub total: u64,
    /// Number of resources by status.
    #[serde(serialize_with = "counts::serialize")]
    pub by_status: BTreeMap<Status, u64>,
    /// Time of the count; cached in large environments.
    pub counted_at: Time,
    /// Version that the engine has processed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_version: Option<u32>,
    /// Newest stored version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_version: Option<u32>,
    /// Latest unfinished operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}
