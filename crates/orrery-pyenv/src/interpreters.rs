//! Finds Python: to create the virtualenv of a project, and to run code.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;
use crate::paths::python_release;

/// Oldest Python that the SDK supports.
pub const OLDEST: PythonVersion = PythonVersion(3, 11);
/// Newest Python that is searched by name.
pub(crate) const NEWEST_MINOR: u32 = 15;
/// Minor versions for new virtualenvs: the newest that published modules support first, newer ones
/// last.
const MINORS: [u32; 6] = [13, 12, 11, 14, 15, 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PythonVersion(pub u32, pub u32);

impl fmt::Display for PythonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl PythonVersion {
    /// Parses `3.13.0`, `3.13` or `3.13.0.final.0`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.');
        Some(PythonVersion(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

/// An interpreter that the SDK runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    pub program: PathBuf,
    pub version: PythonVersion,
    /// Full version: `3.13.0`.
    pub release: String,
}

#[derive(Debug, thiserror::Error)]
pub enum PythonError {
    #[error(
        "no Python was found; install Python {OLDEST} or newer, or create a virtual environment in the project"
    )]
    NotFound,
    #[error("{} is Python {version}; Python {OLDEST} or newer is needed", program.display())]
    TooOld { program: PathBuf, version: PythonVersion },
    #[error("the virtual environment {} has no working Python; create it again", .0.display())]
    BrokenEnvironment(PathBuf),
}

impl Interpreter {
    /// Returns the interpreter of a virtualenv, or else the first on the search path that is new
    /// enough.
    ///
    /// # Errors
    /// Fails if there is none, or the virtualenv's is too old.
    pub fn find(environment: Option<&Path>) -> Result<Self, PythonError> {
        match environment {
            Some(dir) => Interpreter::of_environment(dir),
            None => SearchPaths::of_this_machine().first(),
        }
    }

    /// Returns an interpreter for code of a Python version such as `3.13`: the same version if
    /// available on the search path or from pyenv, else a newer one, else the first that is new
    /// enough.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn find_for(version: Option<&str>) -> Result<Self, PythonError> {
        SearchPaths::of_this_machine().find_for_code(version.and_then(PythonVersion::parse))
    }

    fn of_environment(dir: &Path) -> Result<Self, PythonError> {
        let broken = || PythonError::BrokenEnvironment(dir.to_owned());
        let programs = ["bin/python", "bin/python3"].map(|name| dir.join(name));
        let program = programs.into_iter().find(|program| program.exists()).ok_or_else(broken)?;
        // Reading a file is faster than running Python.
        let configured = python_release(dir)
            .and_then(|release| Some((PythonVersion::parse(&release)?, release)));
        let asked = || probe(&program, Purpose::RunCode).ok();
        let found = configured.or_else(|| asked().map(|found| (found.version, found.release)));
        let (version, release) = found.ok_or_else(broken)?;
        if version < OLDEST {
            return Err(PythonError::TooOld { program, version });
        }
        Ok(Interpreter { program, version, release })
    }
}

/// Search paths for interpreters; injectable for tests.
pub(crate) struct SearchPaths {
    path: Vec<PathBuf>,
    /// Directories of version managers, with a subdirectory per version.
    versions: Vec<PathBuf>,
}

