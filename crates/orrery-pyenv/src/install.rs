//! Creates a virtualenv and installs packages. Packages are resolved or read from the lock file and
//! checked first; a new virtualenv appears atomically.

use std::fs;
use std::path::{Path, PathBuf};

use crate::changes::{self, PackageChange};
use crate::helper::{self, Contents, Package};
use crate::install_record::{self, InstallRecord};
use crate::interpreters::{Interpreter, SearchPaths};
use crate::lock::{Lock, LockedPackage};
use crate::package_names::normalize;
use crate::paths::{is_environment, python_release};
use crate::pip::{self, InstallEvent, InstallListener};
use crate::request::{InstallOutcome, InstallRequest, LockMode, Upgrade};
use crate::resolve::Tools;
use crate::shim_packages::{self, ShimPackages};
use crate::{Error, atomic_replace, create, inputs};

/// Source of the packages of an installation.
#[derive(Clone, Copy)]
enum InstallPlan<'r> {
    /// The lock file.
    Locked(&'r Lock, LockMode),
    /// A resolution, which keeps locked versions where possible.
    Resolve(Option<&'r Lock>),
    /// Already installed, except for the SDK.
    OnlySdk,
}

impl<'r> InstallPlan<'r> {
    /// Decides whether the lock file can be used as it is.
    fn choose(request: &'r InstallRequest) -> Result<Self, Error> {
        let Some(locking) = &request.locking else { return Ok(InstallPlan::Resolve(None)) };
        let Some(lock) = &locking.lock else {
            return match locking.mode {
                LockMode::Update => Ok(InstallPlan::Resolve(None)),
                LockMode::Locked | LockMode::Frozen => Err(Error::LockMissing),
            };
        };
        if request.upgrade != Upgrade::Nothing {
            return Ok(InstallPlan::Resolve(Some(lock)));
        }
        if locking.mode == LockMode::Frozen {
            return Ok(InstallPlan::Locked(lock, locking.mode));
        }
        let changed = inputs::changed(lock, request);
        match locking.mode {
            _ if changed.is_empty() => Ok(InstallPlan::Locked(lock, locking.mode)),
            LockMode::Locked => {
                let changed = changed.iter().map(|name| format!("{name} changed"));
                Err(Error::LockOutdated { changed: changed.collect() })
            }
            _ => Ok(InstallPlan::Resolve(Some(lock))),
        }
    }

    /// True if an unchanged virtualenv needs no resolution.
    fn is_settled(self, request: &InstallRequest) -> bool {
        let unlocked = request.locking.is_none();
        request.upgrade == Upgrade::Nothing && (unlocked || matches!(self, InstallPlan::Locked(..)))
    }
}

/// Brings a virtualenv into the requested state; does nothing if it is current.
pub fn install(
    request: &InstallRequest,
    listener: InstallListener<'_>,
) -> Result<InstallOutcome, Error> {
    let directory = fs::File::open(&request.directory)
        .map_err(Error::system(format!("open {}", request.directory.display())))?;
    // One installation at a time: the lock is on the directory and ends with this function.
    if directory.try_lock().is_err() {
        listener(InstallEvent::Step("waiting for another installation to end".into()));
        directory.lock().map_err(Error::system("wait for another installation"))?;
    }
    let place = std::path::absolute(&request.environment)
        .map_err(Error::system(format!("find {}", request.environment.display())))?;
    let inputs = install_record::inputs(request);
    let plan = InstallPlan::choose(request)?;
    let exists = is_environment(&place);
    if !exists && fs::read_dir(&place).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::NotAnEnvironment { dir: place });
    }
    let note = InstallRecord::read(&place).filter(|_| exists);
    if exists && !request.rebuild {
        check_python(request, &place)?;
        let settled = plan.is_settled(request);
        if settled && note.as_ref().is_some_and(|note| note.is_current(&inputs, &place)) {
            let python = python_release(&place).unwrap_or_default();
            return Ok(InstallOutcome::unchanged(place, python));
        }
        let is_own = note.as_ref().is_some_and(InstallRecord::is_own);
        let only_sdk =
            settled && note.is_some_and(|note| note.is_current_but_for_the_sdk(&inputs, &place));
        let plan = if only_sdk { InstallPlan::OnlySdk } else { plan };
        let opened = EnvironmentEdit::new(&place)?;
        let filled = fill(request, plan, &place, listener);
        if filled.is_err() {
            opened.restore();
        }
        let outcome = filled?;
        finish(&place, &place, &inputs, &outcome.packages, is_own)?;
        return Ok(outcome);
    }
    let interpreter = find_python(request)?;
    build(request, plan, &interpreter, &place, &inputs, listener)
}

