//! Python environments for the modules of a project: finding an interpreter, making an environment,
//! and filling it with pip, without ever letting in the package that Orrery itself stands for.
//!
//! Start from `install::install`. `resolve` chooses versions, `lock` keeps them in a file of the project, `apply` installs them, with
//! uv or pip. It knows nothing of terminals and of the command line: what happens
//! is told to a listener, what came of it is an `Outcome`. `helper.py` is what the interpreter of an
//! environment does for it.

mod apply;
pub(crate) mod changes;
mod error;
mod helper;
mod inputs;
mod install;
mod interpreters;
pub(crate) mod lock;
mod note;
mod pip;
mod report;
mod request;
pub(crate) mod requirements;
mod resolve;
mod sdk;
mod stand_ins;
mod swap;
mod uv;

pub(crate) use changes::Change;
pub(crate) use error::Error;
pub(crate) use inputs::inputs_of;
pub(crate) use install::{install, note_again};
pub(crate) use pip::{Event, normal_name};
pub(crate) use request::{LockMode, Locking, Outcome, Request, Upgrade};
pub(crate) use sdk::{directory as sdk_directory, write_wheel as write_sdk_wheel};

use std::path::{Path, PathBuf};

/// Names of environments inside a project, in the order in which the compiler looks for them.
const NAMES: [&str; 2] = [".venv", ".env"];

/// The environment of a project: the one that is asked for, the one that is there, or the place for a
/// new one.
pub(crate) fn place(project: &Path, asked_for: Option<&Path>) -> PathBuf {
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

/// The version of Python that an environment was made with, by its own description.
fn python_version(dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(dir.join("pyvenv.cfg")).ok()?;
    let value = |key: &str| {
        let mut entries = text.lines().filter_map(|line| line.split_once('='));
        entries.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    };
    // The second is written by other tools, with more behind the third number.
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
        assert_eq!(place(project, None), project.join(".venv"));
        std::fs::create_dir_all(project.join(".env")).unwrap();
        assert_eq!(place(project, None), project.join(".venv"));
        std::fs::write(project.join(".env/pyvenv.cfg"), "version_info = 3.12.1.final.0\n").unwrap();
        assert_eq!(place(project, None), project.join(".env"));
        assert_eq!(python_version(&project.join(".env")).as_deref(), Some("3.12.1"));
        assert_eq!(place(project, Some(Path::new("/v"))), Path::new("/v"));
    }
}
