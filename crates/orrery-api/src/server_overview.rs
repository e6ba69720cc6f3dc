//! State of an installation: its processes, the engines of its environments, maintenance.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Time;

/// State of the installation, as the answering server sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerOverview {
    /// Version of the answering program.
    pub version: String,
    /// Isolation of code of tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// Use of the machine of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_machine: Option<String>,
    /// Time of the answer: the age of the other times is relative to it.
    pub now: Time,
    /// Processes that run engines. A process without an environment is not listed.
    pub processes: Vec<EngineProcess>,
    /// Processes that remote agents connect to.
    pub gateways: Vec<GatewayProcess>,
    /// Engines of the environments that the caller may view, those with a problem first.
    pub engines: Vec<EnvironmentEngine>,
    /// Number of further engines.
    pub other_engines: u64,
    /// Maintenance tasks of the answering process.
    pub maintenance: Vec<MaintenanceTaskStatus>,
}

/// A process that holds the lease of at least one environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EngineProcess {
    pub host: String,
    pub pid: u32,
    /// Command of the process: `orrery server`.
    pub command: String,
    /// Number of its environments.
    pub environments: u64,
    /// True for the process that answers.
    pub answering: bool,
}

/// A process that remote agents connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GatewayProcess {
    pub id: uuid::Uuid,
    /// Address for agents.
    pub address: String,
    pub started: Time,
    /// Time of the latest heartbeat.
    pub seen: Time,
}

/// Engine of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentEngine {
    pub environment: uuid::Uuid,
    pub name: String,
    pub project_name: String,
    pub halted: bool,
    /// Reason why it does not run; empty for none.
    pub problem: String,
    /// Lease of the process that runs the engine. Absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<EnvironmentLease>,
    /// Version that the engine has accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_version: Option<u32>,
    /// Newest released version. The engine lags if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_version: Option<u32>,
    /// Number of unfinished operations.
    pub open_operations: u64,
    /// Request time of the oldest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_operation: Option<Time>,
}

/// Exclusive right of one process to run an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentLease {
    pub host: String,
    pub pid: u32,
    /// Number of its grant.
    pub epoch: u64,
    pub since: Time,
    /// Absent if no other process can take it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
}

/// Status of a periodic task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MaintenanceTaskStatus {
    pub name: String,
    pub period_seconds: u64,
    /// `pending`, `ok`, or why it failed.
    pub result: String,
    /// Start of the latest run in this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<Time>,
    /// Duration of the latest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Time>,
    pub runs: u64,
    pub failures: u64,
}