/// Updates the install record of an unchanged virtualenv for a new request.
pub fn refresh_record(request: &InstallRequest) -> Result<(), Error> {
    let is_own = InstallRecord::read(&request.environment).is_some_and(|note| note.is_own());
    InstallRecord::write(&request.environment, &install_record::inputs(request), is_own)
}

/// Python of a new virtualenv: the requested one, that of the lock file, or the newest.
fn find_python(request: &InstallRequest) -> Result<Interpreter, Error> {
    let places = SearchPaths::of_this_machine();
    let locked = request.locking.as_ref().and_then(|locking| locking.lock.as_ref());
    if let (None, Some(lock)) = (&request.python, locked)
        && let Ok(found) = places.find_for_virtualenv(Some(&lock.python))
    {
        return Ok(found);
    }
    places.find_for_virtualenv(request.python.as_deref())
}

/// Builds a new virtualenv beside the old one and moves it into place.
fn build(
    request: &InstallRequest,
    plan: InstallPlan<'_>,
    interpreter: &Interpreter,
    place: &Path,
    inputs: &serde_json::Value,
    listener: InstallListener<'_>,
) -> Result<InstallOutcome, Error> {
    listener(InstallEvent::Step(format!(
        "creating a virtualenv with Python {}",
        interpreter.release
    )));
    let new = atomic_replace::aside(place, "new");
    if let Some(parent) = new.parent() {
        fs::create_dir_all(parent)
            .map_err(Error::system(format!("create {}", parent.display())))?;
    }
    let built = create::create_empty(interpreter, &new)
        .and_then(|()| fill(request, plan, &new, listener))
        .and_then(|outcome| finish(&new, place, inputs, &outcome.packages, true).map(|()| outcome))
        .and_then(|outcome| atomic_replace::move_into_place(&new, place).map(|()| outcome));
    match built {
        Ok(outcome) => {
            Ok(InstallOutcome { environment: place.to_owned(), created: true, ..outcome })
        }
        Err(error) => {
            // The first error matters more than a failed cleanup.
            let _ = atomic_replace::remove(&new);
            Err(error)
        }
    }
}

fn check_python(request: &InstallRequest, place: &Path) -> Result<(), Error> {
    let Some(wanted) = &request.python else { return Ok(()) };
    let found = SearchPaths::of_this_machine().find_for_virtualenv(Some(wanted))?;
    let is = python_release(place).unwrap_or_default();
    if minor_version(&is) == minor_version(&found.release) {
        return Ok(());
    }
    Err(Error::OtherPython { dir: place.to_owned(), is, wanted: found.release })
}

