//! The lock file of a project, `orrery.lock`: exact versions, sources and hashes of everything that is installed for it, so that
//! every machine gets the same. `Lock` is its content; `format` reads and writes its text.
//!
//! Hashes of a locked version never change unless that package is updated: what an index serves later under the same name is
//! refused. Packages that belong to the binary (the SDK and the stand-ins) have no hashes; of stand-ins, the version is kept.

mod format;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// Name of the file, beside `project.yml`.
pub(crate) const FILE: &str = "orrery.lock";

/// Digests of what a resolution follows from, by the name of a file or section.
pub(crate) type Inputs = BTreeMap<String, String>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lock {
    /// Version of Python that the packages were resolved for: `3.13`.
    pub(crate) python: String,
    pub(crate) inputs: Inputs,
    /// Sorted by name.
    pub(crate) packages: Vec<LockedPackage>,
    /// Modules that were cloned from repositories of `project.yml`, sorted by name.
    pub(crate) modules: Vec<LockedModule>,
}

/// One Python package, exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockedPackage {
    /// In its normal form.
    pub(crate) name: String,
    /// None for directories, whose version is what they say at any time.
    pub(crate) version: Option<String>,
    pub(crate) source: Source,
    /// `sha256:…` of every file that may be installed.
    pub(crate) hashes: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The indexes that pip and the project name. Hashes tell the content, so which index it was does not matter.
    Index,
    /// A stand-in, which the binary brings.
    Orrery,
    Git {
        url: String,
        commit: String,
        subdirectory: Option<String>,
    },
    /// A URL or a path of a wheel or source distribution.
    Archive(String),
    /// A directory, as seen from the project.
    Directory {
        path: PathBuf,
        editable: bool,
    },
}

/// A module at a commit of its repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockedModule {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) commit: String,
}

impl Lock {
    pub(crate) fn path(project: &Path) -> PathBuf {
        project.join(FILE)
    }

    pub(crate) fn package(&self, name: &str) -> Option<&LockedPackage> {
        self.packages.iter().find(|package| package.name == name)
    }
}

impl LockedPackage {
    /// Whether it comes from an index that says no hashes.
    pub(crate) fn is_unverified(&self) -> bool {
        self.source == Source::Index && self.hashes.is_empty()
    }

    /// Version for people, with the source if it is no index.
    pub(crate) fn shown_version(&self) -> String {
        let version = self.version.clone().unwrap_or_default();
        match &self.source {
            Source::Index | Source::Orrery => version,
            other => format!("{version} ({other})").trim_start().to_owned(),
        }
    }
}

const GIT: &str = "git+";
const ARCHIVE: &str = "archive+";
const PATH: &str = "path+";
const EDITABLE: &str = "editable+";

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Index => f.write_str("index"),
            Source::Orrery => f.write_str("orrery"),
            Source::Git { url, commit, subdirectory } => {
                write!(f, "{GIT}{url}@{commit}")?;
                subdirectory.iter().try_for_each(|dir| write!(f, "#subdirectory={dir}"))
            }
            Source::Archive(place) => write!(f, "{ARCHIVE}{place}"),
            Source::Directory { path, editable } => {
                let kind = if *editable { EDITABLE } else { PATH };
                write!(f, "{kind}{}", path.display())
            }
        }
    }
}

impl Source {
    /// Reads what `Display` writes.
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "index" => Source::Index,
            "orrery" => Source::Orrery,
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
                    Source::Git { url, commit, subdirectory }
                } else if let Some(place) = text.strip_prefix(ARCHIVE) {
                    Source::Archive(place.to_owned())
                } else if let Some(path) = text.strip_prefix(PATH) {
                    Source::Directory { path: path.into(), editable: false }
                } else {
                    let path = text.strip_prefix(EDITABLE)?;
                    Source::Directory { path: path.into(), editable: true }
                }
            }
        })
    }
}
