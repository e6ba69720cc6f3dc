//! Where the Python SDK lies, how it becomes a wheel, and how it is recognized when it has changed.

use std::ffi::OsStr;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

use rustc_hash::FxHasher;

use super::interpreters::Places;
use super::{Error, helper};

/// The name of its package.
pub(super) const PACKAGE: &str = "orrery-sdk";

/// The directory that holds the packages of the SDK.
pub(crate) fn directory() -> Result<PathBuf, Error> {
    orrery_host::sdk::directory().map_err(|error| Error::Sdk(error.to_string()))
}

/// Writes the SDK into a directory as a wheel, for people who call pip themselves.
pub(crate) fn write_wheel(sdk: &Path, into: &Path) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(into).map_err(Error::system(format!("make {}", into.display())))?;
    let interpreter = Places::of_this_machine().find(None)?;
    Ok(helper::sdk_wheel(&interpreter.path, sdk, into)?.file)
}

/// A number that changes with the content of the SDK.
pub(super) fn fingerprint(dir: &Path) -> String {
    let mut hasher = FxHasher::default();
    let mut pending = vec![dir.to_owned()];
    while let Some(path) = pending.pop() {
        if let Ok(entries) = std::fs::read_dir(&path) {
            let mut inside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            let made = |name: &str| name == "__pycache__" || name.ends_with(".egg-info");
            inside.retain(|path| !path.file_name().and_then(OsStr::to_str).is_some_and(made));
            inside.sort();
            pending.extend(inside);
        } else if let Ok(content) = std::fs::read(&path) {
            hasher.write(path.as_os_str().as_encoded_bytes());
            hasher.write(&content);
        }
    }
    format!("{:016x}", hasher.finish())
}
