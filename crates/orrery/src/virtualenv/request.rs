//! Request and outcome of an installation.

use std::path::{Path, PathBuf};

use orrery_model::PipSettings;

use super::Error;
use super::changes::Change;
use super::helper::Package;
use super::lock::{Lock, LockedModule, LockedPackage};

/// Request of an installation.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// Directory of the project or module; base of requirement files.
    pub(crate) directory: PathBuf,
    pub(crate) environment: PathBuf,
    /// Version, name or path of Python; default: the newest.
    pub(crate) python: Option<String>,
    /// Requirement files.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) requirements: Vec<String>,
    /// Directory that is installed in editable mode.
    pub(crate) editable: Option<PathBuf>,
    pub(crate) pip: PipSettings,
    pub(crate) sdk: Option<PathBuf>,
    pub(crate) upgrade: Upgrade,
    /// True to recreate the virtualenv.
    pub(crate) rebuild: bool,
    /// Lock file; without one, versions are resolved and not stored.
    pub(crate) locking: Option<Locking>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Upgrade {
    /// Keeps locked or installed versions where possible.
    #[default]
    Nothing,
    All,
    /// These packages and their requirements.
    Only(Vec<String>),
}

/// Use of the lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// Uses the lock file, and updates it if it is missing or out of date.
    Update,
    /// Fails if the lock file is missing or out of date.
    Locked,
    /// Installs from the lock file, regardless of the requirements.
    Frozen,
}

/// Lock file of an installation: mode and content.
#[derive(Debug)]
pub(crate) struct Locking {
    pub(crate) mode: LockMode,
    pub(crate) lock: Option<Lock>,
}

impl Locking {
    /// Reads the lock file of a project.
    pub(crate) fn read(project: &Path, mode: LockMode) -> Result<Self, Error> {
        let lock = Lock::read(project)?;
        if lock.is_none() && mode != LockMode::Update {
            return Err(Error::LockMissing);
        }
        Ok(Locking { mode, lock })
    }

    /// Locked commits of modules.
    pub(crate) fn modules(&self) -> &[LockedModule] {
        self.lock.as_ref().map_or(&[], |lock| &lock.modules)
    }
}

/// Outcome of an installation.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) environment: PathBuf,
    pub(crate) python: String,
    pub(crate) created: bool,
    pub(crate) changes: Vec<Change>,
    /// Installed packages; empty if nothing was checked.
    pub(crate) packages: Vec<Package>,
    /// Resolved packages; `None` if the lock file was used.
    pub(crate) resolved: Option<Vec<LockedPackage>>,
    pub(crate) warnings: Vec<String>,
}
