//! Virtualenvs for the modules of a project: finds an interpreter, creates the virtualenv, and
//! installs packages, but never the packages that Orrery replaces.
//!
//! Start from `install::install`. `resolve` chooses versions, `lock` stores them in a file of the
//! project, and `install_locked` installs them with uv or pip. Independent of the command line:
//! progress goes to a listener, and the result is an `Outcome`. `helper.py` runs in the interpreter
//! of the virtualenv.

mod atomic_replace;
pub(crate) mod changes;
mod error;
mod helper;
mod inputs;
mod install;
mod install_locked;
mod install_record;
mod interpreters;
pub(crate) mod lock;
mod pip;
mod report;
mod request;
pub(crate) mod requirements;
mod resolve;
mod sdk;
mod shim_packages;
mod uv;

pub(crate) use changes::Change;
pub(crate) use error::Error;
pub(crate) use inputs::inputs_of;
pub(crate) use install::{install, refresh_record};
pub(crate) use pip::{Event, normal_name};
pub(crate) use request::{LockMode, Locking, Outcome, Request, Upgrade};
pub(crate) use sdk::{directory as sdk_directory, write_wheel as write_sdk_wheel};

use std::path::{Path, PathBuf};

/// Names of virtualenvs in a project, in the compiler's search order.
const NAMES: [&str; 2] = [".venv", ".env"];

/// Path of a project's virtualenv: the requested one, the existing one, or that of a new one.
pub(crate) fn environment_path(project: &Path, asked_for: Option<&Path>) -> PathBuf {
    if let Some(dir) = asked_for {
        return dir.to_owned();
    }
    let inside = NAMES.map(|name| project.join(name));
    let existing = inside.iter().find(|dir| is_environment(dir));
    existing.unwrap_or(&inside[0]).clone()
}

pub(crate) fn is_environment(dir: &Path) -> bool {
    dir.join("pyvenv.cfg").is_file()
}

/// Python version of a virtualenv, from pyvenv.cfg.
fn python_version(dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(dir.join("pyvenv.cfg")).ok()?;
    let value = |key: &str| {
        let mut entries = text.lines().filter_map(|line| line.split_once('='));
        entries.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    };
    // Other tools write `version_info`, with a suffix after the third number.
    let version = value("version").or_else(|| value("version_info"))?;
    Some(version.split('.').take(3).collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_a_project_is_the_one_that_is_there() {
        let scratch = tempfile::tempdir().unwrap();
        let project = scratch.path();
        assert_eq!(environment_path(project, None), project.join(".venv"));
        std::fs::create_dir_all(project.join(".env")).unwrap();
        assert_eq!(environment_path(project, None), project.join(".venv"));
        std::fs::write(project.join(".env/pyvenv.cfg"), "version_info = 3.12.1.final.0\n").unwrap();
        assert_eq!(environment_path(project, None), project.join(".env"));
        assert_eq!(python_version(&project.join(".env")).as_deref(), Some("3.12.1"));
        assert_eq!(environment_path(project, Some(Path::new("/v"))), Path::new("/v"));
    }
}
