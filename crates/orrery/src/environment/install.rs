//! Makes and fills an environment. What is to be installed is chosen or read from the lock file first, checked, and only then
//! installed, exactly so; a new environment appears when it is complete.

use std::fs;
use std::path::{Path, PathBuf};

use super::changes::{self, Change};
use super::helper::{self, Contents, Package};
use super::interpreters::{Interpreter, Places};
use super::lock::{Lock, LockedPackage};
use super::note::{self, Note};
use super::pip::{self, Event, Listener, normal_name};
use super::request::{LockMode, Outcome, Request, Upgrade};
use super::resolve::Tools;
use super::stand_ins::{self, StandIns};
use super::{Error, inputs, is_environment, python_version, swap};

/// Where the packages of an installation come from.
#[derive(Clone, Copy)]
enum Plan<'r> {
    /// They are those of the lock file.
    Locked(&'r Lock, LockMode),
    /// They are chosen; what the lock file has stays if it can.
    Resolve(Option<&'r Lock>),
    /// They are there, but for the SDK.
    OnlySdk,
}

impl<'r> Plan<'r> {
    /// Decides whether the lock file can be used as it is.
    fn of(request: &'r Request) -> Result<Self, Error> {
        let Some(locking) = &request.locking else { return Ok(Plan::Resolve(None)) };
        let Some(lock) = &locking.lock else {
            return match locking.mode {
                LockMode::Update => Ok(Plan::Resolve(None)),
                LockMode::Locked | LockMode::Frozen => Err(Error::LockMissing),
            };
        };
        if request.upgrade != Upgrade::Nothing {
            return Ok(Plan::Resolve(Some(lock)));
        }
        if locking.mode == LockMode::Frozen {
            return Ok(Plan::Locked(lock, locking.mode));
        }
        let changed = inputs::changed(lock, request);
        match locking.mode {
            _ if changed.is_empty() => Ok(Plan::Locked(lock, locking.mode)),
            LockMode::Locked => {
                let changed = changed.iter().map(|name| format!("{name} changed"));
                Err(Error::LockOutdated { changed: changed.collect() })
            }
            _ => Ok(Plan::Resolve(Some(lock))),
        }
    }

    /// Whether nothing has to be chosen if the environment was filled for the same before.
    fn is_settled(self, request: &Request) -> bool {
        let unlocked = request.locking.is_none();
        request.upgrade == Upgrade::Nothing && (unlocked || matches!(self, Plan::Locked(..)))
    }
}

/// Makes an environment into what is asked for. Nothing happens if it is that already.
pub(crate) fn install(request: &Request, listener: Listener<'_>) -> Result<Outcome, Error> {
    let directory = fs::File::open(&request.directory)
        .map_err(Error::system(format!("open {}", request.directory.display())))?;
    // One at a time: the lock is on the directory itself and ends with this function.
    if directory.try_lock().is_err() {
        listener(Event::Step("waiting for another installation to end".into()));
        directory.lock().map_err(Error::system("wait for another installation"))?;
    }
    let place = std::path::absolute(&request.environment)
        .map_err(Error::system(format!("find {}", request.environment.display())))?;
    let inputs = note::inputs(request);
    let plan = Plan::of(request)?;
    let exists = is_environment(&place);
    if !exists && fs::read_dir(&place).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::NotAnEnvironment { dir: place });
    }
    let note = Note::read(&place).filter(|_| exists);
    if exists && !request.rebuild {
        check_python(request, &place)?;
        let settled = plan.is_settled(request);
        if settled && note.as_ref().is_some_and(|note| note.is_current(&inputs, &place)) {
            let python = python_version(&place).unwrap_or_default();
            return Ok(Outcome::unchanged(place, python));
        }
        let made = note.as_ref().is_some_and(Note::is_own);
        let only_sdk =
            settled && note.is_some_and(|note| note.is_current_but_for_the_sdk(&inputs, &place));
        let plan = if only_sdk { Plan::OnlySdk } else { plan };
        let opened = Opened::new(&place)?;
        let filled = fill(request, plan, &place, listener);
        if filled.is_err() {
            opened.restore();
        }
        let outcome = filled?;
        finish(&place, &place, &inputs, &outcome.packages, made)?;
        return Ok(outcome);
    }
    let interpreter = find_python(request)?;
    build(request, plan, &interpreter, &place, &inputs, listener)
}

/// Notes that an environment is what is asked for, in other words than it was asked for before.
pub(crate) fn note_again(request: &Request) -> Result<(), Error> {
    let made = Note::read(&request.environment).is_some_and(|note| note.is_own());
    Note::write(&request.environment, &note::inputs(request), made)
}

