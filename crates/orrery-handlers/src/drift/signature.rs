//! Signatures of paths: equal as long as nothing changed that a handler compares.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Identity and times of what is at a path; links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSignature(Option<Parts>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    device: u64,
    inode: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    /// Size and time of the last change; `None` for a directory, whose entries may come and go.
    content: Option<(u64, i64, i64)>,
}

impl PathSignature {
    /// Reads the signature of a path. A path that cannot be read has that of a missing one.
    pub fn of(path: &Path) -> Self {
        let Ok(found) = std::fs::symlink_metadata(path) else { return PathSignature(None) };
        let content = (!found.is_dir()).then(|| (found.size(), found.ctime(), found.ctime_nsec()));
        PathSignature(Some(Parts {
            device: found.dev(),
            inode: found.ino(),
            mode: found.mode(),
            uid: found.uid(),
            gid: found.gid(),
            content,
        }))
    }

    /// True if nothing is at the path.
    pub(super) fn is_missing(self) -> bool {
        self.0.is_none()
    }
}
