//! The lock file `orrery.lock`: exact versions, sources and hashes of all installed packages, so
//! that every machine installs the same. `Lock` is its content; `format` reads and writes its text.
//!
//! The hashes of a locked version never change unless that package is updated: other files under
//! the same name are rejected. The SDK and the shims come with the binary and have no hashes; of
//! shims, the version is locked.

mod format;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// File name, beside `project.yml`.
pub const FILE: &str = "orrery.lock";

/// Digests of the inputs of a resolution, by file or section.
pub type Inputs = BTreeMap<String, String>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Python version of the resolution: `3.13`.
    pub python: String,
    pub inputs: Inputs,
    /// Sorted by name.
    pub packages: Vec<LockedPackage>,
    /// Cloned modules, sorted by name.
    pub modules: Vec<LockedModule>,
}

/// An exact Python package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedPackage {
    /// Normalized name.
    pub name: String,
    /// `None` for directories: their version may change.
    pub version: Option<String>,
    pub source: PackageSource,
    /// `sha256:…` of every acceptable file.
    pub hashes: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackageSource {
    /// An index of pip or the project. The hashes identify the content, whichever index it comes
    /// from.
    Index,
    /// A shim that the binary provides.
    Orrery,
    Git {
        url: String,
        commit: String,
        subdirectory: Option<String>,
    },
    /// URL or path of a wheel or source distribution.
    Archive(String),
    /// A directory, relative to the project.
    Directory {
        path: PathBuf,
        editable: bool,
    },
}

/// A module at a commit of its repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedModule {
    pub name: String,
    pub url: String,
    pub commit: String,
}

impl Lock {
    pub fn path(project: &Path) -> PathBuf {
        project.join(FILE)
    }

    pub fn package(&self, name: &str) -> Option<&LockedPackage> {
        self.packages.iter().find(|package| package.name == name)
    }
}

impl LockedPackage {
    /// True if it comes from an index without hashes.
    pub fn is_unverified(&self) -> bool {
        self.source == PackageSource::Index && self.hashes.is_empty()
    }

    /// Version with the source, unless it is an index.
    pub fn display_version(&self) -> String {
        let version = self.version.clone().unwrap_or_default();
        match &self.source {
            PackageSource::Index | PackageSource::Orrery => version,
            other => format!("{version} ({other})").trim_start().to_owned(),
        }
    }
}

const GIT: &str = "git+";
const ARCHIVE: &str = "archive+";
const PATH: &str = "path+";
const EDITABLE: &str = "editable+";

impl fmt::Display for PackageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PackageSource::Index => f.write_str("index"),
            PackageSource::Orrery => f.write_str("orrery"),
            PackageSource::Git { url, commit, subdirectory } => {
                write!(f, "{GIT}{url}@{commit}")?;
                subdirectory.iter().try_for_each(|dir| write!(f, "#subdirectory={dir}"))
            }
            PackageSource::Archive(place) => write!(f, "{ARCHIVE}{place}"),
            PackageSource::Directory { path, editable } => {
                let kind = if *editable { EDITABLE } else { PATH };
                write!(f, "{kind}{}", path.display())
            }
        }
    }
}

impl PackageSource {
    /// Parses the output of `Display`.
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "index" => PackageSource::Index,
            "orrery" => PackageSource::Orrery,
            _ => {
                if let Some(rest) = text.strip_prefix(GIT) {
                    let (rest, subdirectory) = match rest.split_once("#subdirectory=") {
                        Some((rest, dir)) => (rest, Some(dir.to_owned())),
                        None => (rest, None),
                    };
                    let (url, commit) = rest.rsplit_once('@')?;
                    let is_commit = commit.len() >= 40
                        && commit.chars().all(|character| character.is_ascii_hexdigit());
                    if !is_commit {
                        return None;
                    }
                    let (url, commit) = (url.to_owned(), commit.to_owned());
                    PackageSource::Git { url, commit, subdirectory }
                } else if let Some(place) = text.strip_prefix(ARCHIVE) {
                    PackageSource::Archive(place.to_owned())
                } else if let Some(path) = text.strip_prefix(PATH) {
                    PackageSource::Directory { path: path.into(), editable: false }
                } else {
                    let path = text.strip_prefix(EDITABLE)?;
                    PackageSource::Directory { path: path.into(), editable: true }
                }
            }
        })
    }
}
