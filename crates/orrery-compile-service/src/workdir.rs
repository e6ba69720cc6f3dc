//! Working directory of an environment's compiles on this machine. All of it can be recreated.

use std::io;
use std::path::{Path, PathBuf};

use orrery_model::EnvironmentId;
use orrery_sandbox::Confinement;
use uuid::Uuid;

/// The checkout.
const PROJECT: &str = "project";
/// Fingerprint of the checkout's repository, written when the clone is complete.
const ORIGIN: &str = "origin";
/// Id of the compile that ran here last.
const LAST: &str = "last_compile";
/// Temporary files of one run.
const SCRATCH: &str = "compile";
/// Contains the project's virtualenv, and a new one while it is built.
const PYTHON: &str = "python";
/// Caches of pip and uv, and Python bytecode.
const CACHE: &str = "cache";
const BYTECODE: &str = "bytecode";

#[derive(Clone, Debug)]
pub(crate) struct Workdir {
    root: PathBuf,
}

impl Workdir {
    pub(crate) fn for_environment(data: &Path, environment: EnvironmentId) -> Self {
        let name = environment.uuid().to_string();
        Workdir { root: data.join("environments").join(name) }
    }

    /// Lists all working directories of this machine, by environment.
    pub(crate) fn list(data: &Path) -> Vec<(Uuid, PathBuf)> {
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

    /// Directory that compiling code may write to.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.root.join(SCRATCH)
    }

    /// Directory that installing code may write to.
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

    /// File with module metadata, from the fetch step for the install step.
    pub(crate) fn fetched(&self) -> PathBuf {
        self.root.join("fetched.json")
    }

    pub(crate) fn contents(&self) -> PathBuf {
        self.root.join(SCRATCH).join("contents")
    }

    pub(crate) fn result(&self) -> PathBuf {
        self.root.join(SCRATCH).join("result.json")
    }

    /// True if there is a complete checkout of this origin.
    pub(crate) fn has_checkout_of(&self, origin: &str) -> bool {
        self.project().join(".git").is_dir() && self.read(ORIGIN).as_deref() == Some(origin)
    }

    /// True if there is any checkout.
    pub(crate) fn has_project(&self) -> bool {
        self.project().is_dir()
    }

    pub(crate) fn record_origin(&self, origin: &str) -> io::Result<()> {
        self.write(ORIGIN, origin)
    }

    pub(crate) fn last_compile(&self) -> Option<Uuid> {
        self.read(LAST)?.parse().ok()
    }

    /// Prepares the directory for a run; removes leftovers of an earlier one.
    pub(crate) fn prepare(
        &self,
        compile: Uuid,
        confinement: Option<&Confinement>,
    ) -> io::Result<()> {
        std::fs::create_dir_all(&self.root)?;
        remove(&self.fetched())?;
        remove(&self.scratch())?;
        self.make_writable(confinement)?;
        // A killed git leaves it behind, and no other process works here.
        remove(&self.project().join(".git/index.lock"))?;
        self.write(LAST, &compile.to_string())
    }

    /// Creates the directories that tenant code writes to.
    pub(crate) fn make_writable(&self, confinement: Option<&Confinement>) -> io::Result<()> {
        for path in [self.scratch(), self.python(), self.cache(), self.bytecode()] {
            match confinement {
                Some(confinement) => confinement.make_directory(&path)?,
                None => std::fs::create_dir_all(path)?,
            }
        }
        Ok(())
    }

    pub(crate) fn clean_up(&self) {
        // The next run also removes it.
        let _ = remove(&self.scratch());
    }

    /// Deletes the checkout and the virtualenv.
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
