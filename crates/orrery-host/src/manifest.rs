//! Manifest: a code set for machines that run handlers for a server, as a description and files by
//! SHA-256.
//!
//! A bundle names files by the ids of the store, and comes from a trusted place. A manifest crosses
//! machines: it is named by its own digest, and every file in it by that of its content, so that a
//! receiver needs to trust the name of the manifest only. It contains no path of the machine that
//! wrote it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Component, Path, PathBuf};

use orrery_base::hex::to_hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::code_store::{CodeSet, CodeStore, CodeStoreError};
use crate::sources::{self, COMPANIONS, PACKAGE_FILES_MAX};

/// Maximum size of a manifest, in bytes.
pub const MANIFEST_BYTES_MAX: u64 = 32 << 20;
/// Maximum total size of the files of a set, in bytes.
const SET_BYTES_MAX: u64 = 1 << 30;
/// Maximum depth of a path in a set.
const DEPTH_MAX: usize = 64;

/// Size and SHA-256 of a file of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    pub sha256: String,
    pub size: u64,
}

/// Description of a code set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeManifest {
    /// The set without interpreter and search path: those of the machine that runs it apply.
    pub set: CodeSet,
    /// Files by their paths in the set.
    pub files: BTreeMap<String, ManifestFile>,
}

/// Error of a manifest from another machine.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("the description of the code does not match its digest")]
    Digest,
    #[error("the description of the code is invalid: {0}")]
    Invalid(String),
}

/// Lower-case hexadecimal SHA-256.
pub fn sha256_hex(content: &[u8]) -> String {
    to_hex(&Sha256::digest(content))
}

/// Returns true for a lower-case hexadecimal SHA-256, which is a safe file name.
pub fn is_sha256_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl CodeManifest {
    /// Reads a manifest from another machine.
    ///
    /// # Errors
    /// If it does not match its digest, is too large, or has paths outside of the set.
    pub fn parse(digest: &str, text: &[u8]) -> Result<Self, ManifestError> {
        if sha256_hex(text) != digest {
            return Err(ManifestError::Digest);
        }
        let invalid = |reason: String| ManifestError::Invalid(reason);
        let manifest: CodeManifest =
            serde_json::from_slice(text).map_err(|error| invalid(error.to_string()))?;
        if manifest.files.len() > PACKAGE_FILES_MAX * manifest.set.modules.len().max(1) {
            return Err(invalid("it has too many files".to_owned()));
        }
        let sizes = manifest.files.values().map(|file| file.size);
        if sizes.fold(0, u64::saturating_add) > SET_BYTES_MAX {
            return Err(invalid(format!("its files have more than {SET_BYTES_MAX} bytes")));
        }
        for (path, file) in &manifest.files {
            let parts: Vec<Component<'_>> = Path::new(path).components().collect();
            let plain = parts.iter().all(|part| matches!(part, Component::Normal(_)));
            // Files outside the packages describe the set.
            if !plain || !(2..=DEPTH_MAX).contains(&parts.len()) {
                return Err(invalid(format!("{path:?} is outside of the set")));
            }
            if !is_sha256_hex(&file.sha256) {
                return Err(invalid(format!("{:?} is not a SHA-256", file.sha256)));
            }
        }
        Ok(manifest)
    }

    /// Digests of its files.
    pub fn digests(&self) -> BTreeSet<&str> {
        self.files.values().map(|file| file.sha256.as_str()).collect()
    }
}

/// Manifest of a set on this machine, and where its files are.
#[derive(Debug)]
pub struct LocalManifest {
    digest: String,
    text: Vec<u8>,
    /// Paths by the SHA-256 of their content.
    paths: BTreeMap<String, PathBuf>,
}

