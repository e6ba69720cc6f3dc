//! Runner of handlers whose code comes from the server.
//!
//! An agent without one runs the handlers that are part of it. The trait keeps what the code needs
//! (interpreters, virtualenvs, processes) out of this crate.

use std::sync::Arc;

use orrery_handlers::Handler;
use orrery_model::VersionNumber;

use crate::protocol::CodeReference;

/// Runner of Python handlers.
pub trait CodeRunner: Send + Sync {
    /// Returns the handler of some code, for a version. Its runs fetch and install the code if
    /// necessary, through the server of the run.
    fn handler(&self, code: &CodeReference, version: VersionNumber) -> Arc<dyn Handler>;

    /// Ends all processes.
    fn close(&self);
}
