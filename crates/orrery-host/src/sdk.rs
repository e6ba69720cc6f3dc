//! Python files of the SDK: embedded in the binary, unpacked once for each user and content.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

mod files {
    include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));
}

/// Variable with a directory to use instead, for SDK development.
pub const OVERRIDE: &str = "ORRERY_SDK";

/// Retention of other versions' files, since their processes may still run.
const KEPT: Duration = Duration::from_secs(90 * 86_400);

#[derive(Debug, thiserror::Error)]
pub enum SdkError {
    #[error(
        "this program was built without the Python SDK; set {OVERRIDE} to the directory that holds it"
    )]
    Absent,
    #[error("{OVERRIDE} names {}, where there is no orrery_sdk", .0.display())]
    NotThere(PathBuf),
    #[error("the directory {} belongs to another user or is writable by others; set XDG_CACHE_HOME to a private one", .0.display())]
    NotPrivate(PathBuf),
    #[error("the Python SDK cannot be unpacked to {}: {cause}; set XDG_CACHE_HOME to a directory that can be written", path.display())]
    Unpack { path: PathBuf, cause: io::Error },
}

/// Returns the directory for the start of Python's search path.
///
/// # Errors
/// Fails if the SDK cannot be unpacked.
pub fn directory() -> Result<PathBuf, SdkError> {
    if let Some(given) = override_directory()? {
        return Ok(given);
    }
    if files::FILES.is_empty() {
        return Err(SdkError::Absent);
    }
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from).and_then(absolute).or_else(|| {
        let home = variable("HOME").map(PathBuf::from).and_then(absolute)?;
        // A service's home may be missing, or `/`.
        (home.is_dir() && home.parent().is_some()).then(|| home.join(".cache"))
    });
    match cache {
        Some(cache) => unpack(&cache.join("orrery/sdk"), files::HASH, files::FILES),
        None => unpack(&private_temporary()?.join("sdk"), files::HASH, files::FILES),
    }
}