impl SearchPaths {
    pub(crate) fn of_this_machine() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let home = variable("HOME").map(PathBuf::from);
        let root = variable("PYENV_ROOT").map(PathBuf::from);
        let root = root.or_else(|| home.map(|home| home.join(".pyenv")));
        let path = variable("PATH").unwrap_or_default();
        SearchPaths {
            path: std::env::split_paths(&path).collect(),
            versions: root.map(|root| root.join("versions")).into_iter().collect(),
        }
    }

    /// Programs of a name on the search path.
    fn named(&self, name: &str) -> impl Iterator<Item = PathBuf> + use<> {
        let programs: Vec<PathBuf> = self.path.iter().map(|dir| dir.join(name)).collect();
        programs.into_iter().filter(|program| program.is_file())
    }

    /// Directories of version managers: those of Python 3.`minor` first, the newest first.
    fn managed(&self, minor: u32) -> Vec<(Option<u32>, PathBuf)> {
        let prefix = format!("3.{minor}.");
        let patch_of = |dir: &Path| {
            let name = dir.file_name()?.to_str()?.strip_prefix(&prefix)?;
            Some(name.rsplit('.').next()?.parse().unwrap_or(0))
        };
        let entries = self.versions.iter().filter_map(|dir| std::fs::read_dir(dir).ok());
        let dirs = entries.flatten().flatten().map(|entry| entry.path());
        let mut dirs: Vec<_> = dirs.map(|dir| (patch_of(&dir), dir)).collect();
        dirs.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        dirs
    }

    /// Returns an interpreter for code of a Python version; the first one without a version.
    fn find_for_code(&self, preferred: Option<PythonVersion>) -> Result<Interpreter, PythonError> {
        let usual = self.first();
        let Some(preferred) = preferred else { return usual };
        if usual.as_ref().is_ok_and(|usual| usual.version == preferred) {
            return usual;
        }
        for minor in preferred.1..=NEWEST_MINOR {
            let name = format!("python3.{minor}");
            let managed =
                self.managed(minor).into_iter().map(|(_, dir)| dir.join("bin").join(&name));
            let programs = self.named(&name).chain(managed.filter(|program| program.is_file()));
            // A program of that name may belong to a version manager with another version selected.
            let mut found = programs.filter_map(|program| probe(&program, Purpose::RunCode).ok());
            if let Some(found) = found.find(|found| found.version == PythonVersion(3, minor)) {
                return Ok(found);
            }
        }
        usual
    }

    /// First interpreter on the search path that is new enough.
    fn first(&self) -> Result<Interpreter, PythonError> {
        let versioned = (OLDEST.1..=NEWEST_MINOR).rev().map(|minor| format!("python3.{minor}"));
        let names = std::iter::once("python3".to_owned()).chain(versioned);
        let mut too_old = None;
        for name in names.chain(std::iter::once("python".to_owned())) {
            for program in self.named(&name) {
                match probe(&program, Purpose::RunCode) {
                    Ok(found) if found.version >= OLDEST => return Ok(found),
                    Ok(found) => too_old = too_old.or(Some(found)),
                    Err(_) => {}
                }
            }
        }
        Err(match too_old {
            Some(Interpreter { program, version, .. }) => PythonError::TooOld { program, version },
            None => PythonError::NotFound,
        })
    }

    /// Candidates of Python 3.`minor` for a new virtualenv, most likely first.
    fn candidates(&self, minor: u32) -> impl Iterator<Item = PathBuf> {
        let name = format!("python3.{minor}");
        let releases = self.managed(minor).into_iter().filter(|(patch, _)| patch.is_some());
        let programs: Vec<PathBuf> = releases.map(|(_, dir)| dir.join("bin").join(&name)).collect();
        programs.into_iter().filter(|program| program.is_file()).chain(self.named(&name))
    }

    /// Finds the newest Python that can create virtualenvs, or the requested one: a version such as
    /// `3.12`, a program name, or a path.
    pub(crate) fn find_for_virtualenv(&self, wanted: Option<&str>) -> Result<Interpreter, Error> {
        let Some(wanted) = wanted else {
            let all = MINORS.iter().flat_map(|minor| self.candidates(*minor));
            let mut usable =
                all.chain(self.named("python3")).filter_map(|path| creator(&path).ok());
            return usable.next().ok_or(Error::NoPython);
        };
        let unusable = |reason: String| Error::UnusablePython { python: wanted.to_owned(), reason };
        if let Some(minor) = wanted.strip_prefix("3.") {
            let minor = minor.split('.').next().unwrap_or_default();
            if let Ok(minor) = minor.parse() {
                let exact = |found: &Interpreter| {
                    found.release == wanted || found.release.starts_with(&format!("{wanted}."))
                };
                let mut reason = "no such version found".to_owned();
                for path in self.candidates(minor) {
                    match creator(&path) {
                        Ok(found) if exact(&found) => return Ok(found),
                        Ok(_) => {}
                        Err(why) => reason = why,
                    }
                }
                return Err(unusable(reason));
            }
        }
        let path = if wanted.contains('/') {
            PathBuf::from(wanted)
        } else {
            self.named(wanted)
                .next()
                .ok_or_else(|| unusable("no such program in the search path".into()))?
        };
        creator(&path).map_err(unusable)
    }
}

