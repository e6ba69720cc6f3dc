//! Bundle: a code set for transport, as a description and files by SHA-1.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use orrery_base::hex::to_hex;
use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

use crate::code_store::{CodeSet, CodeStore, CodeStoreError};
use crate::handshake::ModuleCode;
use crate::sources::{COMPANIONS, PACKAGE_FILES_MAX, package_path};

/// Description of a code set. Its JSON is a file itself, so that a version names only one hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// Hash of the set, for display: a store names the set by the hash of this description.
    pub hash: String,
    pub set: CodeSet,
    /// SHA-1 of each file, by its path in the set.
    pub files: BTreeMap<String, String>,
}

/// Lower-case hexadecimal SHA-1.
pub fn sha1_hex(content: &[u8]) -> String {
    to_hex(&Sha1::digest(content))
}

impl Bundle {
    /// Describes a set from the SHA-1 of its files.
    ///
    /// # Errors
    /// Fails if a path in it is not UTF-8.
    pub fn new(set: &CodeSet, files: BTreeMap<String, String>) -> serde_json::Result<Self> {
        let set = set.without_paths();
        let text = serde_json::to_vec(&(&set, &files))?;
        let hash = to_hex(&Sha256::digest(&text)[..16]);
        Ok(Bundle { hash, set, files })
    }

    /// Returns the modules and packages with different code in `other`. Code that only one of them
    /// has does not count.
    pub fn differing(&self, other: &Bundle) -> Vec<String> {
        let mut names = BTreeSet::new();
        for module in &self.set.modules {
            let is_same = |of: &&ModuleCode| of.name == module.name;
            if let Some(of) = other.set.modules.iter().find(is_same)
                && (of.version != module.version || self.files_of(module) != other.files_of(of))
            {
                names.insert(module.name.clone());
            }
        }
        for module in &self.set.installed {
            let mut same = other.set.installed.iter().filter(|of| of.name == module.name);
            if same.any(|of| of.version != module.version) {
                names.insert(module.name.clone());
            }
        }
        for (path, sha1) in &self.files {
            // The path of a distribution's metadata contains its version.
            let Some(package) = companion_of(path) else { continue };
            if other.files.get(path).is_some_and(|of| of != sha1) {
                names.insert(package.to_owned());
            }
        }
        names.into_iter().collect()
    }

    fn files_of(&self, module: &ModuleCode) -> Vec<(&str, &str)> {
        let place = package_path(module);
        let files = self.files.iter().filter(|(path, _)| Path::new(path).starts_with(&place));
        files.map(|(path, sha1)| (path.as_str(), sha1.as_str())).collect()
    }

    /// Merges this code with the code that only `base` has: a partial export contains the modules
    /// it imports, and the rest of the version keeps its own. If nothing is new, returns `base`
    /// itself.
    ///
    /// # Errors
    /// Fails if a path in it is not UTF-8.
    pub fn merged_over(&self, base: &Bundle) -> serde_json::Result<Self> {
        let names = |set: &CodeSet| -> BTreeSet<String> {
            let modules = set.modules.iter().map(|of| of.name.clone());
            modules.chain(set.installed.iter().map(|of| of.name.clone())).collect()
        };
        let (own, before) = (names(&self.set), names(&base.set));
        let changed: BTreeSet<String> = self.differing(base).into_iter().collect();
        if own.is_superset(&before) && !changed.is_empty() {
            return Ok(self.clone());
        }
        let mut set = base.set.clone();
        let is_kept = |name: &String| !own.contains(name) || !changed.contains(name);
        set.modules.retain(|of| is_kept(&of.name));
        set.installed.retain(|of| is_kept(&of.name));
        let kept = names(&set);
        let is_new = |name: &String| !kept.contains(name);
        set.modules.extend(self.set.modules.iter().filter(|of| is_new(&of.name)).cloned());
        set.installed.extend(self.set.installed.iter().filter(|of| is_new(&of.name)).cloned());
        add_missing(&mut set.handlers, &self.set.handlers);
        // Handlers of changed and new modules count as this export says.
        let is_own = |entity: &String| self.set.handlers.contains(entity);
        set.machine_handlers.retain(|entity| !is_own(entity));
        add_missing(&mut set.machine_handlers, &self.set.machine_handlers);
        add_missing(&mut set.requirements, &self.set.requirements);
        set.python = set.python.or_else(|| self.set.python.clone());
        if !self.set.pip.is_empty() {
            set.pip.clone_from(&self.set.pip);
        }
        let mut files = BTreeMap::new();
        for (bundle, from_base) in [(base, true), (self, false)] {
            for (path, sha1) in &bundle.files {
                let module = bundle
                    .set
                    .modules
                    .iter()
                    .find(|of| Path::new(path).starts_with(package_path(of)));
                let wanted = match module {
                    Some(of) => kept.contains(&of.name) == from_base,
                    None => true,
                };
                if wanted {
                    files.insert(path.clone(), sha1.clone());
                }
            }
        }
        if set.without_paths() == base.set.without_paths() && files == base.files {
            return Ok(base.clone());
        }
        Bundle::new(&set, files)
    }

