//! Makes and fills an environment. What is to be installed is worked out first, checked, and only then
//! installed, exactly so; a new environment appears when it is complete.

use std::fs;
use std::path::{Path, PathBuf};

use orrery_compiler::project::PipSettings;

use super::helper::{self, Contents, Package};
use super::interpreters::{Interpreter, Places};
use super::note::{self, Note};
use super::pip::{self, Event, Listener, Pip, normal_name};
use super::prepare::{Part, Prepared};
use super::stand_ins::{self, StandIns};
use super::{Error, is_environment, python_version, swap};

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
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Upgrade {
    /// What is there stays if it fits.
    #[default]
    Nothing,
    All,
    /// These packages, and what they need.
    Only(Vec<String>),
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
    pub(crate) warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) name: String,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
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
    let exists = is_environment(&place);
    if !exists && fs::read_dir(&place).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::NotAnEnvironment { dir: place });
    }
    let note = Note::read(&place).filter(|_| exists);
    if exists && !request.rebuild {
        check_python(request, &place)?;
        if request.upgrade == Upgrade::Nothing
            && note.as_ref().is_some_and(|note| note.is_current(&inputs, &place))
        {
            let python = python_version(&place).unwrap_or_default();
            return Ok(Outcome::unchanged(place, python));
        }
        let made = note.as_ref().is_some_and(Note::is_own);
        let only_sdk = request.upgrade == Upgrade::Nothing
            && note.is_some_and(|note| note.is_current_but_for_the_sdk(&inputs, &place));
        let part = if only_sdk { Part::Sdk } else { Part::Everything };
        let opened = Opened::new(&place)?;
        let filled = fill(request, part, &place, listener);
        if filled.is_err() {
            opened.restore();
        }
        let outcome = filled?;
        finish(&place, &place, &inputs, &outcome.packages, made)?;
        return Ok(outcome);
    }
    let interpreter = Places::of_this_machine().find(request.python.as_deref())?;
    build(request, &interpreter, &place, &inputs, listener)
}

/// Notes that an environment is what is asked for, in other words than it was asked for before.
pub(crate) fn note_again(request: &Request) -> Result<(), Error> {
    let made = Note::read(&request.environment).is_some_and(|note| note.is_own());
    Note::write(&request.environment, &note::inputs(request), made)
}

/// Makes a new environment beside its place, and moves it there.
fn build(
    request: &Request,
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
        .and_then(|()| fill(request, Part::Everything, &new, listener))
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
    let minor = |version: &str| version.split('.').take(2).collect::<Vec<_>>().join(".");
    if minor(&is) == minor(&found.version) {
        return Ok(());
    }
    Err(Error::OtherPython { dir: place.to_owned(), is, wanted: found.version })
}

/// Installs into an environment what is asked for.
fn fill(
    request: &Request,
    part: Part,
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
    let pip = Pip { environment, directory: &request.directory, settings: &request.pip };
    let prepared = Prepared::new(request, part, environment, scratch.path())?;
    let plan = prepared.plan(&pip, &before, listener)?;
    if let Some(package) = stand_ins::real_core_in_plan(&plan) {
        return Err(Error::RealCore { dir: environment.to_owned(), package });
    }
    if !plan.is_empty() {
        let number =
            if plan.len() == 1 { "1 package".into() } else { format!("{} packages", plan.len()) };
        listener(Event::Step(format!("installing {number}")));
        let lines: Vec<String> = plan.iter().map(|planned| planned.line.clone()).collect();
        let pins = pip::write_lines(&scratch.path().join("pins.txt"), &lines)?;
        let mut arguments = vec!["install".to_owned(), "--no-deps".into()];
        arguments.extend(prepared.sources.iter().cloned());
        arguments.extend(["--requirement".into(), pins.display().to_string()]);
        pip.run(&arguments, listener)?;
    }
    keep_wheels(environment, &prepared.wheels)?;
    let after = helper::inspect(environment)?;
    if let Some(package) = stand_ins::real_core(&after.packages) {
        return Err(Error::RealCore { dir: environment.to_owned(), package });
    }
    let changes = changes(&before, &after);
    let warnings = warnings(&changes, &after);
    Ok(Outcome {
        environment: environment.to_owned(),
        python: after.python,
        created: false,
        changes,
        packages: after.packages,
        warnings,
    })
}

impl Outcome {
    fn unchanged(environment: PathBuf, python: String) -> Self {
        let (changes, packages, warnings) = (Vec::new(), Vec::new(), Vec::new());
        Outcome { environment, python, created: false, changes, packages, warnings }
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

fn changes(before: &Contents, after: &Contents) -> Vec<Change> {
    let version_in = |contents: &Contents, name: &str| {
        let found = contents.packages.iter().find(|package| normal_name(&package.name) == name);
        found.map(|package| package.version.clone())
    };
    let mut names: Vec<(String, String)> = [before, after]
        .iter()
        .flat_map(|contents| &contents.packages)
        .map(|package| (normal_name(&package.name), package.name.clone()))
        .collect();
    names.sort();
    names.dedup_by(|one, other| one.0 == other.0);
    names
        .into_iter()
        .map(|(normal, name)| Change {
            before: version_in(before, &normal),
            after: version_in(after, &normal),
            name,
        })
        .filter(|change| change.before != change.after)
        .collect()
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
        };
        Contents {
            python: "3.13.0".into(),
            pip: None,
            packages: packages.iter().map(package).collect(),
        }
    }

    #[test]
    fn changes_are_what_differs() {
        let before = contents(&[("A_b", "1"), ("gone", "1"), ("same", "1")]);
        let after = contents(&[("a-b", "2"), ("new", "1"), ("same", "1")]);
        let found: Vec<(String, Option<String>, Option<String>)> = changes(&before, &after)
            .into_iter()
            .map(|change| (normal_name(&change.name), change.before, change.after))
            .collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            found,
            [
                ("a-b".into(), text("1"), text("2")),
                ("gone".into(), text("1"), None),
                ("new".into(), None, text("1")),
            ]
        );
    }

    #[test]
    fn only_what_was_just_installed_is_warned_of() {
        let before = contents(&[("inmanta-module-old", "1")]);
        let after = contents(&[("inmanta-module-old", "1"), ("inmanta-module-new", "1")]);
        let found = warnings(&changes(&before, &after), &after);
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
