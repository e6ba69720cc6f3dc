//! Store of handler code: copies of the modules' Python packages as of the version's creation, each
//! set under the hash of its content. Later edits of a project do not change the repair of a
//! deployed version.
//!
//! The identity of a set is its content, not its source path: the same code has the same hash on
//! every machine, and no path of the copying machine leaves it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use orrery_base::hex::to_hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use orrery_model::PipSettings;
use orrery_pyenv::interpreters::Interpreter;
use orrery_pyenv::last_use::{subdirectories, touch};
use orrery_pyenv::{InstalledModule, VirtualEnvError, VirtualEnvSpec, VirtualEnvs, pip_settings};

use crate::handshake::ModuleCode;
use crate::sources::{self, COMPANIONS, SourceError, installed_code, package_path};

/// Description of a set, in its directory. Written last: its presence means that the set is
/// complete.
const DESCRIPTION: &str = "set.json";
/// File with the name of the current set.
const CURRENT: &str = "current";
/// File with the time of last use.
const USED: &str = "used";
/// Length of the truncated hash.
const HASH_BYTES: usize = 16;
#[derive(Debug, thiserror::Error)]
pub enum CodeStoreError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("code cannot be stored in {}: {cause}", path.display())]
    Write { path: PathBuf, cause: io::Error },
    #[error("the code of this version is missing ({}): {reason}; deploy it again from its project", path.display())]
    Missing { path: PathBuf, reason: String },
}

/// Code and environment of the handlers of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeSet {
    /// In load order; their code is in the copy.
    pub modules: Vec<ModuleCode>,
    /// Entities with handlers.
    pub handlers: Vec<String>,
    /// Those of them that use the files and programs of their agent's machine (`io`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine_handlers: Vec<String>,
    /// Python version of the compile, as `3.13`: preferred to run the code, if available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// Interpreter and the end of its search path.
    pub program: PathBuf,
    pub path: Vec<PathBuf>,
    /// Requirements to install where the interpreter is missing.
    pub requirements: Vec<String>,
    /// Modules without code in the copy, because they were installed as packages: they are
    /// installed too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub installed: Vec<InstalledModule>,
    /// Settings of the installation.
    #[serde(default, skip_serializing_if = "PipSettings::is_empty")]
    pub pip: PipSettings,
}

/// Interpreter for a set, and the modules that it loads.
#[derive(Debug)]
pub struct SetInterpreter {
    pub program: PathBuf,
    /// Modules of the set, and those that are installed as packages.
    pub modules: Vec<ModuleCode>,
}

impl CodeSet {
    /// Returns an interpreter of this machine that satisfies the requirements; creates a virtualenv
    /// if necessary.
    ///
    /// # Errors
    /// If there is no suitable Python, or the virtualenv cannot be created.
    pub fn prepare_interpreter(
        &self,
        environments: &VirtualEnvs,
    ) -> Result<SetInterpreter, VirtualEnvError> {
        let base = Interpreter::find_for(self.python.as_deref())?;
        let interpreter = environments.interpreter(&base, &VirtualEnvSpec::from(self))?;
        let mut modules = self.modules.clone();
        modules.extend(installed_code(&interpreter, &self.installed));
        Ok(SetInterpreter { program: interpreter.program, modules })
    }
}

impl<'s> From<&'s CodeSet> for VirtualEnvSpec<'s> {
    fn from(set: &'s CodeSet) -> Self {
        VirtualEnvSpec {
            requirements: &set.requirements,
            modules: &set.installed,
            sources: set.modules.iter().map(|module| module.name.as_str()).collect(),
            pip: &set.pip,
        }
    }
}

/// Store of code sets.
#[derive(Clone, Debug)]
pub struct CodeStore {
    dir: PathBuf,
}

impl CodeSet {
    /// Returns the set without any path.
    pub(crate) fn without_paths(&self) -> Self {
        let mut set = self.clone();
        for module in &mut set.modules {
            module.code = package_path(module);
            module.root.clone_from(&module.code);
        }
        set
    }

