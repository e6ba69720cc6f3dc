//! File contents of an exported version, addressed by hash.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use orrery_host::bundle::sha1_hex;
use orrery_host::code_store::{CodeSet, CodeStore};

/// Contents that a version refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectedContents {
    /// Sizes by SHA-1. The contents are in the collected directory, each under its hash.
    pub contents: BTreeMap<String, u64>,
    /// Ids that module code chose, and their hashes.
    pub files: BTreeMap<String, String>,
    /// Hash of the description of the handler code.
    pub code: Option<String>,
}

/// Error while contents are collected.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error(transparent)]
    Scratch(io::Error),
    #[error(transparent)]
    Code(#[from] orrery_host::code_store::CodeStoreError),
    #[error(transparent)]
    Description(#[from] serde_json::Error),
}

/// Collects the contents that a compile wrote into a directory, and adds the handler code.
///
/// # Errors
/// Fails if the directory cannot be read or written, or the code cannot be read.
pub fn collect_contents(
    directory: &Path,
    code: Option<CodeSet>,
) -> Result<CollectedContents, ContentsError> {
    let failed = |cause| ContentsError::Io { path: directory.to_owned(), cause };
    std::fs::create_dir_all(directory).map_err(failed)?;
    let code = code.map(|set| pack(set, directory)).transpose()?;
    let (mut contents, mut files) = (BTreeMap::new(), BTreeMap::new());
    let entries: Result<Vec<_>, _> = std::fs::read_dir(directory).map_err(failed)?.collect();
    for entry in entries.map_err(failed)? {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let content = std::fs::read(entry.path()).map_err(failed)?;
        let sha1 = sha1_hex(&content);
        if name != sha1 {
            // Module code may use its own ids; uploads are addressed by hash.
            std::fs::write(directory.join(&sha1), &content).map_err(failed)?;
            files.insert(name, sha1.clone());
        }
        contents.insert(sha1, content.len() as u64);
    }
    debug_assert!(code.as_ref().is_none_or(|hash| contents.contains_key(hash)));
    debug_assert!(files.values().all(|hash| contents.contains_key(hash)));
    Ok(CollectedContents { contents, files, code })
}

/// Adds the handler code to the contents and returns the hash of its description.
fn pack(mut set: CodeSet, directory: &Path) -> Result<String, ContentsError> {
    // The code will run with another interpreter.
    set.program = PathBuf::new();
    set.path = Vec::new();
    let scratch = tempfile::tempdir().map_err(ContentsError::Scratch)?;
    let store = CodeStore::new(scratch.path().to_owned());
    let (hash, _) = store.put(&set)?;
    let (bundle, files) = store.bundle(&hash)?;
    let description = bundle.to_json()?;
    let hash = sha1_hex(&description);
    for (name, content) in files.iter().chain([(&hash, &description)]) {
        let path = directory.join(name);
        std::fs::write(&path, content).map_err(|cause| ContentsError::Io { path, cause })?;
    }
    Ok(hash)
}
