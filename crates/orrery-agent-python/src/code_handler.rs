//! Handler of one set of code: prepared by its first run, and used by all.
//!
//! The first run fetches the code. A thread of its own then creates the virtualenv, which may take
//! long: a run that is cancelled meanwhile ends, and later ones find the result. After a failure the
//! resources of the code are unavailable, with the reason; a run after a pause tries again.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use orrery_agent::protocol::CodeReference;
use orrery_base::clock::monotonic;
use orrery_base::error_chain::error_chain;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_handler_host::{
    FileContents, HandlerCallbacks, HandlerHosts, HostLimits, HostedHandler, NoParameters,
};
use orrery_handlers::target::is_orrery_variable;
use orrery_handlers::{Context, Handler, HandlerError};
use orrery_host::code_store::CodeSet;
use orrery_host::handshake::{HostRole, Init};
use orrery_host::host_command_with_sdk;
use orrery_host::sdk::{self, SdkError};
use orrery_model::{
    Attributes, Change, Fact, LogLevel, Outcome, OutcomeStatus, ResourceId, VersionNumber,
};
use orrery_pyenv::VirtualEnvError;
use orrery_pyenv::interpreters::{OLDEST, PythonError};

use crate::directories::Directories;
use crate::fetch::{FetchError, fetch_set};

/// Pause between two attempts, so that not each resource retries.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Poll interval for cancellation while waiting.
const POLL: Duration = Duration::from_millis(50);

/// Reason why the processes of a set cannot run.
#[derive(Clone, Debug)]
struct Unavailable {
    reason: String,
    hint: String,
}

enum Preparation {
    Idle,
    /// A run fetches the code.
    Fetching,
    /// A thread creates the virtualenv.
    Installing,
    Ready(HostedHandler, Arc<HandlerHosts>),
    Failed(Unavailable, Instant),
    Closed,
}

struct Shared {
    code: CodeReference,
    directories: Directories,
    limits: HostLimits,
    preparation: Mutex<Preparation>,
    changed: Condvar,
}

/// Reason why a run has no handler.
enum NotReady {
    Ended(HandlerError),
    Unavailable(Unavailable),
}

/// Handler of the entities of one set of code.
pub(crate) struct CodeHandler {
    shared: Arc<Shared>,
    /// Newest version that was announced.
    version: AtomicU32,
}

impl fmt::Debug for CodeHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeHandler").field("code", &self.shared.code).finish_non_exhaustive()
    }
}

impl CodeHandler {
    pub(crate) fn new(code: CodeReference, directories: Directories, limits: HostLimits) -> Self {
        let shared = Shared {
            code,
            directories,
            limits,
            preparation: Mutex::new(Preparation::Idle),
            changed: Condvar::new(),
        };
        CodeHandler { shared: Arc::new(shared), version: AtomicU32::new(0) }
    }

    /// Announces a version; a newer one closes what belongs to older ones.
    pub(crate) fn begin_version(&self, version: VersionNumber) {
        if self.version.fetch_max(version.0, Ordering::AcqRel) >= version.0 {
            return;
        }
        let hosts = match &*self.shared.lock() {
            Preparation::Ready(_, hosts) => Arc::clone(hosts),
            _ => return,
        };
        hosts.begin_version(version.0);
    }

    /// Ends the processes. Runs that begin later are unavailable.
    pub(crate) fn close(&self) {
        let former = std::mem::replace(&mut *self.shared.lock(), Preparation::Closed);
        self.shared.changed.notify_all();
        self.shared.directories.mark_unused(&self.shared.code.manifest);
        if let Preparation::Ready(_, hosts) = former {
            hosts.close();
        }
    }

    /// Returns the handler, once its code is here and can run.
    fn ready(&self, context: &Context<'_>) -> Result<HostedHandler, NotReady> {
        let mut preparation = self.shared.lock();
        loop {
            match &*preparation {
                Preparation::Ready(handler, _) => return Ok(handler.clone()),
                Preparation::Closed => return Err(NotReady::Ended(HandlerError::Cancelled)),
                Preparation::Failed(unavailable, at) if at.elapsed() < RETRY_AFTER => {
                    return Err(NotReady::Unavailable(unavailable.clone()));
                }
                Preparation::Idle | Preparation::Failed(..) => {
                    *preparation = Preparation::Fetching;
                    drop(preparation);
                    self.fetch(context)?;
                    preparation = self.shared.lock();
                }
                Preparation::Fetching | Preparation::Installing => {
                    let waited = self.shared.changed.wait_timeout(preparation, POLL);
                    preparation = waited.ignore_poison().0;
                }
            }
            context.check_cancelled().map_err(NotReady::Ended)?;
        }
    }

