//! Directories of a runner: code, files of code, virtualenvs, and what environments need. All of it
//! is a cache.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_base::lock::IgnorePoison;
use orrery_handler_host::remove_old_files;
use orrery_host::code_store::{CodeSet, CodeStore};
use orrery_pyenv::VirtualEnvs;

/// Retention of code that no handler uses.
const CODE_RETENTION: Duration = Duration::from_secs(7 * 86_400);
/// Retention of virtualenvs, which take longer to create.
const VIRTUALENV_RETENTION: Duration = Duration::from_secs(30 * 86_400);

/// Directories below that of a runner.
#[derive(Clone)]
pub(crate) struct Directories {
    root: PathBuf,
    /// Sets of code with processes, by their digests.
    used: Arc<Mutex<BTreeMap<String, CodeSet>>>,
}

impl fmt::Debug for Directories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directories").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Directories {
    pub(crate) fn new(root: &Path) -> Self {
        Directories { root: root.to_owned(), used: Arc::default() }
    }

    pub(crate) fn code(&self) -> CodeStore {
        CodeStore::new(self.root.join("code"))
    }

    /// Files of code by SHA-256.
    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    pub(crate) fn virtualenvs(&self) -> VirtualEnvs {
        VirtualEnvs::new(self.root.join("virtualenvs"), Vec::new())
    }

    /// Files of the SDK.
    pub(crate) fn sdk(&self) -> PathBuf {
        self.root.join("sdk")
    }

    /// Directory of an environment's handlers.
    pub(crate) fn environment(&self, environment: &str) -> PathBuf {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let name: String =
            environment.bytes().filter(|byte| is_plain(*byte)).map(char::from).take(64).collect();
        self.root.join("environments").join(name)
    }

    /// Records that a set has processes.
    pub(crate) fn mark_used(&self, digest: &str, set: &CodeSet) {
        self.used.lock().ignore_poison().insert(digest.to_owned(), set.clone());
    }

    pub(crate) fn mark_unused(&self, digest: &str) {
        self.used.lock().ignore_poison().remove(digest);
    }

    /// Removes what was not used for a long time.
    pub(crate) fn remove_unused(&self) {
        let used = self.used.lock().ignore_poison().clone();
        for set in used.values() {
            // Marks its virtualenv as used: processes may have it for longer than it is kept.
            let _ = set.prepare_interpreter(&self.virtualenvs());
        }
        let used: BTreeSet<String> = used.into_keys().collect();
        let now = orrery_base::clock::wall();
        let sets = self.code().remove_unused(&used, CODE_RETENTION, now).unwrap_or_default();
        let virtualenvs = self.virtualenvs().remove_unused(VIRTUALENV_RETENTION, now);
        let blobs = remove_old_files(&self.blobs(), CODE_RETENTION, now);
        let entries = std::fs::read_dir(self.root.join("environments")).into_iter().flatten();
        let files: usize = entries
            .flatten()
            .map(|entry| remove_old_files(&entry.path().join("files"), CODE_RETENTION, now))
            .sum();
        tracing::debug!(sets, ?virtualenvs, blobs, files, "removed unused code");
    }
}
