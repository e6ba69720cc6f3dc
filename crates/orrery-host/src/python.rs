//! Selection of the Python interpreter, and the command that starts a host.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::HostCommand;
use crate::sdk::{self, SdkError};

/// Oldest Python that the SDK supports.
pub const OLDEST: PythonVersion = PythonVersion(3, 11);
/// Newest Python that is searched by name.
const NEWEST_MINOR: u32 = 15;

/// Starts the SDK in the directory of the first argument. The directory precedes all installed
/// packages; a variable would do the same, but programs that handlers start would inherit it. The
/// directory belongs to this program, so Python may write its caches there, whatever the user's
/// settings.
const START: &str = "import sys; sys.path.insert(0, sys.argv.pop(1)); import runpy; \
                     sys.dont_write_bytecode = False; \
                     runpy.run_module('orrery_sdk', run_name='__main__', alter_sys=True)";

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
    #[error(transparent)]
    Sdk(#[from] SdkError),
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
            None => Interpreter::on_path(std::env::var_os("PATH").unwrap_or_default()),
        }
    }

    /// Returns an interpreter for code of a Python version such as `3.13`: the same version if
    /// available on the search path or from pyenv, else a newer one, else the first that is new
    /// enough.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn find_for(version: Option<&str>) -> Result<Self, PythonError> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let root = variable("PYENV_ROOT").map(PathBuf::from);
        let root = root.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".pyenv")));
        let versions = root.map(|root| root.join("versions"));
        let path = variable("PATH").unwrap_or_default();
        Interpreter::among(path, versions.as_deref(), version.and_then(PythonVersion::parse))
    }

    fn among(
        path: OsString,
        versions: Option<&Path>,
        preferred: Option<PythonVersion>,
    ) -> Result<Self, PythonError> {
        let usual = Interpreter::on_path(path.clone());
        let Some(preferred) = preferred else { return usual };
        if usual.as_ref().is_ok_and(|usual| usual.version == preferred) {
            return usual;
        }
        for minor in preferred.1..=NEWEST_MINOR {
            let name = format!("python3.{minor}");
            let mut programs: Vec<PathBuf> =
                std::env::split_paths(&path).map(|dir| dir.join(&name)).collect();
            let managed = versions.and_then(|dir| std::fs::read_dir(dir).ok());
            let managed = managed.into_iter().flatten().flatten();
            programs.extend(managed.map(|entry| entry.path().join("bin").join(&name)));
            programs.retain(|program| program.is_file());
            // A program of that name may belong to a version manager with another version selected.
            let found = programs.iter().filter_map(|program| ask(program));
            if let Some(found) =
                found.into_iter().find(|found| found.version == PythonVersion(3, minor))
            {
                return Ok(found);
            }
        }
        usual
    }

    fn of_environment(dir: &Path) -> Result<Self, PythonError> {
        let broken = || PythonError::BrokenEnvironment(dir.to_owned());
        let programs = ["bin/python", "bin/python3"].map(|name| dir.join(name));
        let program = programs.into_iter().find(|program| program.exists()).ok_or_else(broken)?;
        // Reading a file is faster than running Python.
        let version = configured_version(dir).or_else(|| Some(ask(&program)?.version));
        let version = version.ok_or_else(broken)?;
        if version < OLDEST {
            return Err(PythonError::TooOld { program, version });
        }
        Ok(Interpreter { program, version })
    }

    fn on_path(path: OsString) -> Result<Self, PythonError> {
        let versioned = (OLDEST.1..=NEWEST_MINOR).rev().map(|minor| format!("python3.{minor}"));
        let names = std::iter::once("python3".to_owned()).chain(versioned);
        let mut too_old = None;
        for name in names.chain(std::iter::once("python".to_owned())) {
            let candidates = std::env::split_paths(&path).map(|dir| dir.join(&name));
            for program in candidates.filter(|program| program.is_file()) {
                match ask(&program) {
                    Some(found) if found.version >= OLDEST => return Ok(found),
                    Some(found) => too_old = too_old.or(Some(found)),
                    None => {}
                }
            }
        }
        Err(match too_old {
            Some(Interpreter { program, version }) => PythonError::TooOld { program, version },
            None => PythonError::NotFound,
        })
    }

    /// Returns the command that starts a host of the SDK.
    ///
    /// # Errors
    /// Fails if the SDK cannot be unpacked.
    pub fn host(&self, name: &str) -> Result<HostCommand, PythonError> {
        host_command(&self.program, name)
    }
}

