//! Finds the Python of a new virtualenv.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Error;

/// Preferred minor versions: the newest that published modules support first, newer ones last.
const MINORS: [u32; 6] = [13, 12, 11, 14, 15, 16];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interpreter {
    pub(crate) path: PathBuf,
    /// `3.13.0`
    pub(crate) version: String,
}

/// Search paths for programs; injectable for tests.
pub(crate) struct SearchPaths {
    path: Vec<PathBuf>,
    /// Directories of version managers, with a subdirectory per version.
    versions: Vec<PathBuf>,
}

impl SearchPaths {
    pub(crate) fn of_this_machine() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let home = variable("HOME").map(PathBuf::from);
        let root = variable("PYENV_ROOT").map(PathBuf::from);
        let root = root.or_else(|| home.map(|home| home.join(".pyenv")));
        let path = variable("PATH").unwrap_or_default();
        SearchPaths {
            path: std::env::split_paths(&path).collect(),
            versions: root.map(|root| root.join("versions")).into_iter().collect(),
        }
    }

    /// Candidates for Python 3.`minor`, most likely first.
    fn candidates(&self, minor: u32) -> Vec<PathBuf> {
        let name = format!("python3.{minor}");
        let mut found: Vec<PathBuf> = Vec::new();
        for versions in &self.versions {
            let mut dirs: Vec<PathBuf> = std::fs::read_dir(versions)
                .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
                .unwrap_or_default();
            let prefix = format!("3.{minor}.");
            dirs.retain(|dir| {
                dir.file_name()
                    .and_then(OsStr::to_str)
                    .is_some_and(|name| name.starts_with(&prefix))
            });
            dirs.sort_by_key(|dir| std::cmp::Reverse(patch_of(dir)));
            found.extend(dirs.into_iter().map(|dir| dir.join("bin").join(&name)));
        }
        found.extend(self.path.iter().map(|dir| dir.join(&name)));
        found.retain(|path| path.is_file());
        found
    }

    /// Finds the newest Python that can create virtualenvs, or the requested one: a version such as
    /// `3.12`, a program name, or a path.
    pub(crate) fn find(&self, wanted: Option<&str>) -> Result<Interpreter, Error> {
        let Some(wanted) = wanted else {
            let all = MINORS.iter().flat_map(|minor| self.candidates(*minor));
            let any = self.path.iter().map(|dir| dir.join("python3")).filter(|path| path.is_file());
            return all.chain(any).find_map(|path| probe(&path).ok()).ok_or(Error::NoPython);
        };
        let unusable = |reason: String| Error::UnusablePython { python: wanted.to_owned(), reason };
        if let Some(minor) = wanted.strip_prefix("3.") {
            let minor = minor.split('.').next().unwrap_or_default();
            if let Ok(minor) = minor.parse() {
                let exact = |found: &Interpreter| {
                    found.version == wanted || found.version.starts_with(&format!("{wanted}."))
                };
                let mut reason = "no such version found".to_owned();
                for path in self.candidates(minor) {
                    match probe(&path) {
                        Ok(found) if exact(&found) => return Ok(found),
                        Ok(_) => {}
                        Err(why) => reason = why,
                    }
                }
                return Err(unusable(reason));
            }
        }
        let path = if wanted.contains('/') {
            PathBuf::from(wanted)
        } else {
            let places = self.path.iter().map(|dir| dir.join(wanted));
            places
                .into_iter()
                .find(|path| path.is_file())
                .ok_or_else(|| unusable("no such program in the search path".into()))?
        };
        probe(&path).map_err(unusable)
    }
}

fn patch_of(dir: &Path) -> Option<u32> {
    let name = dir.file_name()?.to_str()?;
    name.rsplit('.').next()?.parse().ok()
}

/// Runs a program to get its version and to check that it can create virtualenvs. Some
/// installations lack `ensurepip`, and some programs are only shims of version managers.
fn probe(path: &Path) -> Result<Interpreter, String> {
    const QUESTION: &str =
        "import sys, ensurepip, venv; print('.'.join(map(str, sys.version_info[:3])))";
    let output = Command::new(path)
        .args(["-I", "-c", QUESTION])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed");
        return Err(last.trim().to_owned());
    }
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !is_recent(&version) {
        return Err(format!("Python {version} is too old, 3.11 or newer is required"));
    }
    Ok(Interpreter { path: path.to_owned(), version })
}

pub(super) fn is_recent(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next(), parts.next()) >= (Some(3), Some(11))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A program that behaves like Python.
    fn fake(path: &Path, script: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn machine(programs: &[(&str, &str)]) -> (tempfile::TempDir, SearchPaths) {
        let scratch = tempfile::tempdir().unwrap();
        for (path, script) in programs {
            fake(&scratch.path().join(path), script);
        }
        let places = SearchPaths {
            path: vec![scratch.path().join("one"), scratch.path().join("two")],
            versions: vec![scratch.path().join("versions")],
        };
        (scratch, places)
    }

    #[test]
    fn the_newest_that_works_is_taken() {
        let (scratch, places) = machine(&[
            ("one/python3.13", "echo 'choose a version' >&2; exit 127"),
            ("versions/3.12.9/bin/python3.12", "echo 3.12.9"),
            ("versions/3.12.10/bin/python3.12", "echo 3.12.10"),
            ("two/python3.11", "echo 3.11.2"),
            ("two/python3.14", "echo 3.14.0"),
            ("two/python3", "echo 3.9.1"),
        ]);
        let found = places.find(None).unwrap();
        assert_eq!(found.version, "3.12.10");
        assert_eq!(found.path, scratch.path().join("versions/3.12.10/bin/python3.12"));
        assert_eq!(places.find(Some("3.11")).unwrap().version, "3.11.2");
        assert_eq!(places.find(Some("3.12.9")).unwrap().version, "3.12.9");
        assert_eq!(places.find(Some("python3.14")).unwrap().version, "3.14.0");
    }

    #[test]
    fn rejected_interpreters_have_a_reason() {
        let (scratch, places) = machine(&[
            ("one/python3", "echo 3.9.1"),
            ("one/python3.10", "echo 3.10.1"),
            ("one/broken", "echo 'no module named ensurepip' >&2; exit 1"),
        ]);
        assert!(matches!(places.find(None), Err(Error::NoPython)));
        let reason = |wanted: &str| match places.find(Some(wanted)) {
            Err(Error::UnusablePython { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason("python3"), "Python 3.9.1 is too old, 3.11 or newer is required");
        assert_eq!(reason("broken"), "no module named ensurepip");
        assert_eq!(reason("3.12"), "no such version found");
        assert_eq!(reason("3.10"), "Python 3.10.1 is too old, 3.11 or newer is required");
        assert_eq!(reason("nowhere"), "no such program in the search path");
        let absent = scratch.path().join("absent");
        assert!(reason(absent.to_str().unwrap()).contains("No such file"));
    }
}
