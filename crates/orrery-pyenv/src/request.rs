//! Request and outcome of an installation.

use std::path::{Path, PathBuf};

use orrery_model::PipSettings;

use crate::Error;
use crate::changes::PackageChange;
use crate::helper::Package;
use crate::lock::{Lock, LockedModule, LockedPackage};

/// Request of an installation.
#[derive(Debug, Default)]
pub struct InstallRequest {
    /// Directory of the project or module; base of requirement files.
    pub directory: PathBuf,
    pub environment: PathBuf,
    /// Version, name or path of Python; default: the newest.
    pub python: Option<String>,
    /// Requirement files.
    pub files: Vec<PathBuf>,
    pub requirements: Vec<String>,
    /// Directory that is installed in editable mode.
    pub editable: Option<PathBuf>,
    pub pip: PipSettings,
    pub sdk: Option<PathBuf>,
    pub upgrade: Upgrade,
    /// True to recreate the virtualenv.
    pub rebuild: bool,
    /// Lock file; without one, versions are resolved and not stored.
    pub locking: Option<Locking>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub enum Upgrade {
    /// Keeps locked or installed versions where possible.
    #[default]
    Nothing,
    All,
    /// These packages and their requirements.
    Only(Vec<String>),
}

/// Use of the lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Uses the lock file, and updates it if it is missing or out of date.
    Update,
    /// Fails if the lock file is missing or out of date.
    Locked,
    /// Installs from the lock file, regardless of the requirements.
    Frozen,
}

/// Lock file of an installation: mode and content.
#[derive(Debug)]
pub struct Locking {
    pub mode: LockMode,
    pub lock: Option<Lock>,
}

impl Locking {
    /// Reads the lock file of a project.
    pub fn read(project: &Path, mode: LockMode) -> Result<Self, Error> {
        let lock = Lock::read(project)?;
        if lock.is_none() && mode != LockMode::Update {
            return Err(Error::LockMissing);
        }
        Ok(Locking { mode, lock })
    }

    /// Locked commits of modules.
    pub fn modules(&self) -> &[LockedModule] {
        self.lock.as_ref().map_or(&[], |lock| &lock.modules)
    }
}

/// Outcome of an installation.
#[derive(Debug)]
pub struct InstallOutcome {
    pub environment: PathBuf,
    pub python: String,
    pub created: bool,
    pub changes: Vec<PackageChange>,
    /// Installed packages; empty if nothing was checked.
    pub packages: Vec<Package>,
    /// Resolved packages; `None` if the lock file was used.
    pub resolved: Option<Vec<LockedPackage>>,
    pub warnings: Vec<String>,
}