    /// Fetches the code, and starts the installation.
    fn fetch(&self, context: &Context<'_>) -> Result<(), NotReady> {
        let Some(server) = context.server() else {
            let error = HandlerError::failed("the run has no server to fetch its code from");
            self.shared.set(Preparation::Idle);
            return Err(NotReady::Ended(error));
        };
        let set = match fetch_set(server, &self.shared.directories, &self.shared.code.manifest) {
            Ok(set) => set,
            Err(FetchError::Run(error)) => {
                self.shared.set(Preparation::Idle);
                return Err(NotReady::Ended(error));
            }
            Err(FetchError::Code(reason)) => {
                let hint = "look for the cause in the log of the agent; the code is fetched again in a minute";
                let unavailable = Unavailable { reason, hint: hint.to_owned() };
                self.shared.fail(unavailable.clone());
                return Err(NotReady::Unavailable(unavailable));
            }
        };
        self.shared.set(Preparation::Installing);
        let shared = Arc::clone(&self.shared);
        let started = spawn_named("python-install", move || shared.install(&set));
        if let Err(error) = started {
            self.shared.fail(Unavailable {
                reason: format!("no thread could be started: {error}"),
                hint: "reduce the load of the machine".to_owned(),
            });
        }
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Preparation> {
        self.preparation.lock().ignore_poison()
    }

    /// Enters a state, unless closed meanwhile.
    fn set(&self, next: Preparation) {
        let mut preparation = self.lock();
        if matches!(&*preparation, Preparation::Closed) {
            drop(preparation);
            if let Preparation::Ready(_, hosts) = next {
                hosts.close();
            }
            return;
        }
        *preparation = next;
        drop(preparation);
        self.changed.notify_all();
    }

    fn fail(&self, unavailable: Unavailable) {
        tracing::warn!(reason = unavailable.reason, "Python handlers cannot run");
        self.set(Preparation::Failed(unavailable, monotonic()));
    }

    /// Creates the virtualenv, and prepares the processes.
    fn install(&self, set: &CodeSet) {
        match self.build_hosts(set) {
            Ok(hosts) => {
                let hosts = Arc::new(hosts);
                let handler = HostedHandler::new(Arc::clone(&hosts));
                self.directories.mark_used(&self.code.manifest, set);
                self.set(Preparation::Ready(handler, hosts));
            }
            Err(unavailable) => self.fail(unavailable),
        }
        self.directories.remove_unused();
    }

    fn build_hosts(&self, set: &CodeSet) -> Result<HandlerHosts, Unavailable> {
        let prepared = set.prepare_interpreter(&self.directories.virtualenvs());
        let prepared = prepared.map_err(|error| python_unavailable(&error))?;
        let environment = Some(self.code.environment.clone());
        let own = self.directories.environment(&self.code.environment);
        let (project, files) = (own.join("handlers"), own.join("files"));
        for directory in [&project, &files] {
            create_directory(directory)?;
        }
        let services = HandlerCallbacks {
            files: FileContents::complete(files.clone()),
            environment: environment.clone(),
            // All callbacks go to the server of their run.
            parameters: Arc::new(NoParameters),
        };
        let init = Init {
            role: HostRole::Handlers,
            data: project.join("data"),
            project,
            environment,
            files,
            fetch: true,
            tests: false,
            path: set.path.clone(),
            config: serde_json::Map::new(),
            modules: prepared.modules,
        };
        let sdk = sdk::directory_in(&self.directories.sdk());
        let sdk = sdk.map_err(|error: SdkError| Unavailable {
            reason: error_chain(&error),
            hint: "free some space on the machine".to_owned(),
        })?;
        let mut command = host_command_with_sdk(&prepared.program, "python", &sdk);
        // As for commands of native handlers.
        let variables = std::env::vars_os().map(|(name, _)| name);
        command.hidden_variables = variables.filter(|name| is_orrery_variable(name)).collect();
        Ok(HandlerHosts::new(command, init, services, self.limits))
    }
}

fn create_directory(path: &Path) -> Result<(), Unavailable> {
    std::fs::create_dir_all(path).map_err(|error| Unavailable {
        reason: format!("cannot create {}: {error}", path.display()),
        hint: "free some space, or correct the permissions on the machine".to_owned(),
    })
}

/// Reason and remedy of a machine whose Python cannot run the code.
fn python_unavailable(error: &VirtualEnvError) -> Unavailable {
    let hint = match error {
        VirtualEnvError::Python(PythonError::NotFound | PythonError::TooOld { .. }) => {
            format!("install Python {OLDEST} or newer on the machine of the agent")
        }
        VirtualEnvError::Python(PythonError::BrokenEnvironment(path)) => {
            format!("remove {} on the machine of the agent", path.display())
        }
        VirtualEnvError::Command { what, .. } if what.starts_with("creating") => {
            "install Python's module venv on the machine of the agent (python3-venv on Debian)".to_owned()
        }
        VirtualEnvError::Command { .. } => {
            "make the packages available to the machine of the agent: its index is that of the project, or that of the machine's pip configuration".to_owned()
        }
        VirtualEnvError::Io { .. } => "free some space on the machine of the agent".to_owned(),
    };
    let reason = match error {
        VirtualEnvError::Python(PythonError::NotFound) => {
            "the machine of the agent has no Python, which the handler needs".to_owned()
        }
        error => format!("Python on the machine of the agent: {}", error_chain(error)),
    };
    Unavailable { reason, hint }
}

impl Handler for CodeHandler {
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
            Err(NotReady::Unavailable(Unavailable { reason, hint })) => {
                context.log(LogLevel::Error, reason, [("hint", hint.into())]);
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
            Err(NotReady::Unavailable(Unavailable { reason, hint })) => {
                Err(HandlerError::failed_with_hint(reason, hint))
            }
        }
    }

    fn watched_path<'i>(&self, _: &'i ResourceId) -> Option<&'i str> {
        None
    }
}
