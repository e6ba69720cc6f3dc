//! Paths of virtualenvs and of files in them.

use std::path::{Path, PathBuf};

/// Names of virtualenvs in a project, in the compiler's search order.
const NAMES: [&str; 2] = [".venv", ".env"];

/// Path of a project's virtualenv: the requested one, the existing one, or that of a new one.
pub fn environment_path(project: &Path, asked_for: Option<&Path>) -> PathBuf {
    if let Some(dir) = asked_for {
        return dir.to_owned();
    }
    let inside = NAMES.map(|name| project.join(name));
    let existing = inside.iter().find(|dir| is_environment(dir));
    existing.unwrap_or(&inside[0]).clone()
}

/// True if a directory is a virtualenv.
pub fn is_environment(dir: &Path) -> bool {
    dir.join("pyvenv.cfg").is_file()
}

/// Full Python version of a virtualenv, from `pyvenv.cfg`: `3.13.0`.
pub(crate) fn python_release(dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(dir.join("pyvenv.cfg")).ok()?;
    let value = |key: &str| {
        let mut entries = text.lines().filter_map(|line| line.split_once('='));
        entries.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    };
    // Other tools write `version_info`, with a suffix after the third number.
    let version = value("version").or_else(|| value("version_info"))?;
    Some(version.split('.').take(3).collect::<Vec<_>>().join("."))
}

/// Interpreter of a virtualenv.
pub(crate) fn python_of(dir: &Path) -> PathBuf {
    dir.join("bin/python")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_a_project_is_the_one_that_is_there() {
        let scratch = tempfile::tempdir().unwrap();
        let project = scratch.path();
        assert_eq!(environment_path(project, None), project.join(".venv"));
        std::fs::create_dir_all(project.join(".env")).unwrap();
        assert_eq!(environment_path(project, None), project.join(".venv"));
        std::fs::write(project.join(".env/pyvenv.cfg"), "version_info = 3.12.1.final.0\n").unwrap();
        assert_eq!(environment_path(project, None), project.join(".env"));
        assert_eq!(python_release(&project.join(".env")).as_deref(), Some("3.12.1"));
        assert_eq!(environment_path(project, Some(Path::new("/v"))), Path::new("/v"));
    }
}
