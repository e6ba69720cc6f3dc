//! Converts pip's report and uv's lock file to locked packages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use url::Url;

use crate::lock::{LockedPackage, PackageSource};
use crate::package_names::normalize;
use crate::requirements::relative;
use crate::shim_packages;

/// Rules for paths in a lock file.
pub(crate) struct Paths<'p> {
    pub(crate) project: &'p Path,
    /// Texts of the requirement files: absolute paths in them stay absolute.
    pub(crate) requirements: &'p [String],
}

impl Paths<'_> {
    fn written(&self, path: &Path) -> PathBuf {
        let text = path.display().to_string();
        if self.requirements.iter().any(|requirements| requirements.contains(&text)) {
            return path.to_owned();
        }
        let canonical = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        relative(&canonical, self.project)
    }

    /// A file URL as a path; other URLs without their password.
    fn url_location(&self, url: &str) -> String {
        match file_path(url) {
            Some(path) => self.written(&path).display().to_string(),
            None => without_password(url),
        }
    }
}

/// Path of a file URL.
pub(crate) fn file_path(url: &str) -> Option<PathBuf> {
    Url::parse(url).ok().filter(|url| url.scheme() == "file")?.to_file_path().ok()
}

/// Removes credentials, which must not be in a committed file.
fn without_password(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else { return address.to_owned() };
    if url.password().is_none() {
        return address.to_owned();
    }
    let (one, other) = (url.set_password(None), url.set_username(""));
    if one.and(other).is_err() { address.to_owned() } else { url.to_string() }
}

/// Parses the report of `pip install --dry-run`.
pub(crate) fn of_pip(text: &str, paths: &Paths<'_>) -> Option<Vec<LockedPackage>> {
    let report: Value = serde_json::from_str(text).ok()?;
    let package = |item: &Value| {
        let text =
            |value: &Value, pointer: &str| Some(value.pointer(pointer)?.as_str()?.to_owned());
        let name = text(item, "/metadata/name")?;
        let version = text(item, "/metadata/version")?;
        let place = item.get("download_info")?;
        let url = text(place, "/url")?;
        let source = if let Some(directory) = place.get("dir_info") {
            let editable = directory.get("editable").and_then(Value::as_bool).unwrap_or(false);
            PackageSource::Directory { path: paths.written(&file_path(&url)?), editable }
        } else if place.get("vcs_info").is_some() {
            PackageSource::Git {
                url: without_password(&url),
                commit: text(place, "/vcs_info/commit_id")?,
                subdirectory: text(place, "/subdirectory"),
            }
        } else if item.get("is_direct")?.as_bool()? {
            PackageSource::Archive(paths.url_location(&url))
        } else {
            PackageSource::Index
        };
        let hash = text(place, "/archive_info/hashes/sha256").or_else(|| {
            Some(text(place, "/archive_info/hash")?.strip_prefix("sha256=")?.to_owned())
        });
        Some(package(&name, Some(version), source, hash))
    };
    report.get("install")?.as_array()?.iter().map(package).collect()
}

#[derive(Deserialize)]
struct PyLock {
    #[serde(default)]
    packages: Vec<PyLockPackage>,
}

#[derive(Deserialize)]
struct PyLockPackage {
    name: String,
    version: Option<String>,
    vcs: Option<PyLockRepository>,
    directory: Option<PyLockDirectory>,
    archive: Option<PyLockFile>,
    sdist: Option<PyLockFile>,
    #[serde(default)]
    wheels: Vec<PyLockFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PyLockRepository {
    r#type: String,
    url: Option<String>,
    commit_id: String,
    subdirectory: Option<String>,
}

#[derive(Deserialize)]
struct PyLockDirectory {
    path: PathBuf,
    #[serde(default)]
    editable: bool,
}

#[derive(Deserialize)]
struct PyLockFile {
    url: Option<String>,
    path: Option<PathBuf>,
    #[serde(default)]
    hashes: std::collections::BTreeMap<String, String>,
}

/// Parses a `pylock.toml` that uv has written into a directory.
pub(crate) fn of_uv(text: &str, directory: &Path, paths: &Paths<'_>) -> Option<Vec<LockedPackage>> {
    let lock: PyLock = toml::from_str(text).ok()?;
    let read = |found: PyLockPackage| {
        let written = |path: &Path| {
            let path = directory.join(path);
            paths.written(&path.canonicalize().unwrap_or(path))
        };
        let mut files: Vec<PyLockFile> = found.wheels;
        files.extend(found.sdist);
        let source = if let Some(repository) = found.vcs {
            if repository.r#type != "git" {
                return None;
            }
            PackageSource::Git {
                url: without_password(&repository.url?),
                commit: repository.commit_id,
                subdirectory: repository.subdirectory,
            }
        } else if let Some(PyLockDirectory { path, editable }) = found.directory {
            PackageSource::Directory { path: written(&path), editable }
        } else if let Some(archive) = found.archive {
            let place = match (&archive.url, &archive.path) {
                (Some(url), _) => paths.url_location(url),
                (None, path) => written(path.as_deref()?).display().to_string(),
            };
            files.push(archive);
            PackageSource::Archive(place)
        } else {
            PackageSource::Index
        };
        let hashes = files.into_iter().filter_map(|mut file| file.hashes.remove("sha256"));
        Some(package(&found.name, found.version, source, hashes))
    };
    lock.packages.into_iter().map(read).collect()
}

