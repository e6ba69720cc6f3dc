//! The Python SDK in virtualenvs: its wheel, and its fingerprint.

use std::ffi::OsStr;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

use rustc_hash::FxHasher;

use crate::interpreters::SearchPaths;
use crate::{Error, helper};

/// Name of its package.
pub(crate) const PACKAGE: &str = "orrery-sdk";

/// Writes the SDK as a wheel, for manual use with pip.
pub fn write_wheel(sdk: &Path, into: &Path) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(into).map_err(Error::system(format!("create {}", into.display())))?;
    let interpreter = SearchPaths::of_this_machine().find_for_virtualenv(None)?;
    Ok(helper::sdk_wheel(&interpreter.program, sdk, into)?.file)
}

/// Fingerprint of the SDK's content.
pub(crate) fn fingerprint(dir: &Path) -> String {
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
