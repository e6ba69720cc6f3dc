//! Handlers of one version: native ones, and those of its code set.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orrery_base::thread::spawn_named;
use orrery_compile_service::Trigger;
use orrery_executor::{
    BackgroundSetup, HostConfig, HostSetupError, HostedHandlers, ParameterHooks, StoredFiles,
    StoredParameters,
};
use orrery_handler_host::FileContents;
use orrery_handlers::Registry;
use orrery_model::CompileId;
use orrery_pyenv::VirtualEnvs;
use orrery_sandbox::Confinement;
use orrery_store::{CompileRequest, EnvironmentRecord, Lease, VersionInfo};

use super::ProcessOptions;
use super::own_machine::Rights;
use crate::cluster::ClusterRuntime;
use crate::isolation::Isolation;
use crate::state::ServerState;
use crate::versions::named_files;

/// Time that runs of an engine wait for the installation of packages: they hold up their agent.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Time that dry runs wait for it: they hold up nothing.
pub(super) const DRY_RUN_PATIENCE: Duration = Duration::from_secs(300);
/// Time for runs of replaced handlers to end.
const CLOSE_AFTER: Duration = Duration::from_secs(120);
/// Unused virtualenvs are removed after this time.
const VIRTUALENV_RETENTION: Duration = Duration::from_secs(30 * 86_400);
/// Subdirectory of cached file contents.
const FILES: &str = "files";
/// Subdirectory of the Python bytecode cache.
const BYTECODE: &str = "bytecode";
/// Disk quota of tenant code, in bytes.
const DISK_MAX: u64 = 4 << 30;
/// Retention of cached file contents.
const CONTENT_RETENTION: Duration = Duration::from_secs(7 * 86_400);

pub(super) struct Handlers {
    /// Hash of the code set.
    code: Option<String>,
    /// Rights of the code on this machine.
    rights: Rights,
    hosted: Option<Hosted>,
    /// For environments of clusters.
    clusters: Option<Arc<ClusterRuntime>>,
}

/// Handlers of a code set.
struct Hosted {
    handlers: HostedHandlers,
    files: Arc<StoredFiles>,
    entities: BTreeSet<String>,
    /// Set when an installation ended after runs found them unavailable.
    changed: Arc<AtomicBool>,
}

/// Returns the hash of a version's code set, if it has one.
fn code_hash(version: &VersionInfo) -> Option<&str> {
    version.info.get("code")?.as_str()
}

/// Directory of virtualenvs. An environment has its own where code of its packages builds them. A
/// virtualenv built in a sandbox is never used outside of one.
fn virtualenvs(inputs: &HandlerInputs<'_>, own: &Path) -> PathBuf {
    match (&inputs.options.isolation, inputs.rights) {
        (Isolation::Shared, _) | (_, Rights::Server) => inputs.options.data.join("python"),
        _ => own.join("virtualenvs"),
    }
}

/// Confinement of handler code: it can read its code set, write to the project directory, and act
/// on this machine with the rights of the environment.
fn confinement(
    inputs: &HandlerInputs<'_>,
    own: &Path,
    code: &str,
) -> Result<Option<Confinement>, String> {
    if inputs.rights == Rights::Server {
        return Ok(None);
    }
    let confinement = inputs.options.isolation.handler_confinement(inputs.environment.key);
    let confinement = confinement.map_err(|error| error.to_string())?;
    let Some(mut confinement) = confinement else { return Ok(None) };
    if inputs.rights == Rights::Sandbox {
        confinement.policy.manage_machine();
    }
    let bytecode = own.join(BYTECODE);
    for path in [&own.join("handlers"), &bytecode] {
        let created = confinement.make_directory(path);
        created.map_err(|error| format!("cannot create {}: {error}", path.display()))?;
    }
    // The path must exist before the sandbox starts.
    let files = own.join(FILES);
    std::fs::create_dir_all(&files)
        .map_err(|error| format!("cannot create {}: {error}", files.display()))?;
    let mut confinement = confinement.env("PYTHONPYCACHEPREFIX", &bytecode);
    confinement.policy.limits.disk = Some(DISK_MAX);
    Ok(Some(confinement.writable(bytecode).readable(inputs.options.data.join("code").join(code))))
}

/// Inputs for loading handlers.
pub(super) struct HandlerInputs<'a> {
    pub(super) app: &'a ServerState,
    pub(super) options: &'a ProcessOptions,
    pub(super) environment: &'a EnvironmentRecord,
    /// `None` for dry runs, which persist nothing.
    pub(super) lease: Option<Lease>,
    /// Rights of the environment on this machine.
    pub(super) rights: Rights,
    /// Time that runs wait for the installation of the code's packages.
    pub(super) patience: Duration,
    /// Called when an installation of handlers ended after runs found them unavailable.
    pub(super) on_change: Arc<dyn Fn() + Send + Sync>,
    pub(super) clusters: &'a Arc<ClusterRuntime>,
}

