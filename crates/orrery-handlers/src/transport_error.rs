//! Errors of transports, which say if a command may have run.

use serde::{Deserialize, Serialize};

/// Failure of a transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{destination}: {reason}")]
pub struct TransportError {
    pub kind: TransportErrorKind,
    /// `user@host:port`.
    pub destination: String,
    pub reason: String,
    /// Remedy for people.
    pub help: Option<String>,
}

/// Kind of a failure, as far as callers distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportErrorKind {
    /// No connection: not reached, host key or authentication refused, or waiting to reconnect.
    /// Nothing was started.
    Unreachable,
    /// The machine refuses to start the command. Nothing was started.
    Refused,
    /// The time limit passed, or the work was cancelled, before the command was started.
    NotStarted(InterruptCause),
    /// The time limit passed, or the work was cancelled, after the command was started.
    Interrupted(InterruptCause),
    /// The connection was lost while the command ran.
    Lost,
    /// The file was not written.
    Upload,
}

/// Reason for an early end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptCause {
    TimedOut,
    Cancelled,
}

impl TransportError {
    pub fn new(
        kind: TransportErrorKind,
        destination: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        let (destination, reason) = (destination.into(), reason.into());
        TransportError { kind, destination, reason, help: None }
    }

    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Returns true if the command may have run: its effect is then unknown.
    pub fn may_have_run(&self) -> bool {
        match self.kind {
            TransportErrorKind::Interrupted(_)
            | TransportErrorKind::Lost
            | TransportErrorKind::Upload => true,
            TransportErrorKind::Unreachable
            | TransportErrorKind::Refused
            | TransportErrorKind::NotStarted(_) => false,
        }
    }

    /// Returns true if the machine cannot be used now, for whatever command.
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self.kind,
            TransportErrorKind::Unreachable
                | TransportErrorKind::Refused
                | TransportErrorKind::Lost
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_started_command_may_have_run() {
        let error = |kind| TransportError::new(kind, "jo@web1:22", "reason");
        for (kind, may_have_run) in [
            (TransportErrorKind::Unreachable, false),
            (TransportErrorKind::Refused, false),
            (TransportErrorKind::NotStarted(InterruptCause::TimedOut), false),
            (TransportErrorKind::Interrupted(InterruptCause::Cancelled), true),
            (TransportErrorKind::Lost, true),
            (TransportErrorKind::Upload, true),
        ] {
            assert_eq!(error(kind).may_have_run(), may_have_run, "{kind:?}");
        }
    }
}
