//! What an installation is asked for, and what came of it.

use std::path::{Path, PathBuf};

use orrery_compiler::project::PipSettings;

use super::Error;
use super::changes::Change;
use super::helper::Package;
use super::lock::{Lock, LockedModule, LockedPackage};

/// What is asked for.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// The directory of the project or module; requirement files are seen from it.
    pub(crate) directory: PathBuf,
    pub(crate) environment: PathBuf,
    /// A version, a name or a path of Python; the newest that is found if there is none.
    pub(crate) python: Option<String>,
    /// Requirement files.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) requirements: Vec<String>,
    /// A directory that is installed as it is, so that changes to it count at once.
    pub(crate) editable: Option<PathBuf>,
    pub(crate) pip: PipSettings,
    pub(crate) sdk: Option<PathBuf>,
    pub(crate) upgrade: Upgrade,
    /// Make the environment anew.
    pub(crate) rebuild: bool,
    /// The lock file; without one, versions are chosen anew and kept nowhere.
    pub(crate) locking: Option<Locking>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Upgrade {
    /// What is locked or installed stays if it fits.
    #[default]
    Nothing,
    All,
    /// These packages, and what they need.
    Only(Vec<String>),
}

/// Rules for an installation with a lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// Uses the lock file, and has it written where it is missing or out of date.
    Update,
    /// Fails if the lock file is missing or out of date.
    Locked,
    /// Installs what the lock file says, whatever the project asks for.
    Frozen,
}

/// The lock file of an installation: how to use it, and what it says.
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

    /// Commits of modules that the lock file has.
    pub(crate) fn modules(&self) -> &[LockedModule] {
        self.lock.as_ref().map_or(&[], |lock| &lock.modules)
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) environment: PathBuf,
    pub(crate) python: String,
    pub(crate) created: bool,
    pub(crate) changes: Vec<Change>,
    /// What is installed now; empty if nothing had to be looked at.
    pub(crate) packages: Vec<Package>,
    /// The packages that were chosen; none if those of the lock file were installed.
    pub(crate) resolved: Option<Vec<LockedPackage>>,
    pub(crate) warnings: Vec<String>,
}
