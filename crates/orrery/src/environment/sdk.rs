//! Where the Python SDK lies, and how it is recognized when it has changed.

use std::hash::Hasher;
use std::path::{Path, PathBuf};

use rustc_hash::FxHasher;

/// The name of its package.
pub(super) const PACKAGE: &str = "orrery-sdk";

/// The directory of the SDK: that of the environment variable `ORRERY_SDK`, for people who work on it.
pub(crate) fn directory() -> Option<PathBuf> {
    std::env::var_os("ORRERY_SDK").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// A number that changes with the content of the SDK.
pub(super) fn fingerprint(dir: &Path) -> String {
    let mut hasher = FxHasher::default();
    let mut pending = vec![dir.join("pyproject.toml"), dir.join("src")];
    while let Some(path) = pending.pop() {
        if let Ok(entries) = std::fs::read_dir(&path) {
            let mut inside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            inside.retain(|path| path.file_name().is_none_or(|name| name != "__pycache__"));
            inside.sort();
            pending.extend(inside);
        } else if let Ok(content) = std::fs::read(&path) {
            hasher.write(path.as_os_str().as_encoded_bytes());
            hasher.write(&content);
        }
    }
    format!("{:016x}", hasher.finish())
}