/// `3.13` of `3.13.0`.
fn minor_version(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Installs the requested packages into a virtualenv.
fn fill(
    request: &InstallRequest,
    plan: InstallPlan<'_>,
    environment: &Path,
    listener: InstallListener<'_>,
) -> Result<InstallOutcome, Error> {
    let before = helper::inspect(environment)?;
    if let Some(package) = shim_packages::real_core(&before.packages) {
        return Err(Error::RealCore { dir: environment.to_owned(), package });
    }
    if !before.pip.as_deref().is_some_and(can_plan) {
        return Err(Error::NoPip { dir: environment.to_owned() });
    }
    let scratch = tempfile::tempdir().map_err(Error::system("create a temporary directory"))?;
    let tools = Tools::new(request, environment, scratch.path(), listener)?;
    let more: Vec<String> = tools.write_sdk()?.into_iter().collect();
    let resolved = match plan {
        InstallPlan::OnlySdk => {
            tools.apply(&[], &more, &before, false, listener)?;
            None
        }
        InstallPlan::Locked(lock, mode) => {
            check_packages(environment, &lock.packages)?;
            tools.apply(&lock.packages, &more, &before, false, listener)?;
            complete(&tools, lock, mode, listener)?
        }
        InstallPlan::Resolve(lock) => {
            let packages = tools.resolve(lock, &before.packages, listener)?;
            check_packages(environment, &packages)?;
            tools.apply(&packages, &more, &before, true, listener)?;
            Some(packages)
        }
    };
    store_wheels(environment, &tools.wheels)?;
    let after = helper::inspect(environment)?;
    if let Some(package) = shim_packages::real_core(&after.packages) {
        return Err(Error::RealCore { dir: environment.to_owned(), package });
    }
    let changes = changes::installed(&before, &after);
    let mut warnings = warnings(&changes, &after);
    let unverified = resolved.iter().flatten().filter(|package| package.is_unverified());
    if request.locking.is_some() {
        warnings.extend(unverified.map(|package| {
            format!("the index has no hash of {}: its files cannot be verified", package.name)
        }));
    }
    Ok(InstallOutcome {
        environment: environment.to_owned(),
        python: after.python,
        created: false,
        changes,
        packages: after.packages,
        resolved,
        warnings,
    })
}

fn check_packages(environment: &Path, packages: &[LockedPackage]) -> Result<(), Error> {
    let package = |one: &LockedPackage| Package {
        name: one.name.clone(),
        version: one.version.clone().unwrap_or_default(),
        ..Package::default()
    };
    let packages: Vec<Package> = packages.iter().map(package).collect();
    match shim_packages::real_core(&packages) {
        Some(package) => Err(Error::RealCore { dir: environment.to_owned(), package }),
        None => Ok(()),
    }
}

/// Resolves and installs additional packages that another Python version, or another shim version,
/// needs beyond the lock file. Returns all packages, if there are new ones.
fn complete(
    tools: &Tools<'_>,
    lock: &Lock,
    mode: LockMode,
    listener: InstallListener<'_>,
) -> Result<Option<Vec<LockedPackage>>, Error> {
    let names: Vec<String> = lock.packages.iter().map(|package| package.name.clone()).collect();
    let wanted = match mode {
        LockMode::Frozen => Vec::new(),
        LockMode::Update | LockMode::Locked => tools.requirement_lines(),
    };
    let unmet = helper::unmet(tools.environment, &names, &wanted)?;
    if unmet.is_empty() {
        return Ok(None);
    }
    let contents = helper::inspect(tools.environment)?;
    if mode != LockMode::Update {
        let (locked, python) = (lock.python.clone(), contents.python);
        let mut missing: Vec<String> = unmet.iter().filter_map(|one| one.missing.clone()).collect();
        missing.sort();
        missing.dedup();
        let unmet = unmet.into_iter().map(|one| one.text).collect();
        if minor_version(&python) == minor_version(&locked) {
            return Err(Error::LockLacks { missing, unmet });
        }
        return Err(Error::LockIncomplete { locked, python, unmet });
    }
    let mut packages = tools.resolve(Some(lock), &contents.packages, listener)?;
    tools.apply(&packages, &[], &contents, true, listener)?;
    // Packages that only the other Python version needs stay locked.
    let others = lock.packages.iter().filter(|one| packages.iter().all(|new| new.name != one.name));
    let others: Vec<LockedPackage> = others.cloned().collect();
    packages.extend(others);
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Some(packages))
}

impl InstallOutcome {
    fn unchanged(environment: PathBuf, python: String) -> Self {
        let (changes, packages, warnings) = (Vec::new(), Vec::new(), Vec::new());
        let (created, resolved) = (false, None);
        InstallOutcome { environment, python, created, changes, packages, resolved, warnings }
    }
}

/// True if this version of pip supports `--dry-run --report`.
fn can_plan(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next(), parts.next()) >= (Some(22), Some(2))
}

