//! Checks the symbolic links of a checkout. A link that leads out of it would let a repository
//! expose files of the server, which the compiler quotes in its errors.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// A link to a path outside of the checkout.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EscapingLink {
    /// Path of the link, relative to the checkout.
    pub(crate) path: PathBuf,
    pub(crate) target: PathBuf,
}

/// Finds a link below a directory that leads out of it. Skips `.git` and virtualenvs, whose
/// interpreters are links: neither comes from a repository.
pub(crate) fn find_escaping(root: &Path) -> io::Result<Option<EscapingLink>> {
    let root = match fs::canonicalize(root) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut pending = vec![root.clone()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                let is_git = entry.file_name() == ".git";
                if !is_git && !path.join("pyvenv.cfg").is_file() {
                    pending.push(path);
                }
            } else if kind.is_symlink() {
                let target = fs::read_link(&path)?;
                if leads_out(&root, &directory, &path, &target) {
                    let path = path.strip_prefix(&root).unwrap_or(&path).to_owned();
                    return Ok(Some(EscapingLink { path, target }));
                }
            }
        }
    }
    Ok(None)
}

/// True if a link leads out of a directory, or would once its missing target exists.
fn leads_out(root: &Path, directory: &Path, link: &Path, target: &Path) -> bool {
    if let Ok(found) = fs::canonicalize(link) {
        return !found.starts_with(root);
    }
    let mut reached = directory.to_owned();
    for component in target.components() {
        match component {
            Component::ParentDir => {
                reached.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => reached = PathBuf::from("/"),
            Component::Normal(name) => reached.push(name),
        }
        if !reached.starts_with(root) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn found(links: &[(&str, &str)]) -> Option<PathBuf> {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("secret"), "x").unwrap();
        let root = scratch.path().join("project");
        for directory in ["libs/a", ".git", ".venv/bin"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join(".venv/pyvenv.cfg"), "").unwrap();
        fs::write(root.join("libs/a/file"), "").unwrap();
        for (path, target) in links {
            symlink(target, root.join(path)).unwrap();
        }
        find_escaping(&root).unwrap().map(|link| link.path)
    }

    #[test]
    fn links_within_a_checkout_are_allowed() {
        let links = [
            ("a", "libs/a"),
            ("libs/a/up", "../../libs/a/file"),
            ("gone", "libs/nothing"),
            (".git/outside", "/etc/passwd"),
            (".venv/bin/python", "/usr/bin/python3"),
        ];
        assert_eq!(found(&links), None);
    }

    #[test]
    fn links_out_of_a_checkout_are_found() {
        for (path, target) in [
            ("main.cf", "../secret"),
            ("main.cf", "../missing"),
            ("libs/a/deep", "../../../secret"),
            ("libs/b", "/dev/zero"),
            ("absolute", "/nowhere/at/all"),
            ("again", "../project/../secret"),
        ] {
            assert_eq!(found(&[(path, target)]).as_deref(), Some(Path::new(path)), "{target}");
        }
        // Through another link.
        assert!(found(&[("a", "libs"), ("b", "a/../../secret")]).is_some());
    }
}
