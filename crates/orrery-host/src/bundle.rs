//! The code of a version, made ready to travel: a description, and files by the SHA-1 of their contents. What arrives is
//! checked, and kept as if it had been made here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};

use crate::code::{CodeError, CodeSet, CodeStore, digest, package_path, read};

/// A set of code without the contents of its files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bundle {
    /// The name under which it is kept.
    pub hash: String,
    /// What is in it. It names no interpreter: that is found where it is used, by its requirements.
    pub set: serde_json::Value,
    /// SHA-1 of each file, by its path.
    pub files: BTreeMap<String, String>,
}

/// Contents of files by their SHA-1.
pub type Contents = BTreeMap<String, Vec<u8>>;

/// The SHA-1 of something, as the names of files have it.
pub fn sha1_of(content: &[u8]) -> String {
    Sha1::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Bundle {
    /// Makes code ready to travel.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(set: &CodeSet) -> Result<(Self, Contents), CodeError> {
        let mut portable = set.clone();
        portable.program = PathBuf::new();
        portable.path = Vec::new();
        let (sources, contents) = read(set)?;
        let names = sources.iter().map(|source| source.name.as_str());
        let hash = digest(&portable, names.clone().zip(contents.iter().map(Vec::as_slice)));
        for module in &mut portable.modules {
            module.code = package_path(module);
        }
        let hashes = contents.iter().map(|content| sha1_of(content));
        let files = names.map(str::to_owned).zip(hashes).collect();
        let contents = contents.into_iter().map(|content| (sha1_of(&content), content)).collect();
        let not_written = |error: serde_json::Error| CodeError::NotWhole {
            hash: hash.clone(),
            reason: error.to_string(),
        };
        let set = serde_json::to_value(&portable).map_err(not_written)?;
        Ok((Bundle { hash, set, files }, contents))
    }
}

impl CodeStore {
    /// Keeps code that has travelled, so that `open` finds it under its hash. `fetch` gives the contents of files; what it
    /// gives is checked.
    ///
    /// # Errors
    /// If something is missing or not what the bundle says, or cannot be kept.
    pub fn unpack(
        &self,
        bundle: &Bundle,
        mut fetch: impl FnMut(&str) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<CodeSet, CodeError> {
        if let Ok(kept) = self.open(&bundle.hash) {
            return Ok(kept);
        }
        let broken = |reason: String| CodeError::NotWhole { hash: bundle.hash.clone(), reason };
        let set: CodeSet = serde_json::from_value(bundle.set.clone())
            .map_err(|error| broken(format!("its description is not readable: {error}")))?;
        let mut contents: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        for (name, hash) in &bundle.files {
            if !is_below(name) {
                return Err(broken(format!("{name:?} is no name of a file in it")));
            }
            let content = fetch(hash).map_err(|error| broken(format!("{name}: {error}")))?;
            let content = content.ok_or_else(|| broken(format!("{name} ({hash}) is not there")))?;
            if sha1_of(&content) != *hash {
                return Err(broken(format!("{name} is not what it was")));
            }
            contents.insert(name, content);
        }
        let files = in_order(&set, &contents);
        let known: BTreeSet<&str> = files.iter().map(|(name, _)| *name).collect();
        if let Some(stray) = contents.keys().find(|name| !known.contains(*name)) {
            return Err(broken(format!("{stray} belongs to no module of it")));
        }
        if digest(&set, files.iter().copied()) != bundle.hash {
            return Err(broken("it is not what its name says".to_owned()));
        }
        self.keep(&bundle.hash, &set, &files)
    }
}

/// Files by module and name: the order in which they are hashed.
fn in_order<'a>(
    set: &CodeSet,
    contents: &'a BTreeMap<&'a str, Vec<u8>>,
) -> Vec<(&'a str, &'a [u8])> {
    let mut files = Vec::with_capacity(contents.len());
    for module in &set.modules {
        let package = package_path(module);
        let own = contents.iter().filter(|(name, _)| Path::new(name).starts_with(&package));
        files.extend(own.map(|(name, content)| (*name, content.as_slice())));
    }
    files
}

/// Whether a path leads nowhere but down.
fn is_below(name: &str) -> bool {
    let path = Path::new(name);
    !name.is_empty() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::ModuleCode;

    fn set(dir: &Path) -> CodeSet {
        let module = |name: &str| {
            let code = dir.join("libs").join(name).join("plugins");
            std::fs::create_dir_all(code.join("deep")).unwrap();
            std::fs::write(code.join("__init__.py"), format!("NAME = '{name}'\n")).unwrap();
            std::fs::write(code.join("deep/more.py"), "x = 1\n").unwrap();
            ModuleCode {
                name: name.to_owned(),
                package: format!("inmanta_plugins.{name}"),
                code,
                root: dir.join("libs").join(name),
                version: "1.0".to_owned(),
            }
        };
        CodeSet {
            // Loaded in another order than that of their names.
            modules: vec![module("web"), module("fs")],
            handlers: vec!["fs::File".to_owned()],
            program: "/opt/python".into(),
            path: vec!["/opt/more".into()],
            requirements: vec!["jinja2".to_owned()],
        }
    }

    #[test]
    fn code_that_has_travelled_is_what_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (bundle, contents) = Bundle::of(&set(dir.path())).unwrap();
        // Two files are the same.
        assert_eq!((bundle.files.len(), contents.len()), (4, 3));
        let there = CodeStore::new(dir.path().join("there"));
        let mut fetched = 0;
        let kept = there.unpack(&bundle, |hash| {
            fetched += 1;
            Ok(contents.get(hash).cloned())
        });
        let kept = kept.unwrap();
        assert_eq!(fetched, 4);
        assert_eq!((kept.program, kept.requirements), (PathBuf::new(), vec!["jinja2".to_owned()]));
        let code = &kept.modules[0].code;
        assert_eq!(std::fs::read_to_string(code.join("__init__.py")).unwrap(), "NAME = 'web'\n");
        assert_eq!(there.open(&bundle.hash).unwrap().modules, kept.modules);
        let again = there.unpack(&bundle, |_| Err("it is there".to_owned())).unwrap();
        assert_eq!(again.modules, kept.modules);
    }

    #[test]
    fn what_is_not_whole_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (bundle, contents) = Bundle::of(&set(dir.path())).unwrap();
        let there = CodeStore::new(dir.path().join("there"));
        let give = |hash: &str| Ok(contents.get(hash).cloned());
        let text = |answer: Result<CodeSet, CodeError>| answer.unwrap_err().to_string();
        assert!(text(there.unpack(&bundle, |_| Ok(None))).contains("is not there"));
        assert!(text(there.unpack(&bundle, |_| Ok(Some(vec![1])))).contains("not what it was"));
        let mut renamed = bundle.clone();
        renamed.hash = "00ff".to_owned();
        assert!(text(there.unpack(&renamed, give)).contains("what its name says"));
        let first = bundle.files.values().next().unwrap().clone();
        for stray in ["../outside", "/etc/passwd", "inmanta_plugins/../x"] {
            let mut wrong = bundle.clone();
            wrong.files.insert(stray.to_owned(), first.clone());
            assert!(text(there.unpack(&wrong, give)).contains("no name of a file"), "{stray}");
        }
        let mut more = bundle.clone();
        more.files.insert("other/x.py".to_owned(), first);
        assert!(text(there.unpack(&more, give)).contains("belongs to no module"));
        assert!(!dir.path().join("there").exists());
    }
}
