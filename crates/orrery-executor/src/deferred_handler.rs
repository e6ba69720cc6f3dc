//! Handler of code whose virtualenv a thread of its own prepares, and retries after a failure.
//!
//! Runs wait a short time for the first installation. After it, and after a failure, the resources
//! of the code are unavailable with the reason, so that others of their agents go on. The owner
//! learns when the handler is ready or the reason is another one, and deploys them then.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::error_chain::error_chain;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_handler_host::{HandlerHosts, HostedHandler};
use orrery_handlers::clock::now;
use orrery_handlers::{Context, Handler, HandlerError, PortableCode};
use orrery_host::code_store::CodeSet;
use orrery_model::{
    Attributes, Change, Fact, LogLevel, Outcome, OutcomeStatus, ResourceId, Timestamp,
    VersionNumber,
};

use crate::host_config::{HostConfig, HostSetupError};

/// Pause after the first failed installation; it doubles with each further one.
const RETRY_FIRST: Duration = Duration::from_secs(30);
/// Longest pause between two installations.
const RETRY_MAX: Duration = Duration::from_secs(5 * 60);
/// Poll interval for cancellation while waiting.
const POLL: Duration = Duration::from_millis(100);

/// Preparation of handlers in the background.
pub struct BackgroundSetup {
    /// Time from the start of the first installation that runs wait for its end.
    pub patience: Duration,
    /// Called after an installation, if it succeeded or failed after runs were refused, from any
    /// thread.
    pub on_change: Box<dyn Fn() + Send + Sync>,
}

/// Prepares handlers on a thread. Until they are ready, their resources are unavailable with the
/// reason.
pub(crate) struct DeferredHandler {
    shared: Arc<Shared>,
    /// Other machines do not need the installation here.
    code: Arc<dyn PortableCode>,
}

struct Shared {
    config: HostConfig,
    set: CodeSet,
    setup: BackgroundSetup,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    preparation: Preparation,
    /// Newest version that was announced.
    version: Option<VersionNumber>,
    /// A run ended without a handler since the last installation ended.
    refused: bool,
}

enum Preparation {
    /// First installation, with its start for runs and for people.
    Installing(Instant, Timestamp),
    Ready(HostedHandler, Arc<HandlerHosts>),
    /// The last installation failed. `None`: no other follows.
    Failed(String, Option<Timestamp>),
    Closed,
}

/// Reason why a run has no handler.
enum NotReady {
    Ended(HandlerError),
    Unavailable { reason: String, hint: Option<String> },
}

impl fmt::Debug for DeferredHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferredHandler")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl DeferredHandler {
    /// Starts the preparation.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(
        config: HostConfig,
        set: CodeSet,
        setup: BackgroundSetup,
    ) -> Result<Self, HostSetupError> {
        let code = config.portable_code(&set);
        let refused = config.refused.clone();
        let preparation = match refused {
            Some(reason) => Preparation::Failed(reason, None),
            None => Preparation::Installing(monotonic(), now()),
        };
        let is_refused = matches!(preparation, Preparation::Failed(..));
        let state = State { preparation, version: None, refused: false };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { config, set, setup, state, changed });
        if !is_refused {
            let preparing = Arc::clone(&shared);
            spawn_named("python-install", move || preparing.prepare())
                .map_err(HostSetupError::Thread)?;
        }
        Ok(DeferredHandler { shared, code })
    }

    /// Ends the processes. An installation in progress ends by itself, without effect.
    pub(crate) fn close(&self) {
        let former = std::mem::replace(&mut self.shared.lock().preparation, Preparation::Closed);
        self.shared.changed.notify_all();
        if let Preparation::Ready(_, hosts) = former {
            hosts.close();
        }
    }

    pub(crate) fn begin_version(&self, version: VersionNumber) {
        let mut state = self.shared.lock();
        state.version = Some(version);
        let Preparation::Ready(_, hosts) = &state.preparation else { return };
        let hosts = Arc::clone(hosts);
        drop(state);
        hosts.begin_version(version.0);
    }

    /// Returns the handler. Waits for the first installation, within the patience.
    fn ready(&self, context: &Context<'_>) -> Result<HostedHandler, NotReady> {
        let mut state = self.shared.lock();
        loop {
            let (reason, hint) = match &state.preparation {
                Preparation::Ready(handler, _) => return Ok(handler.clone()),
                Preparation::Closed => return Err(NotReady::Ended(HandlerError::Cancelled)),
                Preparation::Installing(began, _)
                    if began.elapsed() < self.shared.setup.patience =>
                {
                    let waited = self.shared.changed.wait_timeout(state, POLL);
                    state = waited.ignore_poison().0;
                    context.check_cancelled().map_err(NotReady::Ended)?;
                    continue;
                }
                Preparation::Installing(_, since) => (
                    format!(
                        "the Python packages of the handler are being installed on the server since {since}"
                    ),
                    Some("the resource is deployed as soon as they are installed".to_owned()),
                ),
                Preparation::Failed(reason, retry_at) => (reason.clone(), retry_at.map(retry_hint)),
            };
            state.refused = true;
            return Err(NotReady::Unavailable { reason, hint });
        }
    }
}