/// The Python of a new environment: the one that is asked for, the one that the lock file was written for, or the newest.
fn find_python(request: &Request) -> Result<Interpreter, Error> {
    let places = Places::of_this_machine();
    let locked = request.locking.as_ref().and_then(|locking| locking.lock.as_ref());
    if let (None, Some(lock)) = (&request.python, locked)
        && let Ok(found) = places.find(Some(&lock.python))
    {
        return Ok(found);
    }
    places.find(request.python.as_deref())
}

/// Makes a new environment beside its place, and moves it there.
fn build(
    request: &Request,
    plan: Plan<'_>,
    interpreter: &Interpreter,
    place: &Path,
    inputs: &serde_json::Value,
    listener: Listener<'_>,
) -> Result<Outcome, Error> {
    listener(Event::Step(format!("making an environment with Python {}", interpreter.version)));
    let new = swap::aside(place, "new");
    if let Some(parent) = new.parent() {
        fs::create_dir_all(parent).map_err(Error::system(format!("make {}", parent.display())))?;
    }
    let built = swap::make(interpreter, &new)
        .and_then(|()| fill(request, plan, &new, listener))
        .and_then(|outcome| finish(&new, place, inputs, &outcome.packages, true).map(|()| outcome))
        .and_then(|outcome| swap::into_place(&new, place).map(|()| outcome));
    match built {
        Ok(outcome) => Ok(Outcome { environment: place.to_owned(), created: true, ..outcome }),
        Err(error) => {
            // The reason is worth more than a second one about cleaning up.
            let _ = swap::remove(&new);
            Err(error)
        }
    }
}

fn check_python(request: &Request, place: &Path) -> Result<(), Error> {
    let Some(wanted) = &request.python else { return Ok(()) };
    let found = Places::of_this_machine().find(Some(wanted))?;
    let is = python_version(place).unwrap_or_default();
    if minor_version(&is) == minor_version(&found.version) {
        return Ok(());
    }
    Err(Error::OtherPython { dir: place.to_owned(), is, wanted: found.version })
}