impl LocalManifest {
    /// Describes a set: one in a store, or one that lies where its modules are.
    ///
    /// # Errors
    /// If its files cannot be read.
    pub fn of(set: &CodeSet) -> Result<Self, CodeStoreError> {
        let mut sources = sources::collect(&set.modules)?;
        for companions in set.path.iter().filter(|path| path.ends_with(COMPANIONS)) {
            add_files(companions, Path::new(COMPANIONS), &mut sources)
                .map_err(|cause| missing(companions, &cause))?;
        }
        let (mut files, mut paths) = (BTreeMap::new(), BTreeMap::new());
        for (name, path) in sources {
            let content = std::fs::read(&path).map_err(|cause| missing(&path, &cause))?;
            let (sha256, size) = (sha256_hex(&content), content.len() as u64);
            paths.insert(sha256.clone(), path);
            files.insert(name, ManifestFile { sha256, size });
        }
        let mut set = set.without_paths();
        set.program = PathBuf::new();
        set.path.clear();
        let manifest = CodeManifest { set, files };
        let text = serde_json::to_vec(&manifest);
        let text = text.map_err(|error| missing(Path::new("manifest"), &error.into()))?;
        Ok(LocalManifest { digest: sha256_hex(&text), text, paths })
    }

    /// SHA-256 of the manifest.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the size of the manifest or a file of it, and a part of its content. `None` for all
    /// other digests.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(
        &self,
        digest: &str,
        offset: u64,
        bytes_max: usize,
    ) -> io::Result<Option<(u64, Vec<u8>)>> {
        if digest == self.digest {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.text.len());
            let end = start.saturating_add(bytes_max).min(self.text.len());
            return Ok(Some((self.text.len() as u64, self.text[start..end].to_vec())));
        }
        let Some(path) = self.paths.get(digest) else { return Ok(None) };
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(offset.min(size)))?;
        let mut content = Vec::new();
        file.take(bytes_max as u64).read_to_end(&mut content)?;
        Ok(Some((size, content)))
    }
}

fn missing(path: &Path, cause: &io::Error) -> CodeStoreError {
    CodeStoreError::Missing { path: path.to_owned(), reason: cause.to_string() }
}

/// Adds all files below a directory.
fn add_files(
    directory: &Path,
    prefix: &Path,
    files: &mut BTreeMap<String, PathBuf>,
) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let (path, name) = (entry.path(), prefix.join(entry.file_name()));
        if entry.file_name() == "__pycache__" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            if name.components().count() < DEPTH_MAX {
                add_files(&path, &name, files)?;
            }
        } else if let Some(name) = name.to_str() {
            files.insert(name.to_owned(), path);
        }
    }
    Ok(())
}

