//! A sandbox and a policy that belong together, for those who start programs and know nothing of either.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Policy, Sandbox};

/// What confines the programs of one tenant.
#[derive(Clone, Debug)]
pub struct Confinement {
    pub sandbox: Sandbox,
    pub policy: Policy,
}

impl Confinement {
    /// The command that runs a program; see [`Sandbox::command`].
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

    /// Makes a directory that programs of this tenant can write. One that belongs to somebody else is made anew: what is in it was made
    /// under another identity. Its parent has to be closed to tenants.
    ///
    /// # Errors
    /// If it cannot be made, or not be given away.
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
