//! Keeps the lock file of a project up to date with what was installed.

use super::repositories::Fetched;
use super::target::Target;
use crate::environment::changes::{self, Change};
use crate::environment::lock::Lock;
use crate::environment::{self, Error, LockMode, Outcome, Upgrade, inputs_of};

/// A lock file that was written.
#[derive(Debug)]
pub(super) struct LockChange {
    pub(super) created: bool,
    pub(super) changes: Vec<Change>,
}

/// Writes the lock file after an installation, if it is to be written and something in it has changed.
///
/// # Errors
/// If it cannot be written, or must not be and lacks a module.
pub(super) fn keep(
    target: &mut Target,
    outcome: &Outcome,
    fetched: &Fetched,
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
    // Packages that another version of Python needs were added to those of the first one.
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
    // The next installation reads the new lock file, and finds it done.
    environment::note_again(&target.request)?;
    Ok(Some(change))
}

/// Checks that a lock file which must not be written has all modules that the project imports.
///
/// # Errors
/// If it lacks one that repositories might have.
pub(super) fn check_modules(target: &Target, fetched: &Fetched) -> Result<(), Error> {
    let mode = target.request.locking.as_ref().map(|locking| locking.mode);
    if mode != Some(LockMode::Locked) || !fetched.has_repositories {
        return Ok(());
    }
    let changed =
        target.missing().into_iter().map(|module| format!("module {module} is not in it"));
    let changed: Vec<String> = changed.collect();
    if changed.is_empty() { Ok(()) } else { Err(Error::LockOutdated { changed }) }
}
