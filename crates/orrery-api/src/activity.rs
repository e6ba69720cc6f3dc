//! What is going on in an environment: running handlers, waits by reason, next runs; its latest runs;
//! changes of resources since a position.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ReasonKind, ResourceSummary, Time};

/// Work of an environment: what runs, what waits and why, what comes next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Activity {
    /// Number of running handlers.
    pub running: u64,
    /// Number of changes that start as soon as there is a free worker.
    pub ready: u64,
    /// Number of resources that wait for something else.
    pub waiting: u64,
    /// Running handlers, longest first, at most 20.
    pub running_resources: Vec<RunningHandler>,
    /// Reasons of the waits, most frequent first, at most 20.
    pub waits: Vec<WaitReason>,
    /// Number of resources that wait for a reason that is not listed.
    pub other_waits: u64,
    /// Next automatic runs, soonest first, at most 10.
    pub timers: Vec<NextRuns>,
    /// False if too many resources failed to look at the timers of all.
    pub timers_complete: bool,
    /// Agents with work, those with the most first, at most 50.
    pub agents: Vec<AgentQueue>,
    /// Number of further agents with work.
    pub other_agents: u64,
    /// Time of the statuses; cached in large environments.
    pub counted_at: Time,
}

/// A running handler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunningHandler {
    /// Resource id.
    pub id: String,
    /// Version of the run.
    pub version: u32,
    pub since: Time,
}

/// Resources that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitReason {
    pub kind: ReasonKind,
    /// Sentence.
    pub text: String,
    /// Number of resources.
    pub count: u64,
    /// Agent that the reason is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Id of the resource that is the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
}

/// Automatic runs at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NextRuns {
    pub at: Time,
    /// Number of resources.
    pub count: u64,
    /// Id of one of them.
    pub resource: String,
}

/// Work of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentQueue {
    pub agent: String,
    pub running: u64,
    pub ready: u64,
    pub waiting: u64,
    pub paused: bool,
}

/// Resources that changed after a position in the change feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceChanges {
    /// The resources as they are now; empty if `reset`.
    pub items: Vec<ResourceSummary>,
    /// True if too much has changed to list it: read everything again.
    pub reset: bool,
    /// Position for the next request.
    pub position: i64,
}
