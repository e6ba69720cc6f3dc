//! Handlers of a deploy: the native ones, and those in module code, which run in hosts.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orrery_base::byte_size;
use orrery_executor::{
    HostConfig, HostSetupError, HostedHandlers, NoParameterHooks, StoredParameters,
};
use orrery_handler_host::{FileContents, NoParameters, Parameters};
use orrery_handlers::Registry;
use orrery_handlers::clock::now;
use orrery_host::code_store::{CodeSet, CodeStore};
use orrery_project::{STATE_DIRECTORY, absolute, environment_id};
use orrery_pyenv::VirtualEnvs;
use orrery_store::Store;

use crate::cli::deploy::RunOptions;
use crate::state::StateOptions;

use super::LocalStore;

/// Retention of code that no version needs.
const CODE_KEPT: Duration = Duration::from_secs(7 * 86_400);
/// Retention of virtualenvs, which take longer to create.
const ENVIRONMENTS_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// Handlers in hosts mostly wait, so more of them run at once.
const WORKERS_HOSTED: u16 = 64;
const WORKERS_NATIVE: u16 = 16;

/// Handlers of one command.
pub(super) struct Handlers {
    pub(super) registry: Arc<Registry>,
    /// Name of the stored code set of the hosts.
    pub(super) code: Option<String>,
    hosted: Option<HostedHandlers>,
}

/// Project, state and options of a local run.
pub(super) struct LocalPaths<'a> {
    pub(super) project: &'a Path,
    pub(super) state: &'a StateOptions,
    pub(super) run: &'a RunOptions,
    /// `None` for commands that store nothing.
    pub(super) opened: Option<&'a LocalStore>,
}

impl Handlers {
    /// Handlers for resources that were exported with this code. Stores the code, so that later
    /// runs do not need the project.
    pub(super) fn for_code(
        code: Option<CodeSet>,
        paths: &LocalPaths<'_>,
    ) -> Result<Self, HostSetupError> {
        let kept = paths.code_store();
        let Some(set) = code else {
            if paths.opened.is_some() {
                kept.set_current(None)?;
            }
            return Ok(Handlers::native());
        };
        if paths.opened.is_none() {
            return paths.host(None, &set);
        }
        let (hash, set) = kept.put(&set)?;
        kept.set_current(Some(&hash))?;
        paths.host(Some(hash), &set)
    }

    /// Handlers of the last deploy.
    pub(super) fn from_last_deploy(paths: &LocalPaths<'_>) -> Result<Self, HostSetupError> {
        let kept = paths.code_store();
        match kept.current()? {
            None => Ok(Handlers::native()),
            Some(hash) => {
                let set = kept.open(&hash)?;
                paths.host(Some(hash), &set)
            }
        }
    }

    pub(super) fn native() -> Self {
        Handlers { registry: Arc::new(Registry::native()), code: None, hosted: None }
    }

    /// Default number of workers.
    pub(super) fn workers(&self) -> u16 {
        if self.hosted.is_some() { WORKERS_HOSTED } else { WORKERS_NATIVE }
    }

    /// Ends all host processes.
    pub(super) fn close(&self) {
        if let Some(hosted) = &self.hosted {
            hosted.close();
        }
    }
}

impl LocalPaths<'_> {
    fn code_store(&self) -> CodeStore {
        CodeStore::new(self.state.directory(self.project).join("code"))
    }

    /// Entities with handlers in the code of the last deploy.
    pub(super) fn stored_handler_entities(&self) -> Result<Vec<String>, HostSetupError> {
        let kept = self.code_store();
        Ok(match kept.current()? {
            None => Vec::new(),
            Some(hash) => kept.open(&hash)?.handlers,
        })
    }

    fn environments(&self) -> VirtualEnvs {
        VirtualEnvs::new(self.state.directory(self.project).join("environments"), Vec::new())
    }

    fn host(&self, code: Option<String>, set: &CodeSet) -> Result<Handlers, HostSetupError> {
        let project = absolute(self.project);
        let parameters: Arc<dyn Parameters> = match self.opened {
            Some(LocalStore { store, environment, lease }) => {
                let store: Store = store.clone();
                let (environment, lease) = (*environment, Some(*lease));
                let hooks = Arc::new(NoParameterHooks);
                Arc::new(StoredParameters { store, environment, lease, clock: now, hooks })
            }
            None => Arc::new(NoParameters),
        };
        let memory = byte_size::from_mib(self.run.host_memory());
        let hosting = HostConfig {
            environment: environment_id(&project),
            files: FileContents::complete(project.join(STATE_DIRECTORY).join("files")),
            project,
            environments: self.environments(),
            memory_max: (memory > 0).then_some(memory),
            confinement: None,
            refused: None,
            parameters,
        };
        let hosted = hosting.start(set)?;
        Ok(Handlers { registry: Arc::clone(&hosted.registry), code, hosted: Some(hosted) })
    }

    /// Removes unused code sets and virtualenvs. Failures are ignored.
    pub(super) fn remove_unused(&self, current: Option<&str>) {
        let Some(opened) = self.opened else { return };
        let Ok(versions) = opened.store.versions().list(opened.environment) else { return };
        let named = versions.iter().filter_map(|version| version.info.get("code")?.as_str());
        let needed: BTreeSet<String> = named.chain(current).map(str::to_owned).collect();
        let now = orrery_base::clock::wall();
        let code = self.code_store().remove_unused(&needed, CODE_KEPT, now);
        let environments = self.environments().remove_unused(ENVIRONMENTS_KEPT, now);
        tracing::debug!(?code, ?environments, "removed unused code and virtualenvs");
    }
}
