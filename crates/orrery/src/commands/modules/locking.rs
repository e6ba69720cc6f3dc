//! Updates the lock file of a project after an installation.

use super::repositories::FetchedModules;
use super::target::Target;
use orrery_pyenv::changes::{self, PackageChange};
use orrery_pyenv::lock::Lock;
use orrery_pyenv::{Error, InstallOutcome, LockMode, Upgrade, inputs_of};

/// A lock file that was written.
#[derive(Debug)]
pub(super) struct LockChange {
    pub(super) created: bool,
    pub(super) changes: Vec<PackageChange>,
}

/// Writes the lock file after an installation, if allowed and changed.
///
/// # Errors
/// An error if it cannot be written, or must not be written and lacks a module.
pub(super) fn update_lock_file(
    target: &mut Target,
    outcome: &InstallOutcome,
    fetched: &FetchedModules,
) -> Result<Option<LockChange>, Error> {
    let Some(locking) = &target.request.locking else { return Ok(None) };
    if locking.mode != LockMode::Update {
        return check_modules(target, fetched).map(|()| None);
    }
    let before = locking.lock.as_ref();
    let packages = match (&outcome.resolved, before) {
        (Some(packages), _) => packages.clone(),
        (None, Some(lock)) => lock.packages.clone(),
        (None, None) => Vec::new(),
    };
    let inputs = inputs_of(&target.request, &packages);
    // Packages for another Python version are added to those of the first.
    let python = match before {
        Some(lock) if lock.inputs == inputs && target.request.upgrade == Upgrade::Nothing => {
            lock.python.clone()
        }
        _ => outcome.python.split('.').take(2).collect::<Vec<_>>().join("."),
    };
    let lock = Lock { python, inputs, packages, modules: fetched.modules.clone() };
    if before == Some(&lock) {
        return Ok(None);
    }
    lock.write(&target.directory)?;
    let change = LockChange { created: before.is_none(), changes: changes::locked(before, &lock) };
    if let Some(locking) = &mut target.request.locking {
        locking.lock = Some(lock);
    }
    // Records the new lock file, so that the next installation has nothing to do.
    orrery_pyenv::refresh_record(&target.request)?;
    Ok(Some(change))
}

/// Checks that a read-only lock file has all imported modules.
///
/// # Errors
/// An error if it lacks a module that a repository might have.
pub(super) fn check_modules(target: &Target, fetched: &FetchedModules) -> Result<(), Error> {
    let mode = target.request.locking.as_ref().map(|locking| locking.mode);
    if mode != Some(LockMode::Locked) || !fetched.has_repositories {
        return Ok(());
    }
    let changed =
        target.missing().into_iter().map(|module| format!("module {module} is not in it"));
    let changed: Vec<String> = changed.collect();
    if changed.is_empty() { Ok(()) } else { Err(Error::LockOutdated { changed }) }
}
