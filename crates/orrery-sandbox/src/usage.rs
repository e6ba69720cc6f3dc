//! Resource usage of a sandbox: total memory and disk space.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Minimum size of a directory entry, so that many empty files count.
const ENTRY_BYTES: u64 = 512;
/// Unit of `st_blocks`, on every file system.
const BLOCK_BYTES: u64 = 512;

/// Returns the bytes below some paths. Stops above `enough`.
pub(crate) fn disk_usage(paths: &[&Path], enough: u64) -> u64 {
    let mut total = 0_u64;
    let mut pending: Vec<PathBuf> = Vec::new();
    let count = |path: &Path, pending: &mut Vec<PathBuf>| -> u64 {
        let Ok(found) = fs::symlink_metadata(path) else { return 0 };
        if found.is_dir() {
            pending.push(path.to_owned());
        }
        // A file with several names is counted for each: deduplication would need memory for all of
        // them.
        found.blocks().saturating_mul(BLOCK_BYTES).saturating_add(ENTRY_BYTES)
    };
    for path in paths {
        total = total.saturating_add(count(path, &mut pending));
    }
    while let Some(directory) = pending.pop() {
        // Directories removed meanwhile are ignored.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            total = total.saturating_add(count(&entry.path(), &mut pending));
            if total > enough {
                return total;
            }
        }
    }
    total
}

/// Returns the private memory of all processes of this pid namespace in bytes. Shared memory is
/// counted proportionally if the full sum is too much.
pub(crate) fn memory_usage(enough: u64) -> u64 {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let pids: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let total: u64 = pids.iter().map(|pid| resident(*pid)).sum();
    if total <= enough {
        return total;
    }
    pids.iter().map(|pid| proportional(*pid).unwrap_or_else(|| resident(*pid))).sum()
}

/// Returns anonymous and shared memory of a process in bytes.
fn resident(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    ["RssAnon:", "RssShmem:"].iter().filter_map(|name| kibibytes(&text, name)).sum::<u64>() << 10
}

/// Returns the memory of a process with shared memory counted proportionally.
fn proportional(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let parts = ["Pss_Anon:", "Pss_Shmem:"].map(|name| kibibytes(&text, name));
    let [anonymous, shared] = parts;
    Some((anonymous? + shared?) << 10)
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_paths_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let used = || disk_usage(&[dir.path()], u64::MAX);
        let before = used();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/b"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("a/root")).unwrap();
        let after = used();
        assert!((1 << 20..2 << 20).contains(&(after - before)), "{before} {after}");
        assert!(disk_usage(&[dir.path()], 1) > 1);
    }

    #[test]
    fn memory_of_processes_is_counted() {
        let own = std::process::id();
        let before = resident(own);
        let block = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = resident(own);
        assert!(after >= before + (60 << 20), "{before} {after}");
        assert!(proportional(own).is_none_or(|bytes| bytes > 60 << 20));
        assert!(memory_usage(u64::MAX) >= after);
        drop(block);
    }
}
