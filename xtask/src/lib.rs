//! The repository tests itself: layers, pure crates, module cycles, APIs that only translate, names, English, leading comments, file sizes, left-over
//! macros, banned words, the book, the table of crates and the diagnostic pages.
//!
//! Each check is a function from what it reads to a list of [`Violation`]s, so that it can be shown
//! to fail on bad input; `tests/tidy.rs` runs them all on this repository as ordinary tests.
//! [`documents::models`] also reads the example models of the book for tests that compile them.

pub mod contributing;
pub mod documents;
pub mod layers;
pub mod module_cycles;
pub mod names;
pub mod prose;
pub mod purity;
pub mod rust_tokens;
pub mod sources;
pub mod translation;

use std::fmt;
use std::path::{Path, PathBuf};

/// One broken rule: where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub place: String,
    pub problem: String,
}

impl Violation {
    pub fn new(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { place: place.into(), problem: problem.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.problem)
    }
}

/// A text file of the repository. `path` is relative to the root and uses `/`.
#[derive(Clone, Debug)]
pub struct TextFile {
    pub path: String,
    pub text: String,
}

impl TextFile {
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// The part behind the last dot of the file's name, or nothing.
    pub fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

/// The root of the repository that this crate was built from.
pub fn repository_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Entries without hand-written content.
const SKIPPED_NAMES: [&str; 5] = [".git", "node_modules", ".venv", "__pycache__", ".cfcache"];
/// Build output and the fuzzer's data, in directories with names that sources have elsewhere.
const SKIPPED_PATHS: [&str; 5] =
    ["target", "console/dist", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"];

/// Every UTF-8 file below `root`, sorted by path. Of files that are not text, only images are
/// listed, without content: documents link to them.
///
/// # Errors
/// If a directory or file cannot be read.
pub fn read_repository(root: &Path) -> std::io::Result<Vec<TextFile>> {
    let mut files = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let name = entry.file_name();
            // In a linked work tree `.git` is a file, so names are skipped whatever their kind.
            let skipped_path = SKIPPED_PATHS.iter().any(|path| entry.path() == root.join(path));
            if skipped_path || SKIPPED_NAMES.iter().any(|skipped| name == *skipped) {
                continue;
            }
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_file() {
                let path = entry.path();
                let is_image = path
                    .extension()
                    .is_some_and(|extension| extension == "png" || extension == "webp");
                let text = match String::from_utf8(std::fs::read(&path)?) {
                    Ok(text) => text,
                    Err(_) if is_image => String::new(),
                    Err(_) => continue,
                };
                let relative = path.strip_prefix(root).unwrap_or(&path);
                files.push(TextFile::new(relative.to_string_lossy().replace('\\', "/"), text));
            }
        }
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(files)
}