    /// Returns the set with its code below a directory.
    fn with_directory(mut self, dir: &Path) -> Self {
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

    /// Stores a set with these files, by their paths in it.
    pub(crate) fn store_files(
        &self,
        hash: &str,
        set: &CodeSet,
        files: &[(String, Vec<u8>)],
    ) -> Result<(), CodeStoreError> {
        let written =
            self.write(hash, set, files.iter().map(|(name, content)| (&**name, &**content)));
        written.map_err(|cause| CodeStoreError::Write { path: self.dir.join(hash), cause })
    }

    /// Stores a set. Returns its hash and the stored set. Storing it again only reads it.
    ///
    /// # Errors
    /// Fails if the code cannot be read or stored.
    pub fn put(&self, set: &CodeSet) -> Result<(String, CodeSet), CodeStoreError> {
        let sources = sources::collect(&set.modules)?;
        let (hash, contents) = digest(set, &sources)?;
        let dir = self.dir.join(&hash);
        if !dir.join(DESCRIPTION).is_file() {
            let files = sources.keys().map(String::as_str);
            self.write(&hash, set, files.zip(contents.iter().map(Vec::as_slice)))
                .map_err(|cause| CodeStoreError::Write { path: dir.clone(), cause })?;
        }
        let kept = set.clone().with_directory(&dir);
        touch(&dir.join(USED)).map_err(|cause| CodeStoreError::Write { path: dir, cause })?;
        Ok((hash, kept))
    }

    /// Opens a stored set.
    ///
    /// # Errors
    /// Fails if the set is missing.
    pub fn open(&self, hash: &str) -> Result<CodeSet, CodeStoreError> {
        let path = self.dir.join(hash);
        let set = self.describe(hash)?.with_directory(&path);
        // Only for garbage collection; a read-only store can be read.
        let _ = touch(&path.join(USED));
        Ok(set)
    }

    /// Returns the description of a set, without paths.
    pub(crate) fn describe(&self, hash: &str) -> Result<CodeSet, CodeStoreError> {
        let path = self.dir.join(hash);
        let missing = |reason: String| CodeStoreError::Missing { path: path.clone(), reason };
        let safe = !hash.is_empty() && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !safe {
            return Err(missing("its name is not a valid hash".to_owned()));
        }
        let text =
            std::fs::read(path.join(DESCRIPTION)).map_err(|error| missing(error.to_string()))?;
        let set: CodeSet =
            serde_json::from_slice(&text).map_err(|error| missing(error.to_string()))?;
        Ok(set.without_paths())
    }

    /// Sets the default set; `None` if there is no code.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn set_current(&self, hash: Option<&str>) -> Result<(), CodeStoreError> {
        let path = self.dir.join(CURRENT);
        let failed = |cause| CodeStoreError::Write { path: path.clone(), cause };
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

    /// Returns the default set.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn current(&self) -> Result<Option<String>, CodeStoreError> {
        let path = self.dir.join(CURRENT);
        match std::fs::read_to_string(&path) {
            Ok(hash) => Ok(Some(hash.trim().to_owned())),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(CodeStoreError::Missing { path, reason: error.to_string() }),
        }
    }

    /// Removes sets that no stored version needs and that were not used recently. Returns their
    /// number.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn remove_unused(
        &self,
        needed: &BTreeSet<String>,
        unused_for: Duration,
        now: SystemTime,
    ) -> io::Result<usize> {
        let mut removed = 0;
        for entry in subdirectories(&self.dir)? {
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

    /// Writes a temporary directory and renames it, so that a set is complete or absent.
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
        let text = serde_json::to_vec_pretty(&set.without_paths()).map_err(io::Error::other)?;
        std::fs::write(fresh.join(DESCRIPTION), text)?;
        let moved = std::fs::rename(&fresh, &dir);
        if moved.is_ok() || dir.join(DESCRIPTION).is_file() {
            // Another process may have stored it first.
            let _ = std::fs::remove_dir_all(&fresh);
            return Ok(());
        }
        // The existing directory is incomplete.
        std::fs::remove_dir_all(&dir)?;
        std::fs::rename(&fresh, &dir)
    }
}

/// Returns the hash of a set and the contents of its files.
fn digest(
    set: &CodeSet,
    sources: &BTreeMap<String, PathBuf>,
) -> Result<(String, Vec<Vec<u8>>), CodeStoreError> {
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
    if !set.machine_handlers.is_empty() {
        add(b"machine handlers");
        set.machine_handlers.iter().for_each(|handler| add(handler.as_bytes()));
    }
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
        pip_settings::arguments(&set.pip).iter().for_each(|argument| add(argument.as_bytes()));
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
    Ok((to_hex(&hash.finalize()[..HASH_BYTES]), contents))
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
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
            machine_handlers: Vec::new(),
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
        let changes: [fn(&mut CodeSet); 11] = [
            |set| set.machine_handlers.push("fs::File".to_owned()),
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
    fn unneeded_sets_are_removed_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let (set, store) = (module(dir.path()), CodeStore::new(dir.path().join("code")));
        let none = BTreeSet::new();
        let day = Duration::from_secs(86_400);
        let (hash, _) = store.put(&set).unwrap();
        let used = std::fs::metadata(dir.path().join("code").join(&hash).join(USED)).unwrap();
        let now = used.modified().unwrap();
        assert_eq!(store.remove_unused(&none, day, now + day / 2).unwrap(), 0);
        assert_eq!(
            store.remove_unused(&BTreeSet::from([hash.clone()]), day, now + 2 * day).unwrap(),
            0
        );
        assert_eq!(store.remove_unused(&none, day, now + 2 * day).unwrap(), 1);
        store.set_current(Some(&hash)).unwrap();
        assert_eq!(store.current().unwrap(), Some(hash.clone()));
        store.set_current(None).unwrap();
        store.set_current(None).unwrap();
        assert_eq!(store.current().unwrap(), None);
        let error = store.open(&hash).unwrap_err().to_string();
        assert!(error.contains("deploy it again"), "{error}");
        assert!(matches!(store.open("../x"), Err(CodeStoreError::Missing { .. })));
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
