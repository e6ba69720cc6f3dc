//! Why an environment could not be made or filled.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error("no Python was found that can make an environment")]
    NoPython,
    #[error("{python} cannot be used: {reason}")]
    UnusablePython { python: String, reason: String },
    #[error("{} is not empty, and no Python environment", dir.display())]
    NotAnEnvironment { dir: PathBuf },
    #[error("{} has {package} in it, which is what Orrery stands for", dir.display())]
    RealCore { dir: PathBuf, package: String },
    #[error("{} runs Python {is}, not {wanted}", dir.display())]
    OtherPython { dir: PathBuf, is: String, wanted: String },
    #[error("{} has no pip, or one before 22.2", dir.display())]
    NoPip { dir: PathBuf },
    #[error("what is asked for contradicts itself")]
    Conflict { said: String },
    #[error("pip could not reach its index of packages")]
    Unreachable { said: String },
    #[error("a package was not found")]
    NotFound { said: String },
    #[error("pip failed")]
    Pip { said: String },
    #[error("could not {what}: {error}")]
    System { what: String, error: io::Error },
    #[error("could not look into the environment: {0}")]
    Helper(String),
    #[error("{0}")]
    Sdk(String),
    #[error("{text}")]
    Requirement { text: String },
}

impl Error {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |error| Error::System { what, error }
    }

    /// What pip said about it.
    pub(crate) fn said(&self) -> Option<&str> {
        match self {
            Error::Conflict { said }
            | Error::Unreachable { said }
            | Error::NotFound { said }
            | Error::Pip { said } => Some(said),
            _ => None,
        }
    }

    pub(crate) fn help(&self) -> Option<String> {
        Some(match self {
            Error::NoPython => "install Python 3.11, 3.12 or 3.13 with its `venv` and `ensurepip`, or name one with --python".into(),
            Error::UnusablePython { .. } => {
                "name another one with --python, as a version (3.12) or as the path of a program".into()
            }
            Error::NotAnEnvironment { .. } => "name another directory with --python-env".into(),
            Error::RealCore { dir, .. } => format!(
                "nothing was changed; keep that environment for other tools and name another one with --python-env, or run `{} -m pip uninstall inmanta-core`",
                python_of(dir).display()
            ),
            Error::OtherPython { .. } => "--rebuild makes the environment anew".into(),
            Error::NoPip { dir } => {
                format!("run `{} -m ensurepip --upgrade`, or use --rebuild", python_of(dir).display())
            }
            Error::Conflict { .. } => "loosen one of these requirements; nothing was changed".into(),
            Error::Unreachable { .. } => {
                "pip takes its index, proxy and certificates from its own configuration: `pip config list` shows it; nothing was changed".into()
            }
            Error::NotFound { .. } => "check its name and version, and that there is one for this Python; nothing was changed".into(),
            _ => return None,
        })
    }

    /// A word for programs.
    pub(crate) fn class(&self) -> &'static str {
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
            Error::System { .. } => "system",
            Error::Helper(_) => "environment",
            Error::Sdk(_) => "no-sdk",
            Error::Requirement { .. } => "invalid-requirement",
        }
    }
}

/// The interpreter of the environment in a directory.
pub(crate) fn python_of(dir: &Path) -> PathBuf {
    dir.join("bin/python")
}