/// Probes an interpreter that shall create a virtualenv.
fn creator(program: &Path) -> Result<Interpreter, String> {
    let found = probe(program, Purpose::CreateVirtualenv)?;
    if found.version < OLDEST {
        return Err(format!("Python {} is too old, {OLDEST} or newer is required", found.release));
    }
    // The program as it was found, which is what messages name.
    Ok(Interpreter { program: program.to_owned(), ..found })
}

/// Required abilities of an interpreter.
#[derive(Clone, Copy)]
enum Purpose {
    RunCode,
    /// Some installations lack `ensurepip`.
    CreateVirtualenv,
}

/// Runs an interpreter to get its version and path. A program on the search path may be a script
/// that selects one; the selected interpreter is used from then on.
fn probe(program: &Path, purpose: Purpose) -> Result<Interpreter, String> {
    const QUESTION: &str =
        "import sys; print('%d.%d.%d' % sys.version_info[:3]); print(sys.executable)";
    let mut command = Command::new(program);
    match purpose {
        // Without `site`: it starts faster.
        Purpose::RunCode => command.args(["-I", "-S", "-c", QUESTION]),
        Purpose::CreateVirtualenv => {
            command.args(["-I", "-c", &format!("import ensurepip, venv; {QUESTION}")])
        }
    };
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed");
        return Err(last.trim().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let release = lines.next().unwrap_or_default().trim().to_owned();
    let version = PythonVersion::parse(&release)
        .ok_or_else(|| format!("Python {release} is too old, {OLDEST} or newer is required"))?;
    let executable = lines.next().map(PathBuf::from).filter(|path| path.is_absolute());
    let program = executable.unwrap_or_else(|| program.to_owned());
    Ok(Interpreter { program, version, release })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use orrery_testing::write_program;

    /// A program that behaves like Python.
    fn fake(path: &Path, script: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_program(path, &format!("#!/bin/sh\n{script}\n")).unwrap();
    }

    fn machine(programs: &[(&str, &str)]) -> (tempfile::TempDir, SearchPaths) {
        let scratch = tempfile::tempdir().unwrap();
        for (path, script) in programs {
            fake(&scratch.path().join(path), script);
        }
        let places = SearchPaths {
            path: vec![scratch.path().join("one"), scratch.path().join("two")],
            versions: vec![scratch.path().join("versions")],
        };
        (scratch, places)
    }

    #[test]
    fn the_newest_that_works_is_taken() {
        let (scratch, places) = machine(&[
            ("one/python3.13", "echo 'choose a version' >&2; exit 127"),
            ("versions/3.12.9/bin/python3.12", "echo 3.12.9"),
            ("versions/3.12.10/bin/python3.12", "echo 3.12.10"),
            ("two/python3.11", "echo 3.11.2"),
            ("two/python3.14", "echo 3.14.0"),
            ("two/python3", "echo 3.9.1"),
        ]);
        let found = places.find_for_virtualenv(None).unwrap();
        assert_eq!(found.release, "3.12.10");
        assert_eq!(found.program, scratch.path().join("versions/3.12.10/bin/python3.12"));
        assert_eq!(places.find_for_virtualenv(Some("3.11")).unwrap().release, "3.11.2");
        assert_eq!(places.find_for_virtualenv(Some("3.12.9")).unwrap().release, "3.12.9");
        assert_eq!(places.find_for_virtualenv(Some("python3.14")).unwrap().release, "3.14.0");
    }

    #[test]
    fn rejected_interpreters_have_a_reason() {
        let (scratch, places) = machine(&[
            ("one/python3", "echo 3.9.1"),
            ("one/python3.10", "echo 3.10.1"),
            ("one/broken", "echo 'no module named ensurepip' >&2; exit 1"),
        ]);
        assert!(matches!(places.find_for_virtualenv(None), Err(Error::NoPython)));
        let reason = |wanted: &str| match places.find_for_virtualenv(Some(wanted)) {
            Err(Error::UnusablePython { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason("python3"), "Python 3.9.1 is too old, 3.11 or newer is required");
        assert_eq!(reason("broken"), "no module named ensurepip");
        assert_eq!(reason("3.12"), "no such version found");
        assert_eq!(reason("3.10"), "Python 3.10.1 is too old, 3.11 or newer is required");
        assert_eq!(reason("nowhere"), "no such program in the search path");
        let absent = scratch.path().join("absent");
        assert!(reason(absent.to_str().unwrap()).contains("No such file"));
    }

    /// Writes a script that answers like an interpreter of this version.
    fn interpreter(dir: &Path, name: &str, version: &str) -> PathBuf {
        let path = dir.join(name);
        fake(&path, &format!("echo {version}\necho {}", path.display()));
        path
    }

    #[test]
    fn the_first_interpreter_that_is_new_enough_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let places = SearchPaths { path: vec![one.clone(), two.clone()], versions: Vec::new() };
        assert!(matches!(places.first(), Err(PythonError::NotFound)));
        interpreter(&one, "python3", "3.9");
        let error = places.first().unwrap_err();
        assert!(error.to_string().contains("is Python 3.9; Python 3.11 or newer"), "{error}");
        let newer = interpreter(&two, "python3.12", "3.12");
        let found = places.first().unwrap();
        assert_eq!((found.program, found.version), (newer, PythonVersion(3, 12)));
        let default = interpreter(&two, "python3", "3.11");
        assert_eq!(places.first().unwrap().program, default);
    }

    #[test]
    fn code_runs_with_its_python_version_or_a_newer_one() {
        let dir = tempfile::tempdir().unwrap();
        let (path, versions) = (dir.path().join("path"), dir.path().join("versions"));
        let version = |preferred: Option<PythonVersion>| {
            let places = SearchPaths { path: vec![path.clone()], versions: vec![versions.clone()] };
            places.find_for_code(preferred).unwrap().version
        };
        interpreter(&path, "python3", "3.11");
        assert_eq!(version(Some(PythonVersion(3, 13))), PythonVersion(3, 11));
        interpreter(&path, "python3.14", "3.14");
        assert_eq!(version(Some(PythonVersion(3, 13))), PythonVersion(3, 14));
        // A program that selects another version does not count.
        interpreter(&path, "python3.13", "3.11");
        assert_eq!(version(Some(PythonVersion(3, 13))), PythonVersion(3, 14));
        interpreter(&versions, "3.13.1/bin/python3.13", "3.13");
        assert_eq!(version(Some(PythonVersion(3, 13))), PythonVersion(3, 13));
        assert_eq!(version(Some(PythonVersion(3, 11))), PythonVersion(3, 11));
        assert_eq!(version(None), PythonVersion(3, 11));
    }

    #[test]
    fn a_virtualenv_is_used_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let find = || Interpreter::find(Some(dir.path()));
        assert!(matches!(find(), Err(PythonError::BrokenEnvironment(_))));
        let program = interpreter(dir.path(), "bin/python", "3.13.2");
        let (version, release) = (PythonVersion(3, 13), "3.13.2".to_owned());
        assert_eq!(find().unwrap(), Interpreter { program, version, release });
        let configure = |text| std::fs::write(dir.path().join("pyvenv.cfg"), text).unwrap();
        configure("home = /usr/bin\nversion_info = 3.12.1.final.0\n");
        assert_eq!(find().unwrap().version, PythonVersion(3, 12));
        configure("version = 3.10.2\n");
        assert!(matches!(find(), Err(PythonError::TooOld { .. })));
    }
}
