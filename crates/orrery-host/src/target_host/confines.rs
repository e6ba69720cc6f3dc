//! Where a sandbox ends: what a target host must not take for its machine, and what its errors mean.
//!
//! A sandbox covers directories with file systems of its own: temporary files, home directories, the files of the server. What is written
//! there is gone with the sandbox, and what is missing there may well be on the machine. Both would be reported as done.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use orrery_handlers::target::Result;
use orrery_handlers::{Cause, TargetError};

use super::message::What;

/// The sandbox of a target host.
#[derive(Debug, Default)]
pub struct Confines {
    /// File systems that cover those of the machine.
    covers: Vec<u64>,
    user: u32,
    /// Whether it writes to the machine only where that was granted.
    is_read_only: bool,
    is_confined: bool,
}

impl Confines {
    /// No sandbox: errors are those of the machine.
    pub fn none() -> Self {
        Confines::default()
    }

    /// The sandbox of this process, which covers these paths.
    pub fn new(covered: impl IntoIterator<Item = PathBuf>, is_read_only: bool) -> Self {
        let root = device(Path::new("/"));
        let mut covers: Vec<u64> = covered.into_iter().filter_map(|path| device(&path)).collect();
        // A path that could not be covered looks as it does outside.
        covers.retain(|device| Some(*device) != root);
        covers.sort_unstable();
        covers.dedup();
        let user = rustix::process::geteuid().as_raw();
        Confines { covers, user, is_read_only, is_confined: true }
    }

    /// Refuses what concerns a path that is not the machine's here.
    pub(super) fn check(&self, what: &What) -> Result<()> {
        let Some((operation, path)) = what.path().filter(|_| !self.covers.is_empty()) else {
            return Ok(());
        };
        match self.covers.contains(&holder(Path::new(path)).unwrap_or_default()) {
            true => {
                let text = "the sandbox in which this environment acts on the server's own machine has a directory of its own in its place";
                Err(TargetError::new(operation, path, Cause::Confined(text.to_owned())))
            }
            false => Ok(()),
        }
    }

    /// Says of an error that it is the sandbox's.
    pub(super) fn explain(&self, mut error: TargetError) -> TargetError {
        let cause = match error.cause {
            Cause::PermissionDenied if self.is_confined => format!(
                "permission denied for the user {} that this environment is on the server's own machine",
                self.user
            ),
            Cause::ReadOnly if self.is_read_only => {
                "the sandbox in which this environment acts on the server's own machine may not write there".to_owned()
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

/// The file system that holds a path, or would hold it: that of a directory itself, and of anything else's directory.
fn holder(path: &Path) -> Option<u64> {
    let found = std::fs::symlink_metadata(path).ok();
    if let Some(found) = found.filter(std::fs::Metadata::is_dir) {
        return Some(found.dev());
    }
    path.ancestors().skip(1).find_map(device)
}
