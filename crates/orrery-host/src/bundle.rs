//! A set of code on its way to another machine: a description, and files by their SHA-1.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use crate::code::{CodeError, CodeSet, CodeStore, PACKAGE_FILES_MAX};

/// The description of a set of code. As JSON it is a file itself, so that a version needs to name only one hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// The name under which the set is kept.
    pub hash: String,
    pub set: CodeSet,
    /// SHA-1 of each file, by its path in the set.
    pub files: BTreeMap<String, String>,
}

/// Lower-case hexadecimal SHA-1.
pub fn sha1_hex(content: &[u8]) -> String {
    Sha1::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Bundle {
    /// The bundle as the file that others fetch.
    ///
    /// # Errors
    /// If a path in it is not UTF-8.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

impl CodeStore {
    /// Describes a set that is kept, and gives the contents of its files by their SHA-1.
    ///
    /// # Errors
    /// If it is not there any more.
    pub fn bundle(&self, hash: &str) -> Result<(Bundle, BTreeMap<String, Vec<u8>>), CodeError> {
        let set = self.open(hash)?;
        let dir = self.dir().join(hash);
        let (mut files, mut contents) = (BTreeMap::new(), BTreeMap::new());
        let mut pending = vec![PathBuf::new()];
        while let Some(below) = pending.pop() {
            let path = dir.join(&below);
            let failed = |cause: std::io::Error| CodeError::Missing {
                path: path.clone(),
                reason: cause.to_string(),
            };
            for entry in std::fs::read_dir(&path).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = below.join(entry.file_name());
                if entry.file_type().map_err(failed)?.is_dir() {
                    pending.push(name);
                } else if name.components().count() > 1 {
                    // What lies beside the packages describes the set.
                    let content = std::fs::read(entry.path()).map_err(failed)?;
                    let sha1 = sha1_hex(&content);
                    files.insert(name.to_string_lossy().into_owned(), sha1.clone());
                    contents.insert(sha1, content);
                }
            }
        }
        Ok((Bundle { hash: hash.to_owned(), set, files }, contents))
    }

    /// Keeps a set that comes from elsewhere, unless it is here already. `fetch` gives a file by its SHA-1.
    ///
    /// # Errors
    /// If a file cannot be had, is not what its name says, or lies outside of the set.
    pub fn unpack(
        &self,
        bundle: &Bundle,
        fetch: &mut dyn FnMut(&str) -> Result<Vec<u8>, String>,
    ) -> Result<CodeSet, CodeError> {
        if let Ok(set) = self.open(&bundle.hash) {
            return Ok(set);
        }
        let missing = |name: &str, reason: String| CodeError::Missing { path: name.into(), reason };
        if bundle.files.len() > PACKAGE_FILES_MAX * bundle.set.modules.len().max(1) {
            return Err(missing(&bundle.hash, "it has too many files".to_owned()));
        }
        let safe =
            !bundle.hash.is_empty() && bundle.hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !safe {
            return Err(missing(&bundle.hash, "it has no proper name".to_owned()));
        }
        let mut files = Vec::with_capacity(bundle.files.len());
        for (name, sha1) in &bundle.files {
            let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
            if !Path::new(name).components().all(plain) {
                return Err(missing(name, "it lies outside of the set".to_owned()));
            }
            let content = fetch(sha1).map_err(|reason| missing(name, reason))?;
            if sha1_hex(&content) != *sha1 {
                return Err(missing(name, "its content is not what its hash says".to_owned()));
            }
            files.push((name.clone(), content));
        }
        self.keep(&bundle.hash, &bundle.set, &files)?;
        self.open(&bundle.hash)
    }
}
