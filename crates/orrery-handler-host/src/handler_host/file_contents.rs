//! File contents for handlers: a directory that hosts read, and its source.
//!
//! On the compiling machine the directory is complete. Elsewhere it caches a source, by SHA-1 only;
//! a content that a module uploaded under another id is looked up by that id.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use orrery_host::bundle::sha1_hex;

/// Source of contents that are not in the directory. Errors are texts for display.
pub trait ContentSource: Send + Sync {
    /// Returns the SHA-1 of the content with an id, in lower-case hexadecimal digits; `None` if
    /// unknown.
    ///
    /// # Errors
    /// Fails if the source cannot be read.
    fn sha1_of(&self, id: &str) -> Result<Option<String>, String>;

    /// Returns a content by its SHA-1.
    ///
    /// # Errors
    /// Fails if the source cannot be read.
    fn content(&self, sha1: &str) -> Result<Option<Vec<u8>>, String>;

    /// Stores a content under its SHA-1.
    ///
    /// # Errors
    /// Fails if it cannot be stored.
    fn store(&self, sha1: &str, content: &[u8]) -> Result<(), String>;
}

/// File contents that handlers can request.
#[derive(Clone)]
pub struct FileContents {
    directory: PathBuf,
    source: Option<Arc<dyn ContentSource>>,
}

impl fmt::Debug for FileContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileContents").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    #[error("{0:?} cannot be the id of a file")]
    Id(String),
    #[error("{id} is not the SHA-1 of its content, which is {sha1}")]
    NotItsHash { id: String, sha1: String },
    #[error("file contents are not available now: {0}")]
    Source(String),
    #[error("{} cannot be used: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
}

impl FileContents {
    /// Returns a complete directory, with each content under its id.
    pub fn complete(directory: PathBuf) -> Self {
        FileContents { directory, source: None }
    }

    /// Returns a directory that caches contents of a source.
    pub fn cached(directory: PathBuf, source: Arc<dyn ContentSource>) -> Self {
        FileContents { directory, source: Some(source) }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns true if hosts must request contents that are missing in the directory.
    pub fn is_cache(&self) -> bool {
        self.source.is_some()
    }

    /// Copies the content with an id into the directory. Returns the name of its file.
    ///
    /// # Errors
    /// Fails if it cannot be fetched or stored.
    pub(super) fn fetch(&self, id: &str) -> Result<Option<String>, ContentError> {
        check(id)?;
        let Some(source) = &self.source else {
            return Ok(self.directory.join(id).is_file().then(|| id.to_owned()));
        };
        let Some(sha1) = source.sha1_of(id).map_err(ContentError::Source)? else { return Ok(None) };
        check(&sha1)?;
        let path = self.directory.join(&sha1);
        // A file that a crash truncated does not match its hash.
        if std::fs::read(&path).is_ok_and(|content| sha1_hex(&content) == sha1) {
            return Ok(Some(sha1));
        }
        let content = source.content(&sha1).map_err(ContentError::Source)?;
        let Some(content) = content else { return Ok(None) };
        self.write(&sha1, &content)?;
        Ok(Some(sha1))
    }

    /// Returns true if the directory has the content with this SHA-1, undamaged.
    pub(super) fn has_exact(&self, sha1: &str) -> bool {
        is_sha1(sha1)
            && std::fs::read(self.directory.join(sha1))
                .is_ok_and(|content| sha1_hex(&content) == sha1)
    }

    /// Stores a content that was fetched from another machine, under its SHA-1 or another id.
    pub(super) fn store_fetched(&self, name: &str, content: &[u8]) -> Result<(), ContentError> {
        check(name)?;
        let sha1 = sha1_hex(content);
        if is_sha1(name) && sha1 != name {
            return Err(ContentError::NotItsHash { id: name.to_owned(), sha1 });
        }
        self.write(name, content)
    }

    /// Returns true if a content has this id.
    pub(super) fn has(&self, id: &str) -> Result<bool, ContentError> {
        check(id)?;
        match &self.source {
            None => Ok(self.directory.join(id).is_file()),
            Some(_) => self.fetch(id).map(|found| found.is_some()),
        }
    }

    /// Stores a content under an id. A source stores contents by SHA-1 only.
    pub(super) fn put(&self, id: &str, content: &[u8]) -> Result<(), ContentError> {
        check(id)?;
        let Some(source) = &self.source else { return self.write(id, content) };
        let sha1 = sha1_hex(content);
        if sha1 != id {
            return Err(ContentError::NotItsHash { id: id.to_owned(), sha1 });
        }
        source.store(&sha1, content).map_err(ContentError::Source)
    }

    /// Writes a temporary file and renames it: a file is complete or absent.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), ContentError> {
        let failed = |cause| ContentError::Io { path: self.directory.clone(), cause };
        let thread = format!("{:?}", std::thread::current().id());
        let digits: String = thread.chars().filter(char::is_ascii_digit).collect();
        let scratch = self.directory.join(format!(".new-{}-{digits}", std::process::id()));
        std::fs::create_dir_all(&self.directory).map_err(failed)?;
        std::fs::write(&scratch, content).map_err(failed)?;
        std::fs::rename(&scratch, self.directory.join(name)).map_err(failed)
    }

