//! Local deployment state of a project.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clap::{Args, ValueHint};
use orrery_compiler::plugins::Facts;
use orrery_handlers::clock::now;
use orrery_project::STATE_DIRECTORY;
use orrery_server::app::parameters::FACT_EXPIRY;
use orrery_store::{Holder, Store, StoreError, StoredParameter};

const FILE: &str = "state.db";

#[derive(Debug, Args)]
pub(crate) struct StateOptions {
    /// Directory of the deployment state [default: data/deploy in the project]
    #[arg(long, value_name = "DIR", env = "ORRERY_DATA", hide_env_values = true)]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
}

impl StateOptions {
    /// State file of a project.
    pub(crate) fn file(&self, project: &Path) -> PathBuf {
        self.directory(project).join(FILE)
    }

    /// Directory of the state and its related files.
    pub(crate) fn directory(&self, project: &Path) -> PathBuf {
        self.data.clone().unwrap_or_else(|| project.join(STATE_DIRECTORY))
    }

    /// Opens the state for writing, exclusively.
    pub(crate) fn open(&self, project: &Path, command: &str) -> Result<Store, StoreError> {
        let holder = Holder::this_process(format!("orrery {command}"), now());
        Store::open(self.file(project), &holder)
    }

    /// Facts of deployed resources, read when a model needs one.
    pub(crate) fn facts(&self, project: &Path) -> Arc<StoredFacts> {
        Arc::new(StoredFacts { file: self.file(project), store: OnceLock::new() })
    }

    /// Opens the state for reading, also while another process writes.
    pub(crate) fn open_read_only(&self, project: &Path) -> Result<Store, StoreError> {
        Store::open_read_only(self.file(project))
    }
}

/// Facts in the state of a project; none if there is no state yet.
pub(crate) struct StoredFacts {
    file: PathBuf,
    store: OnceLock<Option<Store>>,
}

impl fmt::Debug for StoredFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredFacts").field("file", &self.file).finish_non_exhaustive()
    }
}

impl StoredFacts {
    fn of_resource(&self, id: &str) -> Vec<StoredParameter> {
        let open = || {
            let opened = self.file.exists().then(|| Store::open_read_only(&self.file))?;
            opened.inspect_err(|error| tracing::warn!(%error, "cannot read facts")).ok()
        };
        let Some(store) = self.store.get_or_init(open) else { return Vec::new() };
        let known =
            store.environments().ensure_default().and_then(|of| store.parameters().facts(of, id));
        let known = known.inspect_err(|error| tracing::warn!(%error, "cannot read facts"));
        known.unwrap_or_default()
    }

    /// Facts of a resource by name.
    pub(crate) fn values(&self, id: &str) -> BTreeMap<String, String> {
        self.of_resource(id).into_iter().map(|fact| (fact.name, fact.value)).collect()
    }

    /// True if there are facts of a resource, and none has expired.
    pub(crate) fn are_fresh(&self, id: &str) -> bool {
        let (facts, now) = (self.of_resource(id), now());
        !facts.is_empty()
            && facts.iter().all(|fact| !fact.expires || fact.updated + FACT_EXPIRY >= now)
    }
}

impl Facts for StoredFacts {
    fn fact(&self, id: &str, name: &str) -> Option<String> {
        self.of_resource(id).into_iter().find(|fact| fact.name == name).map(|fact| fact.value)
    }

    fn facts_with(&self, id: &str, probe: &str) -> Option<BTreeMap<String, String>> {
        Some(self.values(id)).filter(|values| values.contains_key(probe))
    }
}
