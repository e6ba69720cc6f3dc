//! The code that handlers of a version need, as it was when the version was made: copies of the Python packages of
//! modules, each set under the hash of all that is in it. What is edited in a project after a deploy does not change
//! how that deploy is repaired.
//!
//! The identity of a set is its content. Where the code lay when it was copied is no part of it: the same code has the
//! same hash on every machine, and no path of the machine where it was copied leaves that machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::pip::PipSettings;
use crate::session::ModuleCode;
use crate::sources::{self, COMPANIONS, SourceError, package_path};

/// What describes a set, in its directory. It is written last: where it is, all is.
const DESCRIPTION: &str = "set.json";
/// Holds the name of the set that is used.
const CURRENT: &str = "current";
/// Its time says when the set was last used.
const USED: &str = "used";
/// Bytes of the hash that are kept.
const HASH_BYTES: usize = 16;
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    #[error(transparent)]
    Source(#[from] SourceError),
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
    /// The version of Python that it was compiled with, as `3.13`: the one to run it with, if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
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

impl CodeSet {
    /// The set as it is described: nothing in it says where its code lies, or lay.
    pub(crate) fn described(&self) -> Self {
        let mut set = self.clone();
        for module in &mut set.modules {
            module.code = package_path(module);
            module.root.clone_from(&module.code);
        }
        set
    }

    /// The set with its code below a directory.
    fn placed(mut self, dir: &Path) -> Self {
        for module in &mut self.modules {
            module.code = dir.join(package_path(module));
            module.root.clone_from(&module.code);
        }
        let companions = dir.join(COMPANIONS);
        if companions.is_dir() {
            self.path.push(companions);
        }
        self
    }
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
        let sources = sources::collect(&set.modules)?;
        let (hash, contents) = digest(set, &sources)?;
        let dir = self.dir.join(&hash);
        if !dir.join(DESCRIPTION).is_file() {
            let files = sources.keys().map(String::as_str);
            self.write(&hash, set, files.zip(contents.iter().map(Vec::as_slice)))
                .map_err(|cause| CodeError::Write { path: dir.clone(), cause })?;
        }
        let kept = set.clone().placed(&dir);
        touch(&dir.join(USED)).map_err(|cause| CodeError::Write { path: dir, cause })?;
        Ok((hash, kept))
    }

    /// A set that was kept before.
    ///
    /// # Errors
    /// If it is not there any more.
    pub fn open(&self, hash: &str) -> Result<CodeSet, CodeError> {
        let path = self.dir.join(hash);
        let set = self.describe(hash)?.placed(&path);
        // Only for cleaning up; a store that cannot be written to can be read.
        let _ = touch(&path.join(USED));
        Ok(set)
    }

    /// The description of a set, without the place where it lies.
    pub(crate) fn describe(&self, hash: &str) -> Result<CodeSet, CodeError> {
        let path = self.dir.join(hash);
        let missing = |reason: String| CodeError::Missing { path: path.clone(), reason };
        let safe = !hash.is_empty() && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !safe {
            return Err(missing("it has no proper name".to_owned()));
        }
        let text =
            std::fs::read(path.join(DESCRIPTION)).map_err(|error| missing(error.to_string()))?;
        let set: CodeSet =
            serde_json::from_slice(&text).map_err(|error| missing(error.to_string()))?;
        Ok(set.described())
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
        let text = serde_json::to_vec_pretty(&set.described()).map_err(io::Error::other)?;
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

/// The hash of a set, and the contents of its files.
fn digest(
    set: &CodeSet,
    sources: &BTreeMap<String, PathBuf>,
) -> Result<(String, Vec<Vec<u8>>), CodeError> {
    let mut hash = Sha256::new();
    let mut add = |text: &[u8]| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    for module in &set.modules {
        let ModuleCode { name, package, code: _, root: _, version } = module;
        [name, package, version].into_iter().for_each(|text| add(text.as_bytes()));
    }
    add(b"handlers");
    set.handlers.iter().for_each(|handler| add(handler.as_bytes()));
    add(b"path");
    for path in std::iter::once(&set.program).chain(&set.path) {
        add(path.as_os_str().as_encoded_bytes());
    }
    if let Some(version) = &set.python {
        add(version.as_bytes());
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
    for (name, path) in sources {
        let content = std::fs::read(path).map_err(|cause| SourceError::Read {
            module: name.clone(),
            path: path.clone(),
            cause,
        })?;
        add(name.as_bytes());
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
            python: None,
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
    fn the_same_code_is_the_same_set_wherever_it_lies() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let put = |dir: &Path| {
            let store = CodeStore::new(dir.join("code"));
            let (hash, _) = store.put(&module(dir)).unwrap();
            let (bundle, _) = store.bundle(&hash).unwrap();
            String::from_utf8(bundle.to_json().unwrap()).unwrap()
        };
        let (one, other) = (put(here.path()), put(there.path()));
        assert_eq!(one, other);
        assert!(!one.contains(here.path().to_str().unwrap()), "{one}");
    }

    #[test]
    fn all_that_matters_is_in_the_hash() {
        let dir = tempfile::tempdir().unwrap();
        let (set, store) = (module(dir.path()), CodeStore::new(dir.path().join("code")));
        let changes: [fn(&mut CodeSet); 10] = [
            |set| set.python = Some("3.13".to_owned()),
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
