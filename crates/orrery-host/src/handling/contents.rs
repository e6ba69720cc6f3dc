//! Contents of files for handlers: a directory that hosts read themselves, and what it is filled from.
//!
//! Where the model was compiled, the directory has everything. Elsewhere it is a cache of what some source holds, and
//! has contents by their SHA-1 only; a content that a module uploaded under an id of its own is looked up by that id.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::bundle::sha1_hex;

/// Where contents come from that are not in the directory yet. Errors are texts for people.
pub trait ContentSource: Send + Sync {
    /// The SHA-1 of the content that has an id, in lower-case hexadecimal digits; `None` if no content has it.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn sha1_of(&self, id: &str) -> Result<Option<String>, String>;

    /// A content by its SHA-1.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn content(&self, sha1: &str) -> Result<Option<Vec<u8>>, String>;

    /// Keeps a content under its SHA-1.
    ///
    /// # Errors
    /// If it cannot be kept.
    fn keep(&self, sha1: &str, content: &[u8]) -> Result<(), String>;
}

/// The contents of files that handlers can ask for.
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
    #[error("contents of files cannot be had now: {0}")]
    Source(String),
    #[error("{} cannot be used: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
}

impl FileContents {
    /// A directory that has all contents there are, each under its id.
    pub fn complete(directory: PathBuf) -> Self {
        FileContents { directory, source: None }
    }

    /// A directory that is filled from a source with what is asked for.
    pub fn cached(directory: PathBuf, source: Arc<dyn ContentSource>) -> Self {
        FileContents { directory, source: Some(source) }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether hosts have to ask for what they do not find in the directory.
    pub fn is_cache(&self) -> bool {
        self.source.is_some()
    }

    /// Puts the content with an id into the directory; gives the name of its file there.
    ///
    /// # Errors
    /// If it cannot be had or kept.
    pub(super) fn fetch(&self, id: &str) -> Result<Option<String>, ContentError> {
        check(id)?;
        let Some(source) = &self.source else {
            return Ok(self.directory.join(id).is_file().then(|| id.to_owned()));
        };
        let Some(sha1) = source.sha1_of(id).map_err(ContentError::Source)? else { return Ok(None) };
        check(&sha1)?;
        let path = self.directory.join(&sha1);
        // A file that a crash left half written is not the content.
        if std::fs::read(&path).is_ok_and(|content| sha1_hex(&content) == sha1) {
            return Ok(Some(sha1));
        }
        let content = source.content(&sha1).map_err(ContentError::Source)?;
        let Some(content) = content else { return Ok(None) };
        self.write(&sha1, &content)?;
        Ok(Some(sha1))
    }

    /// Whether there is a content with an id.
    pub(super) fn has(&self, id: &str) -> Result<bool, ContentError> {
        check(id)?;
        match &self.source {
            None => Ok(self.directory.join(id).is_file()),
            Some(_) => self.fetch(id).map(|found| found.is_some()),
        }
    }

    /// Keeps a content under an id. A source knows contents by their SHA-1 only.
    pub(super) fn put(&self, id: &str, content: &[u8]) -> Result<(), ContentError> {
        check(id)?;
        let Some(source) = &self.source else { return self.write(id, content) };
        let sha1 = sha1_hex(content);
        if sha1 != id {
            return Err(ContentError::NotItsHash { id: id.to_owned(), sha1 });
        }
        source.keep(&sha1, content).map_err(ContentError::Source)
    }

    /// Under another name first: a file is there as a whole or not at all.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), ContentError> {
        let failed = |cause| ContentError::Io { path: self.directory.clone(), cause };
        let thread = format!("{:?}", std::thread::current().id());
        let digits: String = thread.chars().filter(char::is_ascii_digit).collect();
        let scratch = self.directory.join(format!(".new-{}-{digits}", std::process::id()));
        std::fs::create_dir_all(&self.directory).map_err(failed)?;
        std::fs::write(&scratch, content).map_err(failed)?;
        std::fs::rename(&scratch, self.directory.join(name)).map_err(failed)
    }

    /// Removes contents from a cache that were put there long ago; they can be fetched again. Gives how many.
    pub fn clean(&self, kept_for: Duration, now: SystemTime) -> usize {
        if self.source.is_none() {
            return 0;
        }
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return 0 };
        let is_old = |path: &Path| {
            let written = std::fs::metadata(path).and_then(|found| found.modified());
            written.is_ok_and(|at| now.duration_since(at).is_ok_and(|ago| ago > kept_for))
        };
        let old = entries.flatten().map(|entry| entry.path()).filter(|path| is_old(path));
        old.filter(|path| std::fs::remove_file(path).is_ok()).count()
    }
}

/// The ids that contents may have: nothing in them leads out of the directory.
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

    /// Contents by SHA-1, and names for some of them.
    #[derive(Default)]
    struct Kept(Mutex<BTreeMap<String, Vec<u8>>>, Mutex<BTreeMap<String, String>>);

    impl ContentSource for Kept {
        fn sha1_of(&self, id: &str) -> Result<Option<String>, String> {
            let named = self.1.lock().unwrap().get(id).cloned();
            Ok(named.or_else(|| (id.len() == 40).then(|| id.to_owned())))
        }

        fn content(&self, sha1: &str) -> Result<Option<Vec<u8>>, String> {
            Ok(self.0.lock().unwrap().get(sha1).cloned())
        }

        fn keep(&self, sha1: &str, content: &[u8]) -> Result<(), String> {
            self.0.lock().unwrap().insert(sha1.to_owned(), content.to_vec());
            Ok(())
        }
    }

    #[test]
    fn a_cache_is_filled_with_what_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let source = Arc::new(Kept::default());
        let contents = FileContents::cached(dir.path().join("files"), Arc::clone(&source) as _);
        let (one, other) = (sha1_hex(b"one"), sha1_hex(b"other"));
        assert_eq!(contents.fetch(&one).unwrap(), None);
        contents.put(&one, b"one").unwrap();
        source.keep(&other, b"other").unwrap();
        assert!(matches!(contents.put("motd", b"x"), Err(ContentError::NotItsHash { .. })));
        assert_eq!(contents.fetch(&one).unwrap(), Some(one.clone()));
        assert_eq!(std::fs::read(dir.path().join("files").join(&one)).unwrap(), b"one");
        // A name may mean another content in the next version.
        for sha1 in [&one, &other] {
            source.1.lock().unwrap().insert("motd".to_owned(), sha1.clone());
            assert_eq!(contents.fetch("motd").unwrap().as_ref(), Some(sha1));
        }
        assert!(contents.has("motd").unwrap() && !contents.has("unknown").unwrap());
        // What is damaged or gone is fetched again.
        std::fs::write(dir.path().join("files").join(&one), "on").unwrap();
        contents.fetch(&one).unwrap();
        assert_eq!(std::fs::read(dir.path().join("files").join(&one)).unwrap(), b"one");
        let day = Duration::from_secs(86_400);
        assert_eq!(contents.clean(day, SystemTime::UNIX_EPOCH + 40_000 * day), 2);
        assert_eq!(contents.fetch(&one).unwrap(), Some(one));
    }

    #[test]
    fn ids_do_not_lead_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let contents = FileContents::complete(dir.path().to_owned());
        for id in ["", ".", "..", "../x", "a/b", "/etc/passwd", ".new-1", "a\0b"] {
            assert!(matches!(contents.fetch(id), Err(ContentError::Id(_))), "{id:?}");
            assert!(contents.put(id, b"").is_err() && contents.has(id).is_err(), "{id:?}");
        }
    }
}
