//! Private files of this process: in the data directory, which other users cannot enter, and
//! removed with the process.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Subdirectory of the data directory.
const PRIVATE: &str = "private";

/// Returns the directory for private files of this process.
pub(crate) fn directory(data: &Path) -> io::Result<PathBuf> {
    let own = data.join(PRIVATE).join(std::process::id().to_string());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&own)?;
    Ok(own)
}

/// Removes the private files of killed processes. Call it before this process creates private
/// files.
pub(crate) fn clean(data: &Path) {
    let Ok(entries) = std::fs::read_dir(data.join(PRIVATE)) else { return };
    for entry in entries.filter_map(Result::ok) {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        if pid.is_some_and(is_another_server) {
            continue;
        }
        match std::fs::remove_dir_all(entry.path()) {
            Ok(()) => {
                tracing::info!(path = %entry.path().display(), "removed private files of a killed process");
            }
            Err(error) => {
                tracing::warn!(%error, path = %entry.path().display(), "cannot remove private files of a killed process");
            }
        }
    }
}

/// True if `pid` is another running process of this program.
fn is_another_server(pid: u32) -> bool {
    let program = |pid: &str| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let (own, other) = (program("self"), program(&pid.to_string()));
    pid != std::process::id() && other.is_some() && own == other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_killed_processes_are_removed() {
        let data = tempfile::tempdir().unwrap();
        // No process has this id.
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
