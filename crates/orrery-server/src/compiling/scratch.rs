//! Private files of this process: in the data directory, which other users cannot enter, and not for longer than the process lives.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Below the data directory.
const PRIVATE: &str = "private";

/// The directory for private files of this process.
pub(super) fn directory(data: &Path) -> io::Result<PathBuf> {
    let own = data.join(PRIVATE).join(std::process::id().to_string());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&own)?;
    Ok(own)
}

/// Removes what processes left that were killed. To be called before this process makes private files.
pub(super) fn clean(data: &Path) {
    let Ok(entries) = std::fs::read_dir(data.join(PRIVATE)) else { return };
    for entry in entries.filter_map(Result::ok) {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        if pid.is_some_and(is_another_server) {
            continue;
        }
        match std::fs::remove_dir_all(entry.path()) {
            Ok(()) => {
                tracing::info!(path = %entry.path().display(), "private files of a killed process are removed")
            }
            Err(error) => {
                tracing::warn!(%error, path = %entry.path().display(), "private files of a killed process cannot be removed");
            }
        }
    }
}

/// Whether a process runs that is another one of this program.
fn is_another_server(pid: u32) -> bool {
    let program = |pid: &str| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let (own, other) = (program("self"), program(&pid.to_string()));
    pid != std::process::id() && other.is_some() && own == other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_processes_left_is_removed() {
        let data = tempfile::tempdir().unwrap();
        // No process has this number.
        let left = data.path().join(PRIVATE).join("4194999");
        std::fs::create_dir_all(&left).unwrap();
        std::fs::write(left.join(".orrery-x"), "https://ada:word@h").unwrap();
        let own = directory(data.path()).unwrap();
        std::fs::write(own.join("before"), "of an earlier process with this number").unwrap();
        clean(data.path());
        assert!(!left.exists() && !own.exists());
        clean(data.path());
    }
}