fn package(
    name: &str,
    version: Option<String>,
    source: PackageSource,
    hashes: impl IntoIterator<Item = String>,
) -> LockedPackage {
    let name = normalize(name);
    let own = source == PackageSource::Index
        && version.as_deref().is_some_and(|version| shim_packages::is_own(&name, version));
    let source = if own { PackageSource::Orrery } else { source };
    let version = version.filter(|_| !matches!(source, PackageSource::Directory { .. }));
    let hashes: BTreeSet<String> = match source {
        PackageSource::Index | PackageSource::Archive(_) => {
            hashes.into_iter().map(|hash| format!("sha256:{hash}")).collect()
        }
        _ => BTreeSet::new(),
    };
    LockedPackage { name, version, source, hashes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Paths<'static> {
        Paths { project: Path::new("/p"), requirements: &[] }
    }

    fn package_lines(packages: Vec<LockedPackage>) -> Vec<String> {
        let one = |package: LockedPackage| {
            let version = package.version.unwrap_or_default();
            let hashes: Vec<String> = package.hashes.into_iter().collect();
            format!("{} {version} {} {}", package.name, package.source, hashes.join(","))
        };
        packages.into_iter().map(|package| one(package).trim_end().to_owned()).collect()
    }

    /// Expected result for both.
    const SAME: [&str; 6] = [
        "a-b 1.0 index sha256:aa",
        "b  editable+../src/b",
        "c 3.0 git+https://x/c.git@abc#subdirectory=s",
        "d 4.0 archive+https://x/d.whl sha256:dd",
        "e 5.0 archive+../w/e.whl sha256:ee",
        "inmanta-core 20.1.0+orrery.1 orrery",
    ];

    #[test]
    fn a_report_of_pip_becomes_locked_packages() {
        let text = r#"{"install":[
            {"metadata":{"name":"A_b","version":"1.0"},"is_direct":false,"download_info":{"url":"https://x/a.whl","archive_info":{"hash":"sha256=aa","hashes":{"sha256":"aa"}}}},
            {"metadata":{"name":"b","version":"2.0"},"is_direct":true,"download_info":{"url":"file:///src/b","dir_info":{"editable":true}}},
            {"metadata":{"name":"c","version":"3.0"},"is_direct":true,"download_info":{"url":"https://u:p@x/c.git","subdirectory":"s","vcs_info":{"vcs":"git","commit_id":"abc"}}},
            {"metadata":{"name":"d","version":"4.0"},"is_direct":true,"download_info":{"url":"https://x/d.whl","archive_info":{"hash":"sha256=dd"}}},
            {"metadata":{"name":"e","version":"5.0"},"is_direct":true,"download_info":{"url":"file:///w/e.whl","archive_info":{"hash":"sha256=ee"}}},
            {"metadata":{"name":"inmanta-core","version":"20.1.0+orrery.1"},"is_direct":false,"download_info":{"url":"file:///w/i.whl","archive_info":{"hash":"sha256=ff"}}}]}"#;
        assert_eq!(package_lines(of_pip(text, &paths()).unwrap()), SAME);
        assert_eq!(of_pip("{}", &paths()), None);
    }

    #[test]
    fn a_lock_file_of_uv_becomes_the_same() {
        let text = r#"
lock-version = "1.0"
packages = [
  { name = "a-b", version = "1.0", wheels = [{ url = "https://x/a.whl", hashes = { sha256 = "aa" } }] },
  { name = "b", directory = { path = "../../src/b", editable = true } },
  { name = "c", version = "3.0", vcs = { type = "git", url = "https://u:p@x/c.git", commit-id = "abc", subdirectory = "s" } },
  { name = "d", version = "4.0", archive = { url = "https://x/d.whl", hashes = { sha256 = "dd" } } },
  { name = "e", version = "5.0", archive = { path = "/w/e.whl", hashes = { sha256 = "ee" } } },
  { name = "inmanta-core", version = "20.1.0+orrery.1", wheels = [{ url = "file:///w/i.whl", hashes = { sha256 = "ff" } }] },
]"#;
        // Nonexistent directories have no canonical path.
        let text = text.replace("../../src/b", "/src/b");
        assert_eq!(package_lines(of_uv(&text, Path::new("/s/t"), &paths()).unwrap()), SAME);
    }

    #[test]
    fn an_absolute_path_that_is_asked_for_stays() {
        let requirements = ["-e /src/b\n".to_owned()];
        let paths = Paths { project: Path::new("/p"), requirements: &requirements };
        assert_eq!(paths.written(Path::new("/src/b")), Path::new("/src/b"));
        assert_eq!(paths.written(Path::new("/src/c")), Path::new("../src/c"));
    }
}