    /// Returns the bundle as a file.
    ///
    /// # Errors
    /// Fails if a path in it is not UTF-8.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

/// Returns the top-level package or file of a path outside the modules' packages; `None` for
/// metadata.
fn companion_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix(COMPANIONS)?.strip_prefix('/')?;
    let first = inside.split('/').next()?;
    (!first.ends_with(".dist-info")).then_some(first)
}

/// Appends missing entries to a list.
fn add_missing(all: &mut Vec<String>, more: &[String]) {
    let missing: Vec<String> = more.iter().filter(|one| !all.contains(one)).cloned().collect();
    if !missing.is_empty() {
        all.extend(missing);
        all.sort_unstable();
    }
}

impl CodeStore {
    /// Describes a stored set. Returns the contents of its files by SHA-1.
    ///
    /// # Errors
    /// Fails if the set is missing.
    pub fn bundle(
        &self,
        hash: &str,
    ) -> Result<(Bundle, BTreeMap<String, Vec<u8>>), CodeStoreError> {
        let set = self.describe(hash)?;
        let dir = self.dir().join(hash);
        let (mut files, mut contents) = (BTreeMap::new(), BTreeMap::new());
        let mut pending = vec![PathBuf::new()];
        while let Some(below) = pending.pop() {
            let path = dir.join(&below);
            let failed = |cause: std::io::Error| CodeStoreError::Missing {
                path: path.clone(),
                reason: cause.to_string(),
            };
            for entry in std::fs::read_dir(&path).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = below.join(entry.file_name());
                if entry.file_type().map_err(failed)?.is_dir() {
                    pending.push(name);
                } else if name.components().count() > 1 {
                    // Files outside the packages describe the set.
                    let content = std::fs::read(entry.path()).map_err(failed)?;
                    let sha1 = sha1_hex(&content);
                    files.insert(name.to_string_lossy().into_owned(), sha1.clone());
                    contents.insert(sha1, content);
                }
            }
        }
        Ok((Bundle { hash: hash.to_owned(), set, files }, contents))
    }

    /// Stores a set from another machine, unless present. `name` is the hash of its description and
    /// identifies the code, whatever a description claims. `fetch` returns a file by its SHA-1.
    ///
    /// # Errors
    /// Fails if a file cannot be fetched, does not match its hash, or is outside of the set.
    pub fn unpack(
        &self,
        name: &str,
        bundle: &Bundle,
        fetch: &mut dyn FnMut(&str) -> Result<Vec<u8>, String>,
    ) -> Result<CodeSet, CodeStoreError> {
        if let Ok(set) = self.open(name) {
            return Ok(set);
        }
        let missing =
            |name: &str, reason: String| CodeStoreError::Missing { path: name.into(), reason };
        if bundle.files.len() > PACKAGE_FILES_MAX * bundle.set.modules.len().max(1) {
            return Err(missing(name, "it has too many files".to_owned()));
        }
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(missing(name, "its name is not a valid hash".to_owned()));
        }
        let mut files = Vec::with_capacity(bundle.files.len());
        for (path, sha1) in &bundle.files {
            let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
            // Files outside the packages describe the set.
            if !Path::new(path).components().all(plain) || Path::new(path).components().count() < 2
            {
                return Err(missing(path, "it is outside of the set".to_owned()));
            }
            let content = fetch(sha1).map_err(|reason| missing(path, reason))?;
            if sha1_hex(&content) != *sha1 {
                return Err(missing(path, "its content does not match its hash".to_owned()));
            }
            files.push((path.clone(), content));
        }
        self.store_files(name, &bundle.set, &files)?;
        self.open(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_model::PipSettings;
    use orrery_pyenv::InstalledModule;

    fn bundle(modules: &[(&str, &str)], requirements: &[&str]) -> Bundle {
        let module = |(name, _): &(&str, &str)| ModuleCode {
            name: (*name).to_owned(),
            package: format!("inmanta_plugins.{name}"),
            code: PathBuf::from("/home/me"),
            root: PathBuf::from("/home/me"),
            version: "1".to_owned(),
        };
        let set = CodeSet {
            modules: modules.iter().map(module).collect(),
            handlers: modules.iter().map(|(name, _)| format!("{name}::Thing")).collect(),
            machine_handlers: Vec::new(),
            python: None,
            program: PathBuf::new(),
            path: Vec::new(),
            requirements: requirements.iter().map(|of| (*of).to_owned()).collect(),
            installed: Vec::new(),
            pip: PipSettings::default(),
        };
        let files = modules.iter().flat_map(|(name, content)| {
            let package = format!("inmanta_plugins/{name}/__init__.py");
            let companion = format!("packages/inmanta_{name}/__init__.py");
            [(package, sha1_hex(content.as_bytes())), (companion, sha1_hex(name.as_bytes()))]
        });
        Bundle::new(&set, files.collect()).unwrap()
    }

    fn names(bundle: &Bundle) -> Vec<&str> {
        bundle.set.modules.iter().map(|of| of.name.as_str()).collect()
    }

    #[test]
    fn a_part_of_the_code_is_the_code_of_the_whole() {
        let base = bundle(&[("fs", "1"), ("apt", "1")], &["mitogen"]);
        let part = bundle(&[("fs", "1")], &["mitogen"]);
        assert!(part.differing(&base).is_empty());
        assert_eq!(part.merged_over(&base).unwrap(), base);
        assert_eq!(base.merged_over(&part).unwrap().files, base.files);
        assert!(!String::from_utf8(base.to_json().unwrap()).unwrap().contains("/home/me"));
    }

    #[test]
    fn new_modules_are_added_and_changed_ones_named() {
        let base = bundle(&[("fs", "1"), ("apt", "1")], &["mitogen"]);
        let more = bundle(&[("fs", "1"), ("cron", "1")], &["pyyaml"]);
        assert!(more.differing(&base).is_empty());
        let merged = more.merged_over(&base).unwrap();
        assert_eq!(names(&merged), ["fs", "apt", "cron"]);
        assert_eq!(merged.set.requirements, ["mitogen", "pyyaml"]);
        assert_eq!(merged.set.handlers, ["apt::Thing", "cron::Thing", "fs::Thing"]);
        assert_eq!(merged.files.len(), 6);
        let changed = bundle(&[("fs", "2")], &[]);
        assert_eq!(changed.differing(&base), ["fs"]);
        let merged = changed.merged_over(&base).unwrap();
        assert_eq!(names(&merged), ["apt", "fs"]);
        let content = &merged.files["inmanta_plugins/fs/__init__.py"];
        assert_eq!(*content, sha1_hex(b"2"));
        // A bundle with all modules replaces them all, with their requirements.
        let all = bundle(&[("fs", "2"), ("apt", "1")], &["other"]);
        assert_eq!(all.merged_over(&base).unwrap(), all);
    }

    #[test]
    fn packages_differ_by_their_version() {
        let with = |version: &str| {
            let mut made = bundle(&[("fs", "1")], &[]);
            let (name, version) = ("toy".to_owned(), version.to_owned());
            made.set.installed.push(InstalledModule { name, version });
            made
        };
        assert_eq!(with("1").differing(&with("2")), ["toy"]);
        assert!(with("1").differing(&with("1")).is_empty());
        assert_eq!(
            with("1").merged_over(&bundle(&[("apt", "1")], &[])).unwrap().set.installed.len(),
            1
        );
    }

    #[test]
    fn a_description_cannot_take_the_place_of_another_set() {
        let dir = tempfile::tempdir().unwrap();
        let store = CodeStore::new(dir.path().to_owned());
        let mut fetch = |sha1: &str| -> Result<Vec<u8>, String> {
            let known = [&b"1"[..], b"2", b"fs"];
            let found = known.iter().find(|content| sha1_hex(content) == sha1);
            found.map(|content| content.to_vec()).ok_or_else(|| "there is none".to_owned())
        };
        let good = bundle(&[("fs", "1")], &[]);
        let evil = Bundle { hash: good.hash.clone(), ..bundle(&[("fs", "2")], &[]) };
        let name = |bundle: &Bundle| sha1_hex(&bundle.to_json().unwrap());
        store.unpack(&name(&evil), &evil, &mut fetch).unwrap();
        let set = store.unpack(&name(&good), &good, &mut fetch).unwrap();
        let code = std::fs::read(set.modules[0].code.join("__init__.py")).unwrap();
        assert_eq!(code, b"1");
        assert!(set.path.iter().any(|path| path.join("inmanta_fs/__init__.py").is_file()));
        for path in ["../x/y", "set.json", "/x/y"] {
            let mut bad = good.clone();
            bad.files.insert(path.to_owned(), sha1_hex(b"1"));
            assert!(store.unpack(&name(&bad), &bad, &mut fetch).is_err(), "{path}");
        }
    }
}
