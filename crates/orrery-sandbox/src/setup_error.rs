//! Errors of the setup of a sandbox, with the step that failed.

use std::io;

/// Failed step of the setup of a sandbox.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {cause}")]
pub(crate) struct SetupError {
    pub(crate) what: String,
    pub(crate) cause: io::Error,
}

/// Adds the failed step to system errors.
pub(crate) trait Step<T> {
    fn step(self, what: impl Into<String>) -> Result<T, SetupError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, what: impl Into<String>) -> Result<T, SetupError> {
        self.map_err(|cause| SetupError { what: what.into(), cause: cause.into() })
    }
}
