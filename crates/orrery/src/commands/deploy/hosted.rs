//! All handlers of a deploy: those of this program, and those in the code of modules, which run in hosts.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orrery_executor::{Hosted, Hosting, HostingError, NoConsequences, StoredParameters};
use orrery_handlers::Registry;
use orrery_host::code::{CodeSet, CodeStore};
use orrery_host::environments::Environments;
use orrery_host::handling::{FileContents, NoParameters, Parameters};
use orrery_store::Store;

use crate::cli_deploy::RunOptions;
use crate::code::{absolute, environment_id};
use crate::state::{self, StateOptions, now};

use super::Opened;

/// Code that no version needs is kept so long.
const CODE_KEPT: Duration = Duration::from_secs(7 * 86_400);
/// The same for environments, which take longer to make.
const ENVIRONMENTS_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// Handlers in hosts mostly wait: this many may do so at once.
const WORKERS_HOSTED: u16 = 64;
const WORKERS_NATIVE: u16 = 16;

/// The handlers of one command.
pub(super) struct Handlers {
    pub(super) registry: Arc<Registry>,
    /// The name under which the code of the hosts is kept.
    pub(super) code: Option<String>,
    hosted: Option<Hosted>,
}

/// Where a command works.
pub(super) struct Place<'a> {
    pub(super) project: &'a Path,
    pub(super) state: &'a StateOptions,
    pub(super) run: &'a RunOptions,
    /// `None` for commands that keep nothing.
    pub(super) opened: Option<&'a Opened>,
}

impl Handlers {
    /// Those for resources that were exported with this code. It is kept, so that it can be used without the project.
    pub(super) fn of(code: Option<CodeSet>, place: &Place<'_>) -> Result<Self, HostingError> {
        let kept = place.code_store();
        let Some(set) = code else {
            if place.opened.is_some() {
                kept.set_current(None)?;
            }
            return Ok(Handlers::native());
        };
        if place.opened.is_none() {
            return place.host(None, &set);
        }
        let (hash, set) = kept.put(&set)?;
        kept.set_current(Some(&hash))?;
        place.host(Some(hash), &set)
    }

    /// Those of the last deploy.
    pub(super) fn kept(place: &Place<'_>) -> Result<Self, HostingError> {
        let kept = place.code_store();
        match kept.current()? {
            None => Ok(Handlers::native()),
            Some(hash) => {
                let set = kept.open(&hash)?;
                place.host(Some(hash), &set)
            }
        }
    }

    pub(super) fn native() -> Self {
        Handlers { registry: Arc::new(Registry::native()), code: None, hosted: None }
    }

    /// How many may run at once, if nobody says.
    pub(super) fn workers(&self) -> u16 {
        if self.hosted.is_some() { WORKERS_HOSTED } else { WORKERS_NATIVE }
    }

    /// Ends all processes.
    pub(super) fn close(&self) {
        if let Some(hosted) = &self.hosted {
            hosted.close();
        }
    }
}

impl Place<'_> {
    fn code_store(&self) -> CodeStore {
        CodeStore::new(self.state.directory(self.project).join("code"))
    }

    /// The entities that the code of the last deploy has handlers for.
    pub(super) fn kept_handlers(&self) -> Result<Vec<String>, HostingError> {
        let kept = self.code_store();
        Ok(match kept.current()? {
            None => Vec::new(),
            Some(hash) => kept.open(&hash)?.handlers,
        })
    }

    fn environments(&self) -> Environments {
        Environments::new(self.state.directory(self.project).join("environments"), Vec::new())
    }

    fn host(&self, code: Option<String>, set: &CodeSet) -> Result<Handlers, HostingError> {
        let project = absolute(self.project);
        let parameters: Arc<dyn Parameters> = match self.opened {
            Some(Opened { store, environment, lease }) => {
                let store: Arc<dyn Store> = Arc::clone(store) as _;
                let (environment, lease) = (*environment, Some(*lease));
                let consequences = Arc::new(NoConsequences);
                Arc::new(StoredParameters { store, environment, lease, clock: now, consequences })
            }
            None => Arc::new(NoParameters),
        };
        let memory = self.run.host_memory().saturating_mul(1 << 20);
        let hosting = Hosting {
            environment: environment_id(&project),
            files: FileContents::complete(project.join(state::DIRECTORY).join("files")),
            project,
            environments: self.environments(),
            memory_max: (memory > 0).then_some(memory),
            confinement: None,
            refused: None,
            parameters,
        };
        let hosted = hosting.of(set)?;
        Ok(Handlers { registry: Arc::clone(&hosted.registry), code, hosted: Some(hosted) })
    }

    /// Removes code and environments that nobody needs any more. What cannot be removed stays.
    pub(super) fn tidy_up(&self, current: Option<&str>) {
        let Some(opened) = self.opened else { return };
        let Ok(versions) = opened.store.versions(opened.environment) else { return };
        let named = versions.iter().filter_map(|version| version.info.get("code")?.as_str());
        let needed: BTreeSet<String> = named.chain(current).map(str::to_owned).collect();
        let now = state::system_now();
        let code = self.code_store().clean(&needed, CODE_KEPT, now);
        let environments = self.environments().clean(ENVIRONMENTS_KEPT, now);
        tracing::debug!(?code, ?environments, "what nobody needs any more was removed");
    }
}
