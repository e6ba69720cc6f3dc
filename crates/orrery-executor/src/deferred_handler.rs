//! Handler of code with a failed installation, and its retries.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_handler_host::{HandlerHosts, HostedHandler};
use orrery_handlers::{Context, Handler, HandlerError, PortableCode};
use orrery_host::code_store::CodeSet;
use orrery_model::{
    Attributes, Change, Fact, LogLevel, Outcome, OutcomeStatus, ResourceId, VersionNumber,
};

use crate::host_config::HostConfig;

/// Pause between two installation attempts, so not each resource retries.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Retries the installation on demand, at most once per pause. Until it succeeds, its resources are
/// unavailable with the reason.
pub(crate) struct DeferredHandler {
    config: HostConfig,
    set: CodeSet,
    /// Other machines do not need the installation here.
    code: Arc<dyn PortableCode>,
    state: Mutex<State>,
}

struct State {
    ready: Option<(HostedHandler, Arc<HandlerHosts>)>,
    reason: String,
    attempted_at: Instant,
    closed: bool,
}

impl fmt::Debug for DeferredHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferredHandler").field("config", &self.config).finish_non_exhaustive()
    }
}

impl DeferredHandler {
    pub(crate) fn new(config: HostConfig, set: CodeSet, reason: String) -> Self {
        tracing::warn!(reason, handlers = ?set.handlers, "handlers cannot run yet");
        let state = State { ready: None, reason, attempted_at: monotonic(), closed: false };
        let code = config.portable_code(&set);
        DeferredHandler { config, set, code, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
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

    /// Concurrent callers wait for the installation in progress.
    fn handler(&self) -> Result<HostedHandler, String> {
        let mut state = self.state();
        if let Some((handler, _)) = &state.ready {
            return Ok(handler.clone());
        }
        if state.closed || state.attempted_at.elapsed() < RETRY_AFTER {
            return Err(state.reason.clone());
        }
        match self.config.clone().build_hosts(&self.set) {
            Ok(hosts) => {
                let hosts = Arc::new(hosts);
                let handler = HostedHandler::new(Arc::clone(&hosts));
                state.ready = Some((handler.clone(), hosts));
                Ok(handler)
            }
            Err(error) => {
                state.reason = error.to_string();
                state.attempted_at = monotonic();
                Err(state.reason.clone())
            }
        }
    }
}

impl Handler for DeferredHandler {
    fn resolves_late_bound_values(&self) -> bool {
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

    fn portable_code(&self) -> Option<&dyn PortableCode> {
        Some(&*self.code)
    }

    fn watched_path<'i>(&self, _: &'i ResourceId) -> Option<&'i str> {
        None
    }
}
