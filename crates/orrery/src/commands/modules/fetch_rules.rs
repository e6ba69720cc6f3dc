//! Rules for fetching modules: allowed repositories, updates, and the lock file.

use std::path::Path;

use orrery_pyenv::lock::LockedModule;
use orrery_pyenv::{LockMode, Locking};

use super::git::local_changes;

/// Allowed repositories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Any repository: the user's own project.
    Everything,
    /// Repositories that the server allows for environments.
    ByServer { local: bool },
}

/// Modules to update.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Update {
    #[default]
    Nothing,
    All,
    /// Modules with these names.
    Only(Vec<String>),
}

impl Update {
    pub(super) fn has(&self, module: &str) -> bool {
        match self {
            Update::Nothing => false,
            Update::All => true,
            Update::Only(_) => self.names(module),
        }
    }

    /// True if a module is named explicitly.
    pub(super) fn names(&self, module: &str) -> bool {
        matches!(self, Update::Only(names) if names.iter().any(|name| name == module))
    }
}

/// Progress messages.
#[derive(Debug)]
pub(crate) enum Notice {
    Step(String),
    Warning(String),
}

/// Rules for fetching.
pub(crate) struct Rules<'a> {
    pub(crate) update: &'a Update,
    pub(crate) allowed: Allowed,
    pub(crate) locking: Option<&'a Locking>,
}

impl Rules<'_> {
    /// True if only the lock file may be used.
    pub(super) fn is_strict(&self) -> bool {
        self.locking.is_some_and(|locking| locking.mode != LockMode::Update)
    }

    /// Commit that a module must be at.
    pub(super) fn locked(&self, module: &str) -> Option<&LockedModule> {
        self.entry(module).filter(|_| !self.update.has(module))
    }

    /// Lock file entry of a module.
    pub(super) fn entry(&self, module: &str) -> Option<&LockedModule> {
        let modules = self.locking.map_or(&[][..], Locking::modules);
        modules.iter().find(|one| one.name == module)
    }

    /// Local work in a clone that must not be lost. Clones on a server have none.
    pub(super) fn local_changes(&self, path: &Path) -> Option<String> {
        (self.allowed == Allowed::Everything).then(|| local_changes(path)).flatten()
    }
}
