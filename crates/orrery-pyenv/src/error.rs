//! Errors of creating a virtualenv and of installing into it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::paths::python_of;

/// Maximum number of expected hashes that an error lists.
const HASHES_SHOWN: usize = 4;

#[derive(Debug, Error)]
pub enum Error {
    #[error("no Python found that can create a virtualenv")]
    NoPython,
    #[error("{python} cannot be used: {reason}")]
    UnusablePython { python: String, reason: String },
    #[error("{} is not empty and not a virtualenv", dir.display())]
    NotAnEnvironment { dir: PathBuf },
    #[error("{} contains {package}, which Orrery replaces", dir.display())]
    RealCore { dir: PathBuf, package: String },
    #[error("{} runs Python {is}, not {wanted}", dir.display())]
    OtherPython { dir: PathBuf, is: String, wanted: String },
    #[error("{} has no pip, or one before 22.2", dir.display())]
    NoPip { dir: PathBuf },
    #[error("conflicting requirements")]
    Conflict { said: String },
    #[error("pip could not reach its package index")]
    Unreachable { said: String },
    #[error("package not found")]
    NotFound { said: String },
    #[error("pip failed")]
    Pip { said: String },
    #[error("no orrery.lock")]
    LockMissing,
    #[error("cannot read orrery.lock: {reason}")]
    LockInvalid { reason: String },
    #[error("orrery.lock is out of date: {}", changed.join("; "))]
    LockOutdated { changed: Vec<String> },
    #[error(
        "orrery.lock was written for Python {locked}, and Python {python} needs other packages"
    )]
    LockIncomplete { locked: String, python: String, unmet: Vec<String> },
    #[error("{}", lacking(missing))]
    LockLacks { missing: Vec<String>, unmet: Vec<String> },
    #[error("hash mismatch: the file of {package} is not the one in orrery.lock")]
    HashMismatch { package: String, expected: Vec<String>, found: String },
    #[error("module {module} cannot be moved to the commit in orrery.lock: {reason}")]
    LockedModule { module: String, reason: String },
    #[error("module {module} was not updated: {reason}")]
    ChangedModule { module: String, path: PathBuf, reason: String },
    #[error("module {module} was not updated: {reason}")]
    ModuleNotUpdated { module: String, reason: String },
    #[error("module {module} cannot be installed: {reason}")]
    NoModuleVersion { module: String, reason: String },
    #[error("the directory of modules {} is outside of the repository", path.display())]
    ModulesElsewhere { path: PathBuf },
    #[error("ORRERY_UV: {} is not a program", program.display())]
    NoUv { program: PathBuf },
    #[error("could not {what}: {error}")]
    System { what: String, error: io::Error },
    #[error("could not inspect the virtualenv: {0}")]
    Helper(String),
    #[error("{0}")]
    Sdk(String),
    #[error("{text}")]
    Requirement { text: String },
}