/// Keeps the wheels in the virtualenv, so that manual calls of pip use the same shims.
fn store_wheels(environment: &Path, wheels: &Path) -> Result<(), Error> {
    let kept = shim_packages::wheel_directory(environment);
    let failed = || Error::system(format!("write {}", kept.display()));
    atomic_replace::remove(&kept)?;
    fs::create_dir_all(&kept).map_err(failed())?;
    for entry in fs::read_dir(wheels).map_err(failed())?.flatten() {
        fs::copy(entry.path(), kept.join(entry.file_name())).map_err(failed())?;
    }
    Ok(())
}

/// Writes the install record and, in Orrery's own virtualenvs, pip's configuration for the shims.
/// `place` is the final path of the virtualenv.
fn finish(
    environment: &Path,
    place: &Path,
    inputs: &serde_json::Value,
    packages: &[Package],
    is_own: bool,
) -> Result<(), Error> {
    if is_own {
        let constraints = ShimPackages::installed(packages).constraints();
        let file = shim_packages::wheel_directory(environment).join("constraints.txt");
        pip::write_lines(&file, &constraints)?;
        let kept = shim_packages::wheel_directory(place).display().to_string();
        // Lists in this file are separated by spaces, so such a path cannot be written.
        if !kept.contains(char::is_whitespace) {
            let lines = [
                "# Keeps pip in this virtualenv from installing packages that Orrery replaces."
                    .to_owned(),
                "[install]".into(),
                format!("find-links = {kept}"),
                format!("constraint = {kept}/constraints.txt"),
            ];
            pip::write_lines(&environment.join(PIP_CONFIGURATION), &lines)?;
        }
    }
    InstallRecord::write(environment, inputs, is_own)
}

/// Configuration that pip reads in its virtualenv.
const PIP_CONFIGURATION: &str = "pip.conf";

/// A virtualenv during an installation. Its install record and its pip configuration are removed,
/// since they no longer apply.
struct EnvironmentEdit {
    removed: Vec<(PathBuf, Vec<u8>)>,
}

impl EnvironmentEdit {
    fn new(environment: &Path) -> Result<Self, Error> {
        let mut removed = Vec::new();
        let own = InstallRecord::read(environment).is_some_and(|note| note.is_own());
        let names = [Some(install_record::FILE), own.then_some(PIP_CONFIGURATION)];
        for path in names.into_iter().flatten().map(|name| environment.join(name)) {
            if let Ok(content) = fs::read(&path) {
                fs::remove_file(&path)
                    .map_err(Error::system(format!("remove {}", path.display())))?;
                removed.push((path, content));
            }
        }
        Ok(EnvironmentEdit { removed })
    }

    /// Restores both files. Errors are ignored: they were writable before.
    fn restore(self) {
        for (path, content) in self.removed {
            let _ = fs::write(path, content);
        }
    }
}

/// Warnings about installed packages.
fn warnings(changes: &[PackageChange], after: &Contents) -> Vec<String> {
    let mut warnings = Vec::new();
    for package in &after.packages {
        let name = normalize(&package.name);
        if changes.iter().all(|change| normalize(&change.name) != name) {
            continue;
        }
        let unexpected = shim_packages::unexpected(package);
        if !unexpected.is_empty() {
            warnings.push(format!(
                "{} {} contains Python packages that are not part of the module: {}",
                package.name,
                package.version,
                unexpected.join(", ")
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(packages: &[(&str, &str)]) -> Contents {
        let package = |&(name, version): &(&str, &str)| Package {
            name: name.into(),
            version: version.into(),
            top_level: vec!["inmanta_plugins".into(), "irt".into()],
            origin: None,
        };
        Contents {
            python: "3.13.0".into(),
            pip: None,
            packages: packages.iter().map(package).collect(),
        }
    }

    #[test]
    fn only_new_packages_cause_warnings() {
        let before = contents(&[("inmanta-module-old", "1")]);
        let after = contents(&[("inmanta-module-old", "1"), ("inmanta-module-new", "1")]);
        let found = warnings(&changes::installed(&before, &after), &after);
        assert_eq!(
            found,
            ["inmanta-module-new 1 contains Python packages that are not part of the module: irt"]
        );
    }

    #[test]
    fn old_versions_of_pip_are_known() {
        assert!(can_plan("22.2") && can_plan("24.0.1") && can_plan("23.0"));
        assert!(!can_plan("22.1.2") && !can_plan("9.0"));
    }
}
