//! A sandbox with its policy, as one value for code that starts programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Sandbox, SandboxPolicy};

/// Confinement of one tenant's programs.
#[derive(Clone, Debug)]
pub struct Confinement {
    pub sandbox: Sandbox,
    pub policy: SandboxPolicy,
}

impl Confinement {
    /// Returns the command that runs a program; see [`Sandbox::command`].
    pub fn command(&self, program: &Path) -> Command {
        self.sandbox.command(&self.policy, program)
    }

    #[must_use]
    pub fn readable(mut self, path: impl Into<PathBuf>) -> Self {
        self.policy.readable.push(path.into());
        self
    }

    #[must_use]
    pub fn writable(mut self, path: impl Into<PathBuf>) -> Self {
        self.policy.writable.push(path.into());
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.policy.set(name, value);
        self
    }

    /// Creates a directory that this tenant's programs can write. A directory of another user is
    /// recreated, since its content has another owner. Its parent must be inaccessible to tenants.
    ///
    /// # Errors
    /// Fails if it cannot be created, or its owner not be changed.
    pub fn make_directory(&self, path: &Path) -> std::io::Result<()> {
        use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
        let user = self.policy.uid;
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() && user.is_none_or(|user| found.uid() == user) => {
                return Ok(());
            }
            Ok(found) if found.is_dir() => std::fs::remove_dir_all(path)?,
            Ok(_) => std::fs::remove_file(path)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::DirBuilder::new().mode(0o700).create(path)?;
        match user {
            Some(user) => std::os::unix::fs::lchown(path, Some(user), Some(user)),
            None => Ok(()),
        }
    }
}