/// Returns the command that starts a host of the SDK with an interpreter that is known to be new
/// enough.
///
/// # Errors
/// Fails if the SDK cannot be unpacked.
pub fn host_command(program: &Path, name: &str) -> Result<HostCommand, PythonError> {
    let sdk = OsString::from(sdk::directory()?);
    // -P: ignores modules in the working directory. -u: unbuffered, so that output survives the
    // death of the process.
    let mut arguments = ["-P", "-u", "-c", START].map(OsString::from).to_vec();
    arguments.push(sdk);
    Ok(HostCommand {
        name: name.to_owned(),
        program: program.to_owned(),
        arguments,
        // Makes output reproducible where code iterates over a set.
        environment: vec![("PYTHONHASHSEED".into(), "0".into())],
        directory: None,
        memory_max: None,
        confinement: None,
    })
}

/// Returns directories with interpreters and other programs of this machine, to expose in a sandbox
/// that hides home directories.
pub fn installations() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = variable("HOME").map(PathBuf::from);
    let path = variable("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> =
        std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
    let names = (OLDEST.1..=NEWEST_MINOR).map(|minor| format!("python3.{minor}"));
    let names: Vec<String> = names.chain(["python3".to_owned(), "uv".to_owned()]).collect();
    // Link targets of programs, with the libraries beside them.
    let programs = found.iter().flat_map(|dir| names.iter().map(|name| dir.join(name)));
    let real = programs.filter_map(|program| {
        let program = std::fs::canonicalize(program).ok()?;
        let prefix = program.parent().filter(|dir| dir.ends_with("bin"))?.parent()?;
        // A home directory with a `bin` is not a prefix.
        let is_home =
            home.as_deref() == Some(prefix) || prefix.parent() == Some(Path::new("/home"));
        (!is_home && prefix.parent().is_some()).then(|| prefix.to_owned())
    });
    let real: Vec<PathBuf> = real.collect();
    found.extend(real);
    let managed = variable("PYENV_ROOT").map(PathBuf::from);
    found.extend(managed.or_else(|| Some(home.as_ref()?.join(".pyenv"))));
    found.extend(home.map(|home| home.join(".local/share/uv/python")));
    found.retain(|dir| dir.is_dir());
    found.sort();
    found.dedup();
    found
}

/// Returns the version in `pyvenv.cfg`: `version = 3.13.0`, or `version_info` of another tool.
fn configured_version(dir: &Path) -> Option<PythonVersion> {
    let text = std::fs::read_to_string(dir.join("pyvenv.cfg")).ok()?;
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim())
        })
    };
    PythonVersion::parse(value("version").or_else(|| value("version_info"))?)
}

/// Runs an interpreter to get its version and path. A program on the search path may be a script
/// that selects one; the selected interpreter is used from then on.
fn ask(program: &Path) -> Option<Interpreter> {
    let question = "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.executable)";
    let mut command = Command::new(program);
    command.args(["-I", "-S", "-c", question]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut lines = text.lines();
    let version = PythonVersion::parse(lines.next()?)?;
    let executable = lines.next().map(PathBuf::from).filter(|path| path.is_absolute());
    Some(Interpreter { program: executable.unwrap_or_else(|| program.to_owned()), version })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Writes a script that answers like an interpreter of this version.
    fn interpreter(dir: &Path, name: &str, version: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let script = format!("#!/bin/sh\necho {version}\necho {}\n", path.display());
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_first_interpreter_that_is_new_enough_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let path = std::env::join_paths([&one, &two]).unwrap();
        assert!(matches!(Interpreter::on_path(path.clone()), Err(PythonError::NotFound)));
        interpreter(&one, "python3", "3.9");
        let error = Interpreter::on_path(path.clone()).unwrap_err();
        assert!(error.to_string().contains("is Python 3.9; Python 3.11 or newer"), "{error}");
        let newer = interpreter(&two, "python3.12", "3.12");
        let found = Interpreter::on_path(path.clone()).unwrap();
        assert_eq!((found.program, found.version), (newer, PythonVersion(3, 12)));
        let default = interpreter(&two, "python3", "3.11");
        assert_eq!(Interpreter::on_path(path).unwrap().program, default);
    }

    #[test]
    fn code_runs_with_its_python_version_or_a_newer_one() {
        let dir = tempfile::tempdir().unwrap();
        let (path, versions) = (dir.path().join("path"), dir.path().join("versions"));
        let version = |preferred: Option<PythonVersion>| {
            let path = std::env::join_paths([&path]).unwrap();
            Interpreter::among(path, Some(&versions), preferred).unwrap().version
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
        let program = interpreter(dir.path(), "bin/python", "3.13");
        assert_eq!(find().unwrap(), Interpreter { program, version: PythonVersion(3, 13) });
        let configure = |text| std::fs::write(dir.path().join("pyvenv.cfg"), text).unwrap();
        configure("home = /usr/bin\nversion_info = 3.12.1.final.0\n");
        assert_eq!(find().unwrap().version, PythonVersion(3, 12));
        configure("version = 3.10.2\n");
        assert!(matches!(find(), Err(PythonError::TooOld { .. })));
    }
}