impl Error {
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |error| Error::System { what, error }
    }

    /// Details: the output of pip, or the differences.
    pub fn details(&self) -> Option<String> {
        match self {
            Error::Conflict { said }
            | Error::Unreachable { said }
            | Error::NotFound { said }
            | Error::Pip { said } => Some(said.clone()),
            Error::LockIncomplete { unmet, .. } | Error::LockLacks { unmet, .. } => {
                Some(unmet.join("\n"))
            }
            Error::HashMismatch { expected, found, .. } => {
                let shown = expected.iter().take(HASHES_SHOWN);
                let mut lines: Vec<String> = shown.map(|hash| format!("expected {hash}")).collect();
                if expected.len() > HASHES_SHOWN {
                    lines.push(format!("      or {} more", expected.len() - HASHES_SHOWN));
                }
                lines.push(format!("found    {found}"));
                Some(lines.join("\n"))
            }
            _ => None,
        }
    }

    pub fn help(&self) -> Option<String> {
        Some(match self {
            Error::NoPython => "install Python 3.11, 3.12 or 3.13 with its `venv` and `ensurepip`, or name one with --python".into(),
            Error::UnusablePython { .. } => {
                "name another one with --python, as a version (3.12) or as the path of a program".into()
            }
            Error::NotAnEnvironment { .. } => "name another directory with --python-env".into(),
            Error::RealCore { dir, .. } => format!(
                "nothing was changed; keep that virtualenv for other tools and name another one with --python-env, or run `{} -m pip uninstall inmanta-core`",
                python_of(dir).display()
            ),
            Error::OtherPython { .. } => "--rebuild recreates the virtualenv".into(),
            Error::NoPip { dir } => {
                format!("run `{} -m ensurepip --upgrade`, or use --rebuild", python_of(dir).display())
            }
            Error::Conflict { .. } => "loosen one of these requirements; nothing was changed".into(),
            Error::Unreachable { .. } => {
                "check pip's index, proxy and certificates with `pip config list`; nothing was changed".into()
            }
            Error::NotFound { .. } => "check its name and version, and that it supports this Python; nothing was changed".into(),
            Error::LockMissing => {
                "run `orrery modules install` without --locked and --frozen, and commit the orrery.lock that it writes".into()
            }
            Error::LockInvalid { .. } => {
                "restore it from version control, or delete it and run `orrery modules install`".into()
            }
            Error::LockOutdated { .. } => "run `orrery modules install`, and commit orrery.lock".into(),
            Error::LockIncomplete { locked, .. } => format!(
                "use Python {locked} (--python {locked} --rebuild), or run `orrery modules install` with this one and commit orrery.lock"
            ),
            Error::LockLacks { .. } => {
                "restore orrery.lock from version control, or run `orrery modules install` without --locked and --frozen and commit it".into()
            }
            Error::HashMismatch { package, .. } => {
                let name = package.split(' ').next().unwrap_or(package);
                format!(
                    "not installed: find out why the file was replaced. If it can be trusted, `orrery modules update {name}` locks it"
                )
            }
            Error::LockedModule { module, .. } => format!(
                "`orrery modules update {module}` locks another commit; local changes of a module belong in its repository"
            ),
            Error::ChangedModule { module, path, .. } => format!(
                "push them to its repository, or take them out of {} (`git stash` for changes, `git branch` and `git checkout --detach` for commits); then run `orrery modules update {module}` again",
                path.display()
            ),
            Error::ModuleNotUpdated { .. } => {
                "nothing was locked; check that its repository can be reached: run `git fetch` in the clone".into()
            }
            Error::NoModuleVersion { .. } => {
                "change `requires` in project.yml or in the module.yml that requires it, or tag such a version in its repository".into()
            }
            Error::ModulesElsewhere { .. } => {
                "a server fetches modules into the checkout of the repository only: name directories below it in `modulepath` and `downloadpath` of project.yml".into()
            }
            Error::NoUv { .. } => {
                "set ORRERY_UV to the path of uv, unset it to use the one in the search path, or set it to 0 to use pip".into()
            }
            _ => return None,
        })
    }

    /// Error class for programs.
    pub fn class(&self) -> &'static str {
        match self {
            Error::NoPython | Error::UnusablePython { .. } => "no-python",
            Error::NotAnEnvironment { .. } => "not-an-environment",
            Error::RealCore { .. } => "real-core",
            Error::OtherPython { .. } => "other-python",
            Error::NoPip { .. } => "no-pip",
            Error::Conflict { .. } => "conflict",
            Error::Unreachable { .. } => "unreachable",
            Error::NotFound { .. } => "package-not-found",
            Error::Pip { .. } => "pip-failed",
            Error::LockMissing => "lock-missing",
            Error::LockInvalid { .. } => "lock-invalid",
            Error::LockOutdated { .. } => "lock-outdated",
            Error::LockIncomplete { .. } | Error::LockLacks { .. } => "lock-incomplete",
            Error::HashMismatch { .. } => "hash-mismatch",
            Error::LockedModule { .. } => "locked-module",
            Error::ChangedModule { .. } => "changed-module",
            Error::ModuleNotUpdated { .. } => "module-not-updated",
            Error::NoModuleVersion { .. } => "no-module-version",
            Error::ModulesElsewhere { .. } => "modules-elsewhere",
            Error::NoUv { .. } => "no-uv",
            Error::System { .. } => "system",
            Error::Helper(_) => "environment",
            Error::Sdk(_) => "no-sdk",
            Error::Requirement { .. } => "invalid-requirement",
        }
    }
}

/// Message for a lock file that lacks packages, although it was written for the same Python.
fn lacking(missing: &[String]) -> String {
    match missing {
        [] => "packages in orrery.lock conflict".to_owned(),
        [one] => format!("{one} is missing from orrery.lock"),
        several => format!("{} are missing from orrery.lock", several.join(", ")),
    }
}
