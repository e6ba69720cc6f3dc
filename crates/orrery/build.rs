//! Puts the pages of `docs/diagnostics` into the binary, for `orrery explain`.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

fn main() -> io::Result<()> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).unwrap_or_default();
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