fn retry_hint(at: Timestamp) -> String {
    format!(
        "correct the requirements of the project, or make the packages available to the server; the next attempt is at {at}"
    )
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Installs until it succeeds or the handler is closed.
    fn prepare(&self) {
        let mut failures = 0;
        loop {
            let build = AssertUnwindSafe(|| self.config.clone().build_hosts(&self.set));
            let reason = match std::panic::catch_unwind(build) {
                Ok(Ok(hosts)) => return self.finish(hosts),
                Ok(Err(error)) => error_chain(&error),
                Err(_) => "internal error; the log of the server has the panic message".to_owned(),
            };
            let pause = self.pause(failures);
            failures += 1;
            tracing::warn!(
                reason,
                retry_after = ?pause,
                handlers = ?self.set.handlers,
                "handlers cannot run yet"
            );
            if !self.wait(reason, pause) {
                return;
            }
        }
    }

    /// Waits before the next installation. False if the handler was closed meanwhile.
    fn wait(&self, reason: String, pause: Duration) -> bool {
        let until = monotonic() + pause;
        let mut state = self.lock();
        if matches!(state.preparation, Preparation::Closed) {
            return false;
        }
        state.preparation = Preparation::Failed(reason, Some(now() + pause));
        let refused = std::mem::take(&mut state.refused);
        drop(state);
        self.changed.notify_all();
        if refused {
            (self.setup.on_change)();
        }
        let mut state = self.lock();
        loop {
            let left = until.saturating_duration_since(monotonic());
            if matches!(state.preparation, Preparation::Closed) {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            state = self.changed.wait_timeout(state, left).ignore_poison().0;
        }
    }

    /// Pause after a number of earlier failures, up to a tenth shorter for each environment.
    fn pause(&self, failures: u32) -> Duration {
        let full = RETRY_FIRST.saturating_mul(1 << failures.min(16)).min(RETRY_MAX);
        let mut hash = DefaultHasher::new();
        (&self.config.environment, failures).hash(&mut hash);
        let share = u32::try_from(hash.finish() % 1024).unwrap_or(0);
        full.saturating_sub(full / 10 * share / 1024)
    }

    fn finish(&self, hosts: HandlerHosts) {
        let hosts = Arc::new(hosts);
        let mut state = self.lock();
        if matches!(state.preparation, Preparation::Closed) {
            drop(state);
            return hosts.close();
        }
        let handler = HostedHandler::new(Arc::clone(&hosts));
        if let Some(version) = state.version {
            hosts.begin_version(version.0);
        }
        state.preparation = Preparation::Ready(handler, hosts);
        let refused = state.refused;
        drop(state);
        self.changed.notify_all();
        if refused {
            tracing::info!(handlers = ?self.set.handlers, "handlers can run now");
            (self.setup.on_change)();
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
        match self.ready(context) {
            Ok(handler) => handler.run(attributes, context),
            Err(NotReady::Ended(error)) => context.finish_with_error(&error),
            Err(NotReady::Unavailable { reason, hint }) => {
                context.log(LogLevel::Error, reason, hint.map(|hint| ("hint", hint.into())));
                context.finish(OutcomeStatus::Unavailable, Change::default())
            }
        }
    }

    fn facts(
        &self,
        attributes: &Attributes,
        context: &mut Context<'_>,
    ) -> Result<Vec<Fact>, HandlerError> {
        match self.ready(context) {
            Ok(handler) => handler.facts(attributes, context),
            Err(NotReady::Ended(error)) => Err(error),
            Err(NotReady::Unavailable { reason, hint }) => {
                Err(HandlerError::Failed { message: reason, hint: hint.map(Into::into) })
            }
        }
    }

    fn portable_code(&self) -> Option<&dyn PortableCode> {
        Some(&*self.code)
    }

    fn watched_path<'i>(&self, _: &'i ResourceId) -> Option<&'i str> {
        None
    }
}
