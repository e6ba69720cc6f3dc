//! Errors of plug-ins.

use crate::task::{TaskReport, TaskStatus};

/// Failure of a plug-in. The message names the thing and has no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PluginError {
    pub message: String,
    pub hint: Option<String>,
    /// The end of the action was not seen: it may have happened.
    pub is_unclear: bool,
    pub stdout: String,
    pub stderr: String,
}

impl PluginError {
    pub fn new(message: impl Into<String>) -> Self {
        PluginError {
            message: message.into(),
            hint: None,
            is_unclear: false,
            stdout: String::new(),
            stderr: String::new(),
        }
    }

    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        PluginError { hint: Some(hint.into()), ..self }
    }

    /// Marks the outcome as unknown.
    #[must_use]
    pub fn unclear(self) -> Self {
        PluginError { is_unclear: true, ..self }
    }

    /// Error of an operation of this machine's system.
    pub fn io(doing: impl std::fmt::Display, error: &std::io::Error) -> Self {
        PluginError::new(format!("cannot {doing}: {error}"))
    }
}

impl From<orrery_handlers::TargetError> for PluginError {
    fn from(error: orrery_handlers::TargetError) -> Self {
        let hint = error.hint().map(str::to_owned);
        let is_unclear = error.cause.is_unclear();
        PluginError { hint, is_unclear, ..PluginError::new(error.to_string()) }
    }
}

impl From<PluginError> for TaskReport {
    fn from(error: PluginError) -> Self {
        TaskReport {
            status: if error.is_unclear { TaskStatus::Unclear } else { TaskStatus::Failed },
            message: error.message,
            hint: error.hint,
            stdout: error.stdout,
            stderr: error.stderr,
            ..TaskReport::default()
        }
    }
}