/// `3.13` of `3.13.0`.
fn minor_version(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Installs into an environment what is asked for.
fn fill(
    request: &Request,
    plan: Plan<'_>,
    environment: &Path,
    listener: Listener<'_>,
) -> Result<Outcome, Error> {
    let before = helper::inspect(environment)?;
    if let Some(package) = stand_ins::real_core(&before.packages) {
        return Err(Error::RealCore { dir: environment.to_owned(), package });
    }
    if !before.pip.as_deref().is_some_and(can_plan) {
        return Err(Error::NoPip { dir: environment.to_owned() });
    }
    let scratch = tempfile::tempdir().map_err(Error::system("make a temporary directory"))?;
    let tools = Tools::new(request, environment, scratch.path(), listener)?;
    let more: Vec<String> = tools.write_sdk()?.into_iter().collect();
    let resolved = match plan {
        Plan::OnlySdk => {
            tools.apply(&[], &more, &before, false, listener)?;
            None
        }
        Plan::Locked(lock, mode) => {
            check_packages(environment, &lock.packages)?;
            tools.apply(&lock.packages, &more, &before, false, listener)?;
            complete(&tools, lock, mode, listener)?
        }
        Plan::Resolve(lock) => {
            let packages = tools.resolve(lock, &before.packages, listener)?;
            check_packages(environment, &packages)?;
            tools.apply(&packages, &more, &before, true, listener)?;
            Some(packages)
        }
    };
    keep_wheels(environment, &tools.wheels)?;
    let after = helper::inspect(environment)?;
    if let Some(package) = stand_ins::real_core(&after.packages) {
        return Err(Error::RealCore { dir: environment.to_owned(), package });
    }
    let changes = changes::installed(&before, &after);
    let mut warnings = warnings(&changes, &after);
    let unverified = resolved.iter().flatten().filter(|package| package.is_unverified());
    if request.locking.is_some() {
        warnings.extend(unverified.map(|package| {
            format!("the index says no hash of {}: its files cannot be verified", package.name)
        }));
    }
    Ok(Outcome {
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
    match stand_ins::real_core(&packages) {
        Some(package) => Err(Error::RealCore { dir: environment.to_owned(), package }),
        None => Ok(()),
    }
}

/// Chooses and installs what another version of Python, or of the stand-ins, needs besides the packages of a lock file. Answers
/// all packages, if there are more now.
fn complete(
    tools: &Tools<'_>,
    lock: &Lock,
    mode: LockMode,
    listener: Listener<'_>,
) -> Result<Option<Vec<LockedPackage>>, Error> {
    let names: Vec<String> = lock.packages.iter().map(|package| package.name.clone()).collect();
    let wanted = match mode {
        LockMode::Frozen => Vec::new(),
        LockMode::Update | LockMode::Locked => tools.wanted_lines(),
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
    // What only the other version of Python needs stays locked for it.
    let others = lock.packages.iter().filter(|one| packages.iter().all(|new| new.name != one.name));
    let others: Vec<LockedPackage> = others.cloned().collect();
    packages.extend(others);
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Some(packages))
}

impl Outcome {
    fn unchanged(environment: PathBuf, python: String) -> Self {
        let (changes, packages, warnings) = (Vec::new(), Vec::new(), Vec::new());
        let (created, resolved) = (false, None);
        Outcome { environment, python, created, changes, packages, resolved, warnings }
    }
}

/// Whether a version of pip can tell what it would install.
fn can_plan(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next(), parts.next()) >= (Some(22), Some(2))
}

/// The wheels stay in the environment, so that whoever calls pip there gets the same stand-ins.
fn keep_wheels(environment: &Path, wheels: &Path) -> Result<(), Error> {
    let kept = stand_ins::kept_in(environment);
    let failed = || Error::system(format!("write {}", kept.display()));
    swap::remove(&kept)?;
    fs::create_dir_all(&kept).map_err(failed())?;
    for entry in fs::read_dir(wheels).map_err(failed())?.flatten() {
        fs::copy(entry.path(), kept.join(entry.file_name())).map_err(failed())?;
    }
    Ok(())
}

/// Notes what the environment was filled for and, if it is Orrery's own, tells pip about the stand-ins.
/// `place` is where the environment is going to be.
fn finish(
    environment: &Path,
    place: &Path,
    inputs: &serde_json::Value,
    packages: &[Package],
    made: bool,
) -> Result<(), Error> {
    if made {
        let constraints = StandIns::installed(packages).constraints();
        let file = stand_ins::kept_in(environment).join("constraints.txt");
        pip::write_lines(&file, &constraints)?;
        let kept = stand_ins::kept_in(place).display().to_string();
        // Lists are separated by spaces in this file, so it has no way to name such a path.
        if !kept.contains(char::is_whitespace) {
            let lines = [
                "# Keeps pip in this environment from installing what Orrery stands for."
                    .to_owned(),
                "[install]".into(),
                format!("find-links = {kept}"),
                format!("constraint = {kept}/constraints.txt"),
            ];
            pip::write_lines(&environment.join(PIP_CONFIGURATION), &lines)?;
        }
    }
    Note::write(environment, inputs, made)
}

/// pip reads this file in the environment that it runs in.
const PIP_CONFIGURATION: &str = "pip.conf";

/// An environment that is being changed. What was noted about it no longer holds, and what it tells pip
/// about stand-ins would stand in the way of other ones.
struct Opened {
    removed: Vec<(PathBuf, Vec<u8>)>,
}

impl Opened {
    fn new(environment: &Path) -> Result<Self, Error> {
        let mut removed = Vec::new();
        let own = Note::read(environment).is_some_and(|note| note.is_own());
        let names = [Some(note::FILE), own.then_some(PIP_CONFIGURATION)];
        for path in names.into_iter().flatten().map(|name| environment.join(name)) {
            if let Ok(content) = fs::read(&path) {
                fs::remove_file(&path)
                    .map_err(Error::system(format!("remove {}", path.display())))?;
                removed.push((path, content));
            }
        }
        Ok(Opened { removed })
    }

    /// Puts everything back. Whoever cannot write these files could not have removed them.
    fn restore(self) {
        for (path, content) in self.removed {
            let _ = fs::write(path, content);
        }
    }
}

/// What should be looked at by a person.
fn warnings(changes: &[Change], after: &Contents) -> Vec<String> {
    let mut warnings = Vec::new();
    for package in &after.packages {
        let name = normal_name(&package.name);
        if changes.iter().all(|change| normal_name(&change.name) != name) {
            continue;
        }
        let unexpected = stand_ins::unexpected(package);
        if !unexpected.is_empty() {
            warnings.push(format!(
                "{} {} brings Python packages that are no part of the module: {}",
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
    fn only_what_was_just_installed_is_warned_of() {
        let before = contents(&[("inmanta-module-old", "1")]);
        let after = contents(&[("inmanta-module-old", "1"), ("inmanta-module-new", "1")]);
        let found = warnings(&changes::installed(&before, &after), &after);
        assert_eq!(
            found,
            ["inmanta-module-new 1 brings Python packages that are no part of the module: irt"]
        );
    }

    #[test]
    fn old_versions_of_pip_are_known() {
        assert!(can_plan("22.2") && can_plan("24.0.1") && can_plan("23.0"));
        assert!(!can_plan("22.1.2") && !can_plan("9.0"));
    }
}
