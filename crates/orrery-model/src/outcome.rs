//! Outcome of a handler run: status, change, facts and log lines.

use serde::{Deserialize, Serialize};

use crate::{Change, Timestamp};

/// The handler's verdict on one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutcomeStatus {
    Deployed,
    Failed,
    /// Not ready; to be retried later.
    Skipped,
    /// A requirement is not deployed.
    SkippedForDependency,
    /// No handler exists, or it could not be started.
    Unavailable,
    /// A report-only resource differs from its desired state.
    NonCompliant,
}

impl OutcomeStatus {
    pub const ALL: [OutcomeStatus; 6] = [
        OutcomeStatus::Deployed,
        OutcomeStatus::Failed,
        OutcomeStatus::Skipped,
        OutcomeStatus::SkippedForDependency,
        OutcomeStatus::Unavailable,
        OutcomeStatus::NonCompliant,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            OutcomeStatus::Deployed => "deployed",
            OutcomeStatus::Failed => "failed",
            OutcomeStatus::Skipped => "skipped",
            OutcomeStatus::SkippedForDependency => "skipped_for_dependency",
            OutcomeStatus::Unavailable => "unavailable",
            OutcomeStatus::NonCompliant => "non_compliant",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Warning,
    Error,
    Critical,
}

impl LogLevel {
    pub const ALL: [LogLevel; 5] =
        [LogLevel::Debug, LogLevel::Info, LogLevel::Warning, LogLevel::Error, LogLevel::Critical];

    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warning => "warning",
            LogLevel::Error => "error",
            LogLevel::Critical => "critical",
        }
    }
}

/// One line of a handler's log: a message and the values that it names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    pub at: Timestamp,
    pub level: LogLevel,
    pub message: String,
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub values: serde_json::Map<String, serde_json::Value>,
}

/// A value that a handler read from its resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    pub name: String,
    pub value: String,
    pub expires: bool,
}

/// Complete result of a handler run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub status: OutcomeStatus,
    pub change: Change,
    pub facts: Vec<Fact>,
    pub log: Vec<LogLine>,
}
