//! Where the compiles of one environment happen on this machine. All of it can be made again.

use std::io;
use std::path::{Path, PathBuf};

use orrery_sandbox::Confinement;
use uuid::Uuid;

/// The checkout itself.
const PROJECT: &str = "project";
/// Which repository the checkout is of. It is written when the clone is whole.
const ORIGIN: &str = "origin";
/// The id of the compile that ran here last.
const LAST: &str = "last_compile";
/// What one run needs and nobody afterwards.
const SCRATCH: &str = "compile";
/// The virtualenv of the project lies in it, beside the one that takes its place.
const PYTHON: &str = "python";
/// Caches of pip and uv, and what Python makes of sources.
const CACHE: &str = "cache";
const BYTECODE: &str = "bytecode";

#[derive(Clone, Debug)]
pub(crate) struct Place {
    root: PathBuf,
}

impl Place {
    pub(crate) fn of(data: &Path, environment: &[u8; 16]) -> Self {
        let name = Uuid::from_bytes(*environment).to_string();
        Place { root: data.join("environments").join(name) }
    }

    /// All that there are on this machine, by environment.
    pub(crate) fn all(data: &Path) -> Vec<(Uuid, PathBuf)> {
        let Ok(entries) = std::fs::read_dir(data.join("environments")) else { return Vec::new() };
        let named = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path()))
        });
        named.collect()
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.root.join(PROJECT)
    }

    /// What the code of a compile may write to.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.root.join(SCRATCH)
    }

    /// What packages may write to while they are installed.
    pub(crate) fn python(&self) -> PathBuf {
        self.root.join(PYTHON)
    }

    pub(crate) fn virtualenv(&self) -> PathBuf {
        self.python().join("env")
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.root.join(CACHE)
    }

    pub(crate) fn bytecode(&self) -> PathBuf {
        self.root.join(BYTECODE)
    }

    /// What was found out about modules, for those who install packages afterwards.
    pub(crate) fn fetched(&self) -> PathBuf {
        self.root.join("fetched.json")
    }

    pub(crate) fn contents(&self) -> PathBuf {
        self.root.join(SCRATCH).join("contents")
    }

    pub(crate) fn result(&self) -> PathBuf {
        self.root.join(SCRATCH).join("result.json")
    }

    /// Whether a checkout of this origin is here as a whole.
    pub(crate) fn has_checkout_of(&self, origin: &str) -> bool {
        self.project().join(".git").is_dir() && self.read(ORIGIN).as_deref() == Some(origin)
    }

    /// Whether there is a checkout, of whatever origin.
    pub(crate) fn has_project(&self) -> bool {
        self.project().is_dir()
    }

    pub(crate) fn note_origin(&self, origin: &str) -> io::Result<()> {
        self.write(ORIGIN, origin)
    }

    pub(crate) fn last_compile(&self) -> Option<Uuid> {
        self.read(LAST)?.parse().ok()
    }

    /// Makes the directory ready for a run: what an earlier one left is gone.
    pub(crate) fn begin(&self, compile: Uuid, confinement: Option<&Confinement>) -> io::Result<()> {
        std::fs::create_dir_all(&self.root)?;
        remove(&self.fetched())?;
        remove(&self.scratch())?;
        self.make_writable(confinement)?;
        // A git that was killed leaves it behind, and nobody else works here.
        remove(&self.project().join(".git/index.lock"))?;
        self.write(LAST, &compile.to_string())
    }

    /// Makes the directories that code of the environment writes to.
    pub(crate) fn make_writable(&self, confinement: Option<&Confinement>) -> io::Result<()> {
        for path in [self.scratch(), self.python(), self.cache(), self.bytecode()] {
            match confinement {
                Some(confinement) => confinement.make_directory(&path)?,
                None => std::fs::create_dir_all(path)?,
            }
        }
        Ok(())
    }

    pub(crate) fn end(&self) {
        // The next run does the same.
        let _ = remove(&self.scratch());
    }

    /// Forgets the checkout with everything in it.
    pub(crate) fn wipe(&self) -> io::Result<()> {
        remove(&self.root.join(ORIGIN))?;
        remove(&self.python())?;
        remove(&self.project())
    }

    fn read(&self, name: &str) -> Option<String> {
        Some(std::fs::read_to_string(self.root.join(name)).ok()?.trim().to_owned())
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let fresh = self.root.join(format!(".{name}"));
        std::fs::write(&fresh, text)?;
        std::fs::rename(fresh, self.root.join(name))
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
