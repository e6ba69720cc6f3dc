//! Boundary of a sandbox: paths that are not the machine's, and errors that the sandbox causes.
//!
//! A sandbox covers directories with file systems of its own: temporary files, home directories,
//! the files of the server. Files written there vanish with the sandbox, and files missing there
//! may exist on the machine. Both would be reported as done.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use orrery_handlers::target::Result;
use orrery_handlers::{Cause, TargetError};

use super::message::TargetOperation;

/// The sandbox of a target host.
#[derive(Debug, Default)]
pub struct SandboxBoundary {
    /// Devices of the file systems that cover those of the machine.
    covers: Vec<u64>,
    user: u32,
    /// True if the machine is writable only at granted paths.
    is_read_only: bool,
    is_confined: bool,
}

impl SandboxBoundary {
    /// No sandbox: errors are those of the machine.
    pub fn none() -> Self {
        SandboxBoundary::default()
    }

    /// Returns the sandbox of this process, which covers these paths.
    pub fn new(covered: impl IntoIterator<Item = PathBuf>, is_read_only: bool) -> Self {
        let root = device(Path::new("/"));
        let mut covers: Vec<u64> = covered.into_iter().filter_map(|path| device(&path)).collect();
        // A path that could not be covered looks the same as outside.
        covers.retain(|device| Some(*device) != root);
        covers.sort_unstable();
        covers.dedup();
        let user = rustix::process::geteuid().as_raw();
        SandboxBoundary { covers, user, is_read_only, is_confined: true }
    }

    /// Rejects operations on paths that are not the machine's.
    pub(super) fn check(&self, what: &TargetOperation) -> Result<()> {
        let Some((operation, path)) = what.path().filter(|_| !self.covers.is_empty()) else {
            return Ok(());
        };
        match self.covers.contains(&holder(Path::new(path)).unwrap_or_default()) {
            true => {
                let text = "this environment's sandbox on the server's own machine has its own directory at this path";
                Err(TargetError::new(operation, path, Cause::Confined(text.to_owned())))
            }
            false => Ok(()),
        }
    }

    /// Marks an error that the sandbox caused.
    pub(super) fn explain(&self, mut error: TargetError) -> TargetError {
        let cause = match error.cause {
            Cause::PermissionDenied if self.is_confined => format!(
                "permission denied for this environment's user {} on the server's own machine",
                self.user
            ),
            Cause::ReadOnly if self.is_read_only => {
                "this environment's sandbox on the server's own machine may not write there"
                    .to_owned()
            }
            _ => return error,
        };
        error.cause = Cause::Confined(cause);
        error
    }
}

fn device(path: &Path) -> Option<u64> {
    Some(std::fs::metadata(path).ok()?.dev())
}

/// Returns the file system of a path: of a directory itself, of anything else's directory.
fn holder(path: &Path) -> Option<u64> {
    let found = std::fs::symlink_metadata(path).ok();
    if let Some(found) = found.filter(std::fs::Metadata::is_dir) {
        return Some(found.dev());
    }
    path.ancestors().skip(1).find_map(device)
}
