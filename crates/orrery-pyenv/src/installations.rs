//! Directories of Python installations on this machine.

use std::path::{Path, PathBuf};

use crate::interpreters::{NEWEST_MINOR, OLDEST};

/// Returns directories with interpreters and other programs of this machine, to expose in a sandbox
/// that hides home directories.
pub fn installations() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = variable("HOME").map(PathBuf::from);
    let path = variable("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> =
        std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
    let names = (OLDEST.1..=NEWEST_MINOR).map(|minor| format!("python3.{minor}"));
    let names: Vec<String> = names.chain(["python3".to_owned(), "uv".to_owned()]).collect();
    // Link targets of programs, with the libraries beside them.
    let programs = found.iter().flat_map(|dir| names.iter().map(|name| dir.join(name)));
    let real = programs.filter_map(|program| {
        let program = std::fs::canonicalize(program).ok()?;
        let prefix = program.parent().filter(|dir| dir.ends_with("bin"))?.parent()?;
        // A home directory with a `bin` is not a prefix.
        let is_home =
            home.as_deref() == Some(prefix) || prefix.parent() == Some(Path::new("/home"));
        (!is_home && prefix.parent().is_some()).then(|| prefix.to_owned())
    });
    let real: Vec<PathBuf> = real.collect();
    found.extend(real);
    let managed = variable("PYENV_ROOT").map(PathBuf::from);
    found.extend(managed.or_else(|| Some(home.as_ref()?.join(".pyenv"))));
    found.extend(home.map(|home| home.join(".local/share/uv/python")));
    found.retain(|dir| dir.is_dir());
    found.sort();
    found.dedup();
    found
}
