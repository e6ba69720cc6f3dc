//! The code that handlers of a version need, as it was when the version was made: copies of the Python packages of
//! modules, each set under the hash of all that is in it. What is edited in a project after a deploy does not change
//! how that deploy is repaired.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::pip::PipSettings;
use crate::session::ModuleCode;

/// What describes a set, in its directory. It is written last: where it is, all is.
const DESCRIPTION: &str = "set.json";
/// Holds the name of the set that is used.
const CURRENT: &str = "current";
/// Its time says when the set was last used.
const USED: &str = "used";
/// Bytes of the hash that are kept.
const HASH_BYTES: usize = 16;
/// How large a package may be, and of how many files. More is no code.
const PACKAGE_BYTES_MAX: u64 = 256 << 20;
pub(crate) const PACKAGE_FILES_MAX: usize = 20_000;

#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    #[error("the code of the module {module} cannot be copied: {}: {cause}", path.display())]
    Read { module: String, path: PathBuf, cause: io::Error },
    #[error("the code of the module {module} has more than {PACKAGE_FILES_MAX} files or {PACKAGE_BYTES_MAX} bytes, in {}", path.display())]
    TooLarge { module: String, path: PathBuf },
    #[error("code cannot be kept in {}: {cause}", path.display())]
    Write { path: PathBuf, cause: io::Error },
    #[error("the code of this version is not there any more ({}): {reason}; deploy it again from its project", path.display())]
    Missing { path: PathBuf, reason: String },
}

/// What runs the handlers of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeSet {
    /// In the order of loading; their code lies in the copy.
    pub modules: Vec<ModuleCode>,
    /// The entities that it has handlers for.
    pub handlers: Vec<String>,
    /// The interpreter, and what goes to the end of its search path.
    pub program: PathBuf,
    pub path: Vec<PathBuf>,
    /// What has to be installed where the interpreter is not there any more.
    pub requirements: Vec<String>,
    /// Modules whose code is not in the copy, because it came as a package where the set was made: they are installed too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub installed: Vec<InstalledModule>,
    /// How that is installed.
    #[serde(default, skip_serializing_if = "PipSettings::is_empty")]
    pub pip: PipSettings,
}

/// A module that is a package of an index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InstalledModule {
    pub name: String,
    pub version: String,
}

/// Where sets are kept.
#[derive(Clone, Debug)]
pub struct CodeStore {
    dir: PathBuf,
}

/// One file of a package.
struct Source {
    /// Below the directory of the set.
    name: String,
    path: PathBuf,
}