impl CodeStore {
    /// Stores a set from another machine, unless present. `fetch` returns a file by its SHA-256.
    ///
    /// # Errors
    /// If a file cannot be fetched, or does not match its digest.
    pub fn unpack_manifest(
        &self,
        digest: &str,
        manifest: &CodeManifest,
        fetch: &mut dyn FnMut(&ManifestFile) -> Result<Vec<u8>, String>,
    ) -> Result<CodeSet, CodeStoreError> {
        if let Ok(set) = self.open(digest) {
            return Ok(set);
        }
        let mut files = Vec::with_capacity(manifest.files.len());
        for (path, file) in &manifest.files {
            let failed = |reason: String| CodeStoreError::Missing { path: path.into(), reason };
            let content = fetch(file).map_err(failed)?;
            if sha256_hex(&content) != file.sha256 {
                return Err(failed("its content does not match its digest".to_owned()));
            }
            files.push((path.clone(), content));
        }
        self.store_files(digest, &manifest.set, &files)?;
        self.open(digest)
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::PipSettings;

    use super::*;
    use crate::handshake::ModuleCode;

    fn set(directory: &Path) -> CodeSet {
        let code = directory.join("libs/fs/plugins");
        std::fs::create_dir_all(code.join("deep")).unwrap();
        std::fs::write(code.join("__init__.py"), "import os\n").unwrap();
        std::fs::write(code.join("deep/more.py"), "x = 1\n").unwrap();
        CodeSet {
            modules: vec![ModuleCode {
                name: "fs".to_owned(),
                package: "inmanta_plugins.fs".to_owned(),
                code,
                root: directory.join("libs/fs"),
                version: "1.0".to_owned(),
            }],
            handlers: vec!["fs::File".to_owned()],
            machine_handlers: Vec::new(),
            python: None,
            program: "/usr/bin/python3".into(),
            path: vec!["/site".into()],
            requirements: Vec::new(),
            installed: Vec::new(),
            pip: PipSettings::default(),
        }
    }

    fn manifest_of(local: &LocalManifest) -> (String, Vec<u8>) {
        let (size, text) = local.read(local.digest(), 0, usize::MAX).unwrap().unwrap();
        assert_eq!(size, text.len() as u64);
        (local.digest().to_owned(), text)
    }

    #[test]
    fn a_set_crosses_machines_without_its_paths() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let local = LocalManifest::of(&set(here.path())).unwrap();
        let (digest, text) = manifest_of(&local);
        assert!(!String::from_utf8(text.clone()).unwrap().contains(here.path().to_str().unwrap()));
        let manifest = CodeManifest::parse(&digest, &text).unwrap();
        assert_eq!(manifest.digests().len(), 2);
        let store = CodeStore::new(there.path().join("code"));
        let mut fetch = |file: &ManifestFile| {
            // In parts, as over a session.
            let mut content = Vec::new();
            while (content.len() as u64) < file.size {
                let read = local.read(&file.sha256, content.len() as u64, 4).unwrap().unwrap();
                content.extend(read.1);
            }
            Ok(content)
        };
        let unpacked = store.unpack_manifest(&digest, &manifest, &mut fetch).unwrap();
        let code = there.path().join("code").join(&digest).join("inmanta_plugins/fs");
        assert_eq!(unpacked.modules[0].code, code);
        assert_eq!(std::fs::read_to_string(code.join("deep/more.py")).unwrap(), "x = 1\n");
        assert!(unpacked.path.is_empty() && unpacked.program.as_os_str().is_empty());
        // The unpacked set has the same manifest, so it can be passed on.
        assert_eq!(LocalManifest::of(&unpacked).unwrap().digest(), digest);
        assert_eq!(local.read(&"0".repeat(64), 0, 10).unwrap(), None);
    }

    #[test]
    fn tampered_code_is_refused() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let local = LocalManifest::of(&set(here.path())).unwrap();
        let (digest, mut text) = manifest_of(&local);
        let manifest = CodeManifest::parse(&digest, &text).unwrap();
        let store = CodeStore::new(there.path().join("code"));
        let mut evil = |_: &ManifestFile| Ok(b"import evil\n".to_vec());
        let error = store.unpack_manifest(&digest, &manifest, &mut evil).unwrap_err();
        assert!(error.to_string().contains("does not match its digest"), "{error}");
        assert!(store.open(&digest).is_err(), "nothing is stored");
        let at = text.len() - 3;
        text[at] ^= 1;
        assert!(matches!(CodeManifest::parse(&digest, &text), Err(ManifestError::Digest)));
    }

    #[test]
    fn paths_do_not_leave_the_set() {
        let here = tempfile::tempdir().unwrap();
        let (digest, text) = manifest_of(&LocalManifest::of(&set(here.path())).unwrap());
        let good = CodeManifest::parse(&digest, &text).unwrap();
        let file = good.files.values().next().unwrap().clone();
        for path in ["../x/y", "set.json", "/x/y", "a/../../b", "a/./b/.."] {
            let mut bad = good.clone();
            bad.files.insert(path.to_owned(), file.clone());
            let text = serde_json::to_vec(&bad).unwrap();
            let error = CodeManifest::parse(&sha256_hex(&text), &text).unwrap_err();
            assert!(error.to_string().contains("outside of the set"), "{path}: {error}");
        }
        let mut bad = good;
        bad.files.insert("a/b".to_owned(), ManifestFile { sha256: "../x".to_owned(), size: 1 });
        let text = serde_json::to_vec(&bad).unwrap();
        assert!(CodeManifest::parse(&sha256_hex(&text), &text).is_err());
    }
}