    /// Removes old contents from a cache; they can be fetched again. Returns their number.
    pub fn remove_unused(&self, unused_for: Duration, now: SystemTime) -> usize {
        if self.source.is_none() {
            return 0;
        }
        remove_old_files(&self.directory, unused_for, now)
    }
}

/// Removes files of a directory that were written long ago. Returns their number.
pub fn remove_old_files(directory: &Path, unused_for: Duration, now: SystemTime) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let is_old = |path: &Path| {
        let written = std::fs::metadata(path).and_then(|found| found.modified());
        written.is_ok_and(|at| now.duration_since(at).is_ok_and(|ago| ago > unused_for))
    };
    let old = entries.flatten().map(|entry| entry.path()).filter(|path| is_old(path));
    old.filter(|path| std::fs::remove_file(path).is_ok()).count()
}

fn is_sha1(id: &str) -> bool {
    id.len() == 40 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Rejects ids that lead out of the directory.
fn check(id: &str) -> Result<(), ContentError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let good = (1..=255).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(allowed);
    if good { Ok(()) } else { Err(ContentError::Id(id.to_owned())) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;

    /// Contents by SHA-1, and names of some.
    #[derive(Default)]
    struct MemoryStore(Mutex<BTreeMap<String, Vec<u8>>>, Mutex<BTreeMap<String, String>>);

    impl ContentSource for MemoryStore {
        fn sha1_of(&self, id: &str) -> Result<Option<String>, String> {
            let named = self.1.lock().unwrap().get(id).cloned();
            Ok(named.or_else(|| (id.len() == 40).then(|| id.to_owned())))
        }

        fn content(&self, sha1: &str) -> Result<Option<Vec<u8>>, String> {
            Ok(self.0.lock().unwrap().get(sha1).cloned())
        }

        fn store(&self, sha1: &str, content: &[u8]) -> Result<(), String> {
            self.0.lock().unwrap().insert(sha1.to_owned(), content.to_vec());
            Ok(())
        }
    }

    #[test]
    fn a_cache_is_filled_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let source = Arc::new(MemoryStore::default());
        let contents = FileContents::cached(dir.path().join("files"), Arc::clone(&source) as _);
        let (one, other) = (sha1_hex(b"one"), sha1_hex(b"other"));
        assert_eq!(contents.fetch(&one).unwrap(), None);
        contents.put(&one, b"one").unwrap();
        source.store(&other, b"other").unwrap();
        assert!(matches!(contents.put("motd", b"x"), Err(ContentError::NotItsHash { .. })));
        assert_eq!(contents.fetch(&one).unwrap(), Some(one.clone()));
        assert_eq!(std::fs::read(dir.path().join("files").join(&one)).unwrap(), b"one");
        // A name may have another content in the next version.
        for sha1 in [&one, &other] {
            source.1.lock().unwrap().insert("motd".to_owned(), sha1.clone());
            assert_eq!(contents.fetch("motd").unwrap().as_ref(), Some(sha1));
        }
        assert!(contents.has("motd").unwrap() && !contents.has("unknown").unwrap());
        // Damaged and missing files are fetched again.
        std::fs::write(dir.path().join("files").join(&one), "on").unwrap();
        contents.fetch(&one).unwrap();
        assert_eq!(std::fs::read(dir.path().join("files").join(&one)).unwrap(), b"one");
        let day = Duration::from_secs(86_400);
        assert_eq!(contents.remove_unused(day, SystemTime::UNIX_EPOCH + 40_000 * day), 2);
        assert_eq!(contents.fetch(&one).unwrap(), Some(one));
    }

    #[test]
    fn ids_do_not_leave_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let contents = FileContents::complete(dir.path().to_owned());
        for id in ["", ".", "..", "../x", "a/b", "/etc/passwd", ".new-1", "a\0b"] {
            assert!(matches!(contents.fetch(id), Err(ContentError::Id(_))), "{id:?}");
            assert!(contents.put(id, b"").is_err() && contents.has(id).is_err(), "{id:?}");
        }
    }
}