impl CodeStore {
    pub fn new(dir: PathBuf) -> Self {
        CodeStore { dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Keeps a set with these files, by their paths in it.
    pub(crate) fn keep(
        &self,
        hash: &str,
        set: &CodeSet,
        files: &[(String, Vec<u8>)],
    ) -> Result<(), CodeError> {
        let written =
            self.write(hash, set, files.iter().map(|(name, content)| (&**name, &**content)));
        written.map_err(|cause| CodeError::Write { path: self.dir.join(hash), cause })
    }

    /// Keeps a set; gives its hash, and the set as it is kept. The same again costs reading it.
    ///
    /// # Errors
    /// If the code cannot be read, or not be kept.
    pub fn put(&self, set: &CodeSet) -> Result<(String, CodeSet), CodeError> {
        let mut sources = Vec::new();
        for module in &set.modules {
            let prefix = package_path(module);
            let found = Package { module, files: Vec::new(), bytes: 0 }.collect(&prefix)?;
            sources.extend(found);
        }
        let (hash, contents) = digest(set, &sources)?;
        let dir = self.dir.join(&hash);
        let mut kept = set.clone();
        for module in &mut kept.modules {
            module.code = dir.join(package_path(module));
        }
        if !dir.join(DESCRIPTION).is_file() {
            let files = sources.iter().map(|source| &*source.name);
            self.write(&hash, &kept, files.zip(contents.iter().map(Vec::as_slice)))
                .map_err(|cause| CodeError::Write { path: dir.clone(), cause })?;
        }
        touch(&dir.join(USED)).map_err(|cause| CodeError::Write { path: dir, cause })?;
        Ok((hash, kept))
    }

    /// A set that was kept before.
    ///
    /// # Errors
    /// If it is not there any more.
    pub fn open(&self, hash: &str) -> Result<CodeSet, CodeError> {
        let path = self.dir.join(hash);
        let missing = |reason: String| CodeError::Missing { path: path.clone(), reason };
        let safe = !hash.is_empty() && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !safe {
            return Err(missing("it has no proper name".to_owned()));
        }
        let text =
            std::fs::read(path.join(DESCRIPTION)).map_err(|error| missing(error.to_string()))?;
        let set = serde_json::from_slice(&text);
        let mut set: CodeSet = set.map_err(|error| missing(error.to_string()))?;
        // The whole store may have been moved.
        for module in &mut set.modules {
            module.code = path.join(package_path(module));
        }
        // Only for cleaning up; a store that cannot be written to can be read.
        let _ = touch(&path.join(USED));
        Ok(set)
    }

    /// Says which set is used from now on where nobody names one; `None` if there is no code.
    ///
    /// # Errors
    /// If it cannot be written down.
    pub fn set_current(&self, hash: Option<&str>) -> Result<(), CodeError> {
        let path = self.dir.join(CURRENT);
        let failed = |cause| CodeError::Write { path: path.clone(), cause };
        let Some(hash) = hash else {
            return match std::fs::remove_file(&path) {
                Err(error) if !is_missing(&error) => Err(failed(error)),
                _ => Ok(()),
            };
        };
        let fresh = self.dir.join(format!(".{CURRENT}.{}", std::process::id()));
        std::fs::write(&fresh, hash).map_err(failed)?;
        std::fs::rename(&fresh, &path).map_err(failed)
    }

    /// The set that is used where nobody names one.
    ///
    /// # Errors
    /// If it cannot be read which.
    pub fn current(&self) -> Result<Option<String>, CodeError> {
        let path = self.dir.join(CURRENT);
        match std::fs::read_to_string(&path) {
            Ok(hash) => Ok(Some(hash.trim().to_owned())),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(CodeError::Missing { path, reason: error.to_string() }),
        }
    }

    /// Removes sets that no kept version needs and that were not used for a while. Gives how many.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn clean(
        &self,
        needed: &BTreeSet<String>,
        unused_for: Duration,
        now: SystemTime,
    ) -> io::Result<usize> {
        let mut removed = 0;
        for entry in list(&self.dir)? {
            let name = entry.file_name().to_string_lossy().into_owned();
            let used = std::fs::metadata(entry.path().join(USED)).or_else(|_| entry.metadata());
            let used = used.and_then(|used| used.modified());
            let old =
                used.is_ok_and(|used| now.duration_since(used).is_ok_and(|ago| ago > unused_for));
            if old && !needed.contains(&name) && std::fs::remove_dir_all(entry.path()).is_ok() {
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Everything goes into a directory of another name first, so that a set is there as a whole or not at all.
    fn write<'f>(
        &self,
        hash: &str,
        set: &CodeSet,
        files: impl Iterator<Item = (&'f str, &'f [u8])>,
    ) -> io::Result<()> {
        let (dir, fresh) =
            (self.dir.join(hash), self.dir.join(format!(".{hash}.{}", std::process::id())));
        let _ = std::fs::remove_dir_all(&fresh);
        for (name, content) in files {
            let path = fresh.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(path, content)?;
        }
        std::fs::create_dir_all(&fresh)?;
        let text = serde_json::to_vec_pretty(set).map_err(io::Error::other)?;
        std::fs::write(fresh.join(DESCRIPTION), text)?;
        let moved = std::fs::rename(&fresh, &dir);
        if moved.is_ok() || dir.join(DESCRIPTION).is_file() {
            // Another process may have been faster.
            let _ = std::fs::remove_dir_all(&fresh);
            return Ok(());
        }
        // What lies there is not whole.
        std::fs::remove_dir_all(&dir)?;
        std::fs::rename(&fresh, &dir)
    }
}

/// Where a package lies in a set: `inmanta_plugins/fs`.
fn package_path(module: &ModuleCode) -> PathBuf {
    // Names of modules are identifiers; anything else must not lead out of the set.
    module.package.split('.').filter(|part| !part.is_empty() && !part.contains('/')).collect()
}

/// A package whose files are gathered.
struct Package<'m> {
    module: &'m ModuleCode,
    files: Vec<Source>,
    bytes: u64,
}

impl Package<'_> {
    fn collect(mut self, prefix: &Path) -> Result<Vec<Source>, CodeError> {
        self.walk(&self.module.code.clone(), prefix)?;
        self.files.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(self.files)
    }

    fn walk(&mut self, dir: &Path, prefix: &Path) -> Result<(), CodeError> {
        let failed = |path: &Path, cause| CodeError::Read {
            module: self.module.name.clone(),
            path: path.to_owned(),
            cause,
        };
        for entry in std::fs::read_dir(dir).map_err(|cause| failed(dir, cause))? {
            let entry = entry.map_err(|cause| failed(dir, cause))?;
            let (path, name) = (entry.path(), entry.file_name());
            let Some(name) = name.to_str() else { continue };
            if name.starts_with('.') || name == "__pycache__" || name.ends_with(".pyc") {
                continue;
            }
            let below = prefix.join(name);
            // Links are followed: what they lead to is what is imported.
            let found = std::fs::metadata(&path).map_err(|cause| failed(&path, cause))?;
            if found.is_dir() {
                if below.components().count() <= 32 {
                    self.walk(&path, &below)?;
                }
                continue;
            }
            self.bytes += found.len();
            if self.bytes > PACKAGE_BYTES_MAX || self.files.len() >= PACKAGE_FILES_MAX {
                let path = self.module.code.clone();
                return Err(CodeError::TooLarge { module: self.module.name.clone(), path });
            }
            let name = below.to_string_lossy().into_owned();
            self.files.push(Source { name, path });
        }
        Ok(())
    }
}

/// The hash of a set, and the contents of its files.
fn digest(set: &CodeSet, sources: &[Source]) -> Result<(String, Vec<Vec<u8>>), CodeError> {
    let mut hash = Sha256::new();
    let mut add = |text: &[u8]| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    for module in &set.modules {
        let ModuleCode { name, package, code: _, root, version } = module;
        let root = root.as_os_str().as_encoded_bytes();
        [name.as_bytes(), package.as_bytes(), root, version.as_bytes()]
            .into_iter()
            .for_each(&mut add);
    }
    add(b"handlers");
    set.handlers.iter().for_each(|handler| add(handler.as_bytes()));
    add(b"path");
    for path in std::iter::once(&set.program).chain(&set.path) {
        add(path.as_os_str().as_encoded_bytes());
    }
    add(b"requirements");
    set.requirements.iter().for_each(|requirement| add(requirement.as_bytes()));
    for InstalledModule { name, version } in &set.installed {
        add(format!("{name}=={version}").as_bytes());
    }
    if !set.pip.is_empty() {
        add(b"pip");
        crate::pip::arguments(&set.pip).iter().for_each(|argument| add(argument.as_bytes()));
        add(format!("{:?} {}", set.pip.pre, set.pip.use_system_config).as_bytes());
    }
    add(b"files");
    let mut contents = Vec::with_capacity(sources.len());
    for source in sources {
        let content = std::fs::read(&source.path).map_err(|cause| CodeError::Read {
            module: source.name.clone(),
            path: source.path.clone(),
            cause,
        })?;
        add(source.name.as_bytes());
        add(&content);
        contents.push(content);
    }
    let digits =
        hash.finalize().iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    Ok((digits, contents))
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Gives a file the present time.
pub(crate) fn touch(path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(0)?;
    // Truncating an empty file may leave its time as it is.
    rustix::fs::futimens(
        &file,
        &rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
            last_modification: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        },
    )?;
    Ok(())
}

/// The directories in a directory, if there is one.
pub(crate) fn list(dir: &Path) -> io::Result<Vec<std::fs::DirEntry>> {
    match std::fs::read_dir(dir) {
        Ok(entries) => {
            let mut found = Vec::new();
            for entry in entries {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    found.push(entry);
                }
            }
            Ok(found)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(dir: &Path) -> CodeSet {
        let code = dir.join("libs/fs/plugins");
        std::fs::create_dir_all(code.join("deep/__pycache__")).unwrap();
        std::fs::write(code.join("__init__.py"), "import os\n").unwrap();
        std::fs::write(code.join("deep/more.py"), "x = 1\n").unwrap();
        std::fs::write(code.join("deep/__pycache__/more.pyc"), "no").unwrap();
        CodeSet {
            modules: vec![ModuleCode {
                name: "fs".to_owned(),
                package: "inmanta_plugins.fs".to_owned(),
                code,
                root: dir.join("libs/fs"),
                version: "1.0".to_owned(),
            }],
            handlers: vec!["fs::File".to_owned()],
            program: "/usr/bin/python3".into(),
            path: Vec::new(),
            requirements: Vec::new(),
            installed: Vec::new(),
            pip: PipSettings::default(),
        }
    }

    #[test]
    fn a_set_is_a_copy_that_later_changes_do_not_touch() {
        let dir = tempfile::tempdir().unwrap();
        let (set, store) = (module(dir.path()), CodeStore::new(dir.path().join("code")));
        let (hash, kept) = store.put(&set).unwrap();
        let copy = dir.path().join("code").join(&hash).join("inmanta_plugins/fs");
        assert_eq!(kept.modules[0].code, copy);
        assert_eq!(std::fs::read_to_string(copy.join("deep/more.py")).unwrap(), "x = 1\n");
        assert!(!copy.join("deep/__pycache__").exists());
        assert_eq!(store.put(&set).unwrap(), (hash.clone(), kept.clone()));
        std::fs::write(set.modules[0].code.join("deep/more.py"), "x = 2\n").unwrap();
        let (other, _) = store.put(&set).unwrap();
        assert_ne!(other, hash);
        assert_eq!(store.open(&hash).unwrap(), kept);
        assert_eq!(std::fs::read_to_string(copy.join("deep/more.py")).unwrap(), "x = 1\n");
    }

    #[test]
    fn all_that_matters_is_in_the_hash() {
        let dir = tempfile::tempdir().unwrap();
        let (set, store) = (module(dir.path()), CodeStore::new(dir.path().join("code")));
        let changes: [fn(&mut CodeSet); 9] = [
            |_| {},
            |set| set.modules[0].version = "1.1".to_owned(),
            |set| set.handlers.push("fs::Directory".to_owned()),
            |set| set.program = "/opt/python".into(),
            |set| set.path.push("/site".into()),
            |set| set.requirements.push("pyyaml".into()),
            |set| {
                let (name, version) = ("toy".to_owned(), "1.0".to_owned());
                set.installed.push(InstalledModule { name, version });
            },
            |set| set.pip.index_url = Some("https://index.example".to_owned()),
            |set| set.pip.use_system_config = true,
        ];
        let hashes: BTreeSet<String> = changes
            .iter()
            .map(|change| {
                let mut set = set.clone();
                change(&mut set);
                store.put(&set).unwrap().0
            })
            .collect();
        assert_eq!(hashes.len(), changes.len());
    }

    #[test]
    fn what_is_not_needed_any_more_is_removed_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let (set, store) = (module(dir.path()), CodeStore::new(dir.path().join("code")));
        let none = BTreeSet::new();
        let day = Duration::from_secs(86_400);
        let (hash, _) = store.put(&set).unwrap();
        let used = std::fs::metadata(dir.path().join("code").join(&hash).join(USED)).unwrap();
        let now = used.modified().unwrap();
        assert_eq!(store.clean(&none, day, now + day / 2).unwrap(), 0);
        assert_eq!(store.clean(&BTreeSet::from([hash.clone()]), day, now + 2 * day).unwrap(), 0);
        assert_eq!(store.clean(&none, day, now + 2 * day).unwrap(), 1);
        store.set_current(Some(&hash)).unwrap();
        assert_eq!(store.current().unwrap(), Some(hash.clone()));
        store.set_current(None).unwrap();
        store.set_current(None).unwrap();
        assert_eq!(store.current().unwrap(), None);
        let error = store.open(&hash).unwrap_err().to_string();
        assert!(error.contains("deploy it again"), "{error}");
        assert!(matches!(store.open("../x"), Err(CodeError::Missing { .. })));
    }

    #[test]
    fn a_module_whose_code_is_gone_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut set = module(dir.path());
        set.modules[0].code = dir.path().join("nowhere");
        let error = CodeStore::new(dir.path().join("code")).put(&set).unwrap_err().to_string();
        assert!(error.contains("the module fs") && error.contains("nowhere"), "{error}");
    }
}