/// Requests compiles for values that handlers set, as for values set through the API.
struct CompileRequester {
    app: ServerState,
}

impl ParameterHooks for CompileRequester {
    fn compile_for(&self, is_fact: bool) -> Option<(CompileId, CompileRequest)> {
        Some(if is_fact { Trigger::Fact } else { Trigger::Parameter }.to_compile())
    }

    fn on_committed(&self) {
        self.app.wake_up();
    }
}

impl Handlers {
    /// Switches to a newer version with the same code set: processes and their state stay, except
    /// state bound to older versions.
    pub(super) fn begin_version(&self, version: &VersionInfo) {
        if let Some(Hosted { handlers, files, .. }) = &self.hosted {
            files.set_names(named_files(&version.info));
            handlers.begin_version(version.number);
        }
    }

    pub(super) fn load(
        inputs: &HandlerInputs<'_>,
        version: &VersionInfo,
    ) -> Result<Self, HostSetupError> {
        let HandlerInputs { app, options, environment, lease, rights, .. } = *inputs;
        let clusters = environment.cluster.as_ref().map(|_| Arc::clone(inputs.clusters));
        let Some(code) = code_hash(version) else {
            return Ok(Handlers { code: None, rights, hosted: None, clusters });
        };
        let store = app.store().clone();
        let data = &options.data;
        let set = crate::code_sets::open(&store, data, code)?;
        let own = data.join("environments").join(environment.uuid.to_string());
        let (confinement, refused) = match confinement(inputs, &own, code) {
            Ok(confinement) => (confinement, None),
            Err(reason) => (None, Some(reason)),
        };
        let clock = crate::services::system_time;
        let hooks = Arc::new(CompileRequester { app: app.clone() });
        let files = Arc::new(StoredFiles::new(store.clone(), environment.key, clock));
        files.set_names(named_files(&version.info));
        let contents = FileContents::cached(own.join(FILES), Arc::clone(&files) as _);
        contents.remove_unused(CONTENT_RETENTION, orrery_base::clock::wall());
        let parameters =
            StoredParameters { store, environment: environment.key, lease, clock, hooks };
        let environments = VirtualEnvs::new(virtualenvs(inputs, &own), Vec::new());
        let _ = environments.remove_unused(VIRTUALENV_RETENTION, orrery_base::clock::wall());
        let hosting = HostConfig {
            environment: environment.uuid.to_string(),
            files: contents,
            project: own.join("handlers"),
            environments,
            memory_max: options.host_memory,
            confinement,
            refused,
            parameters: Arc::new(parameters),
        };
        let changed = Arc::new(AtomicBool::new(false));
        let (flag, on_change) = (Arc::clone(&changed), Arc::clone(&inputs.on_change));
        let setup = BackgroundSetup {
            patience: inputs.patience,
            on_change: Box::new(move || {
                flag.store(true, Ordering::Release);
                on_change();
            }),
        };
        let handlers = hosting.start_in_background(&set, setup)?;
        let entities = set.handlers.iter().cloned().collect();
        let hosted = Hosted { handlers, files, entities, changed };
        Ok(Handlers { code: Some(code.to_owned()), rights, hosted: Some(hosted), clusters })
    }

    pub(super) fn are_for(&self, version: &VersionInfo, rights: Rights) -> bool {
        self.rights == rights && self.code.as_deref() == code_hash(version)
    }

    pub(super) fn registry(&self) -> Arc<Registry> {
        match &self.hosted {
            Some(hosted) => Arc::clone(&hosted.handlers.registry),
            None => {
                let mut registry = Registry::native();
                if let Some(clusters) = &self.clusters {
                    clusters.register(&mut registry, self.rights == Rights::Server);
                }
                Arc::new(registry)
            }
        }
    }

    /// Takes the entities whose handlers became ready, or are unavailable for another reason, after
    /// runs found them unavailable.
    pub(super) fn take_changed(&self) -> Option<&BTreeSet<String>> {
        let hosted = self.hosted.as_ref()?;
        hosted.changed.swap(false, Ordering::AcqRel).then_some(&hosted.entities)
    }

    /// Stops all handler hosts.
    pub(super) fn close(&self) {
        if let Some(hosted) = &self.hosted {
            hosted.handlers.close();
        }
    }

    /// Stops the handler hosts after a delay for current runs.
    pub(super) fn close_when_idle(self) {
        if self.hosted.is_none() {
            return;
        }
        let close = move || {
            std::thread::sleep(CLOSE_AFTER);
            self.close();
        };
        let thread = spawn_named("closer", close);
        if let Err(error) = thread {
            tracing::warn!(%error, "former handlers run until the server stops");
        }
    }
}
