//! Puts the pages of `docs/diagnostics` into the binary, for `orrery explain`, and the build of the
//! web console, for `orrery server`.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    diagnostic_pages()?;
    console_files()
}

fn variable(name: &str) -> PathBuf {
    std::env::var_os(name).map(PathBuf::from).unwrap_or_default()
}

fn diagnostic_pages() -> io::Result<()> {
    let pages = variable("CARGO_MANIFEST_DIR").join("../../docs/diagnostics");
    println!("cargo::rerun-if-changed={}", pages.display());
    let mut found = Vec::new();
    // A source tree without the book can be built; `orrery explain` then knows no page.
    if pages.is_dir() {
        for entry in std::fs::read_dir(&pages)? {
            let path = entry?.path();
            let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if path.extension().is_some_and(|extension| extension == "md") && id != "README" {
                found.push((id, path));
            }
        }
    }
    found.sort();
    let mut list = String::from("const PAGES: &[(&str, &str)] = &[\n");
    for (id, path) in &found {
        let _ = writeln!(list, "    ({id:?}, include_str!({path:?})),");
    }
    list.push_str("];\n");
    std::fs::write(variable("OUT_DIR").join("diagnostic_pages.rs"), list)
}

/// Lists the files in `console/dist`, with their compressed forms. Empty before the console is
/// built; the directory itself is always in the source tree, so that Cargo can watch it. The files
/// are copied, since another build of the console may replace them during this one.
fn console_files() -> io::Result<()> {
    let dist = variable("CARGO_MANIFEST_DIR").join("../../console/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    let copies = variable("OUT_DIR").join("console");
    if copies.is_dir() {
        std::fs::remove_dir_all(&copies)?;
    }
    std::fs::create_dir_all(&copies)?;
    let mut found = Vec::new();
    if dist.is_dir() {
        collect_files(&dist, &mut found)?;
    }
    found.sort();
    let is_compressed =
        |path: &Path| path.extension().is_some_and(|kind| kind == "br" || kind == "gz");
    let mut list = String::from("&[\n");
    for (number, path) in found.iter().filter(|path| !is_compressed(path)).enumerate() {
        let name = path.strip_prefix(&dist).unwrap_or(path).to_string_lossy().replace('\\', "/");
        if name.starts_with('.') {
            continue;
        }
        let copy = |kind: &str| -> io::Result<String> {
            let mut from = path.clone().into_os_string();
            from.push(kind);
            let to = copies.join(format!("{number}{kind}"));
            match Path::new(&from).is_file() {
                true => {
                    std::fs::copy(from, &to)?;
                    Ok(format!("Some(include_bytes!({to:?}))"))
                }
                false => Ok("None".to_owned()),
            }
        };
        std::fs::copy(path, copies.join(number.to_string()))?;
        let content = copies.join(number.to_string());
        let (brotli, gzip) = (copy(".br")?, copy(".gz")?);
        let _ = writeln!(
            list,
            "    ConsoleFile {{ path: {name:?}, content: include_bytes!({content:?}), brotli: {brotli}, gzip: {gzip} }},"
        );
    }
    list.push_str("]\n");
    std::fs::write(variable("OUT_DIR").join("console_files.rs"), list)
}

fn collect_files(directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        match path.is_dir() {
            true => collect_files(&path, found)?,
            false => found.push(path),
        }
    }
    Ok(())
}