/// Returns the directory for the start of Python's search path, unpacked below `parent`.
///
/// # Errors
/// Fails if the SDK cannot be unpacked.
pub fn directory_in(parent: &Path) -> Result<PathBuf, SdkError> {
    if let Some(given) = override_directory()? {
        return Ok(given);
    }
    if files::FILES.is_empty() {
        return Err(SdkError::Absent);
    }
    unpack(parent, files::HASH, files::FILES)
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the directory that a developer of the SDK set.
fn override_directory() -> Result<Option<PathBuf>, SdkError> {
    let Some(given) = variable(OVERRIDE).map(PathBuf::from) else { return Ok(None) };
    match given.join("orrery_sdk").is_dir() {
        true => Ok(Some(given)),
        false => Err(SdkError::NotThere(given)),
    }
}

/// Returns a temporary directory that no other user can write to.
fn private_temporary() -> Result<PathBuf, SdkError> {
    let user = rustix::process::getuid().as_raw();
    let path = std::env::temp_dir().join(format!("orrery-{user}"));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
    let found = std::fs::symlink_metadata(&path).map_err(|cause| SdkError::Unpack {
        path: path.clone(),
        cause: made.err().unwrap_or(cause),
    })?;
    let private = found.is_dir() && found.uid() == user && found.permissions().mode() & 0o022 == 0;
    if private { Ok(path) } else { Err(SdkError::NotPrivate(path)) }
}

/// Unpacks the files to the directory `name` below `parent`; safe against concurrent processes.
fn unpack(parent: &Path, name: &str, files: &[(&str, &[u8])]) -> Result<PathBuf, SdkError> {
    let path = parent.join(name);
    if is_complete(&path, files) {
        return Ok(path);
    }
    let failed = |cause| SdkError::Unpack { path: path.clone(), cause };
    std::fs::create_dir_all(parent).map_err(failed)?;
    let sibling = |what: &str| parent.join(format!(".{name}.{}.{what}", std::process::id()));
    let fresh = sibling("new");
    let _ = std::fs::remove_dir_all(&fresh);
    write_all(&fresh, files).map_err(failed)?;
    let mut moved = std::fs::rename(&fresh, &path);
    if moved.is_err() && !is_complete(&path, files) {
        // The existing directory is incomplete: a cache cleaner removed files.
        let old = sibling("old");
        let _ = std::fs::rename(&path, &old);
        moved = std::fs::rename(&fresh, &path);
        let _ = std::fs::remove_dir_all(&old);
    }
    if is_complete(&path, files) {
        let _ = std::fs::remove_dir_all(&fresh);
        remove_old(parent, &path);
        return Ok(path);
    }
    let _ = std::fs::remove_dir_all(&fresh);
    Err(failed(moved.err().unwrap_or_else(|| io::Error::other("files are missing afterwards"))))
}

/// Removes files that older programs unpacked long ago. Ignores errors.
fn remove_old(parent: &Path, fresh: &Path) {
    let made = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified());
    let (Ok(now), Ok(entries)) = (made(fresh), std::fs::read_dir(parent)) else { return };
    for entry in entries.flatten() {
        let age = made(&entry.path()).ok().and_then(|made| now.duration_since(made).ok());
        if age.is_some_and(|age| age > KEPT) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns true if all files exist with full length. The directory is named by their content, which
/// never changes.
fn is_complete(path: &Path, files: &[(&str, &[u8])]) -> bool {
    let whole = |(name, content): &(&str, &[u8])| {
        let found = std::fs::metadata(path.join(name));
        found.is_ok_and(|found| found.is_file() && found.len() == content.len() as u64)
    };
    files.iter().all(whole)
}

fn write_all(path: &Path, files: &[(&str, &[u8])]) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o755).create(path)?;
    for (name, content) in files {
        let file = path.join(name);
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir)?;
        }
        std::fs::File::create(&file)?.write_all(content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &[(&str, &[u8])] =
        &[("a/__init__.py", b"x = 1\n"), ("a/b/c.py", b""), ("d", b"d")];

    fn entries(dir: &Path) -> usize {
        std::fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn files_are_unpacked_once_and_mended() {
        let dir = tempfile::tempdir().unwrap();
        let parent = dir.path().join("cache/sdk");
        let path = unpack(&parent, "1f", FILES).unwrap();
        assert_eq!(std::fs::read(path.join("a/__init__.py")).unwrap(), b"x = 1\n");
        assert_eq!(unpack(&parent, "1f", FILES).unwrap(), path);
        std::fs::remove_file(path.join("a/b/c.py")).unwrap();
        std::fs::write(path.join("d"), b"dd").unwrap();
        unpack(&parent, "1f", FILES).unwrap();
        assert_eq!(std::fs::read(path.join("d")).unwrap(), b"d");
        assert!(path.join("a/b/c.py").exists());
        assert_eq!(entries(&parent), 1);
    }

    #[test]
    fn files_of_older_programs_are_removed_eventually() {
        let dir = tempfile::tempdir().unwrap();
        let parent = dir.path().to_owned();
        let (old, recent) = (parent.join("0a"), parent.join("0b"));
        [&old, &recent].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let made = std::fs::metadata(&old).unwrap().modified().unwrap();
        let aged = std::fs::File::open(&old).unwrap();
        aged.set_times(std::fs::FileTimes::new().set_modified(made - 2 * KEPT)).unwrap();
        unpack(&parent, "1f", FILES).unwrap();
        assert!(!old.exists() && recent.exists());
    }

    #[test]
    fn the_sdk_is_in_the_program() {
        let names: Vec<&str> = files::FILES.iter().map(|(name, _)| *name).collect();
        for name in ["orrery_sdk/__main__.py", "inmanta/__init__.py", "inmanta/resources.py"] {
            assert!(names.contains(&name), "{name} is missing");
        }
        assert!(names.iter().all(|name| !name.contains("__pycache__")));
        assert_eq!(files::HASH.len(), 24);
    }

    #[test]
    fn an_unwritable_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let error = unpack(&file.join("sdk"), "1f", FILES).unwrap_err();
        assert!(error.to_string().contains("XDG_CACHE_HOME"), "{error}");
    }
}
