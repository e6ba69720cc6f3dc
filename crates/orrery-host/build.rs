//! Embeds the Python files of the SDK in the binary: a list of names and contents, and a hash that
//! distinguishes unpacked copies.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Length of the truncated hash; it names a directory.
const HASH_BYTES: usize = 12;

fn main() -> io::Result<()> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let source = variable("CARGO_MANIFEST_DIR").join("../../sdk/python/src");
    println!("cargo::rerun-if-changed={}", source.display());
    let mut files = Vec::new();
    // A source tree without the SDK builds; functions that need the SDK report an error.
    if source.is_dir() {
        collect(&source, "", &mut files)?;
    }
    files.sort();
    let mut list = String::from("pub(crate) const FILES: &[(&str, &[u8])] = &[\n");
    let mut hash = Sha256::new();
    for (name, path) in &files {
        let content = std::fs::read(path)?;
        hash.update(format!("{name}\0{}\0", content.len()));
        hash.update(&content);
        let _ = writeln!(list, "    ({name:?}, include_bytes!({path:?})),");
    }
    list.push_str("];\n");
    let digits: String =
        hash.finalize().iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    let _ = writeln!(list, "pub(crate) const HASH: &str = {digits:?};");
    std::fs::write(variable("OUT_DIR").join("sdk_files.rs"), list)
}

/// Collects the files below a directory with relative names, without files of Python and editors.
fn collect(dir: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "__pycache__" || name.starts_with('.') || name.ends_with(".egg-info") {
            continue;
        }
        let path = entry.path();
        let below = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            println!("cargo::rerun-if-changed={}", path.display());
            collect(&path, &format!("{below}/"), files)?;
        } else {
            files.push((below, std::fs::canonicalize(path)?));
        }
    }
    Ok(())
}
