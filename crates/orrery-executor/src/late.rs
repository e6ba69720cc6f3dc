//! A handler whose code cannot run yet, because what it needs could not be installed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orrery_handlers::{Context, Handler, HandlerError};
use orrery_host::code::CodeSet;
use orrery_host::handling::{HandlerHosts, HostedHandler};
use orrery_model::{
    Attributes, Change, Fact, LogLevel, Outcome, OutcomeStatus, ResourceId, VersionNumber,
};

use crate::hosting::Hosting;

/// An installation that failed is not tried for each resource.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Tries to get ready when it is needed, but not too often; until then its resources are unavailable, with the reason.
pub(crate) struct LateHandler {
    hosting: Hosting,
    set: CodeSet,
    state: Mutex<State>,
}

struct State {
    ready: Option<(HostedHandler, Arc<HandlerHosts>)>,
    reason: String,
    tried: Instant,
    closed: bool,
}

impl fmt::Debug for LateHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateHandler").field("hosting", &self.hosting).finish_non_exhaustive()
    }
}

impl LateHandler {
    pub(crate) fn new(hosting: Hosting, set: CodeSet, reason: String) -> Self {
        tracing::warn!(reason, handlers = ?set.handlers, "handlers cannot run yet");
        let state = State { ready: None, reason, tried: Instant::now(), closed: false };
        LateHandler { hosting, set, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        if let Some((_, hosts)) = &state.ready {
            hosts.close();
        }
    }

    pub(crate) fn begin_version(&self, version: VersionNumber) {
        if let Some((_, hosts)) = &self.state().ready {
            hosts.begin_version(version.0);
        }
    }

    /// Whoever comes while somebody tries waits for what comes of it.
    fn handler(&self) -> Result<HostedHandler, String> {
        let mut state = self.state();
        if let Some((handler, _)) = &state.ready {
            return Ok(handler.clone());
        }
        if state.closed || state.tried.elapsed() < TRY_AGAIN_AFTER {
            return Err(state.reason.clone());
        }
        match self.hosting.clone().hosts(&self.set) {
            Ok(hosts) => {
                let hosts = Arc::new(hosts);
                let handler = HostedHandler::new(Arc::clone(&hosts));
                state.ready = Some((handler.clone(), hosts));
                Ok(handler)
            }
            Err(error) => {
                state.reason = error.to_string();
                state.tried = Instant::now();
                Err(state.reason.clone())
            }
        }
    }
}

impl Handler for LateHandler {
    fn resolves_references(&self) -> bool {
        true
    }

    fn reads_back(&self) -> bool {
        true
    }

    fn run(&self, attributes: &Attributes, context: &mut Context<'_>) -> Outcome {
        match self.handler() {
            Ok(handler) => handler.run(attributes, context),
            Err(reason) => {
                context.log(LogLevel::Error, reason, []);
                context.finish(OutcomeStatus::Unavailable, Change::default())
            }
        }
    }

    fn facts(
        &self,
        attributes: &Attributes,
        context: &mut Context<'_>,
    ) -> Result<Vec<Fact>, HandlerError> {
        self.handler().map_err(HandlerError::failed)?.facts(attributes, context)
    }

    fn watched_path<'i>(&self, _: &'i ResourceId) -> Option<&'i str> {
        None
    }
}
