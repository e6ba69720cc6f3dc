//! Installs exactly the locked packages, accepting only files with known hashes.

use std::path::Path;

use serde_json::Value;
use url::Url;

use crate::helper::{Contents, Package};
use crate::lock::{LockedPackage, PackageSource};
use crate::package_names::normalize;
use crate::pip::{self, InstallEvent, InstallListener};
use crate::resolve::Tools;
use crate::shim_packages::ShimPackages;
use crate::{Error, report};

impl Tools<'_> {
    /// Installs packages that are missing or differ. `more` are requirements without hashes. With
    /// `fresh`, directories are reinstalled, since their metadata may have changed.
    pub(crate) fn apply(
        &self,
        packages: &[LockedPackage],
        more: &[String],
        before: &Contents,
        fresh: bool,
        listener: InstallListener<'_>,
    ) -> Result<(), Error> {
        // Unlocked packages stay as installed, such as the shims if only the SDK changes.
        let there = before.packages.iter().map(|one| (one.name.as_str(), one.version.as_str()));
        let locked =
            packages.iter().filter_map(|one| Some((one.name.as_str(), one.version.as_deref()?)));
        ShimPackages::among(there.chain(locked)).write(self.environment, &self.wheels)?;
        let project = &self.request.directory;
        let (mut hashed, mut plain) = (Vec::new(), Vec::new());
        for package in packages {
            if is_installed(package, &before.packages, project, fresh) {
                continue;
            }
            let line = requirement(package, project);
            if package.hashes.is_empty() {
                plain.push(line);
            } else {
                let hashes = package.hashes.iter().map(|hash| format!(" --hash={hash}"));
                hashed.push(format!("{line}{}", hashes.collect::<String>()));
            }
        }
        plain.extend(more.iter().filter(|line| !has_exactly(&before.packages, line)).cloned());
        let count = hashed.len() + plain.len();
        if count == 0 {
            return Ok(());
        }
        let number = if count == 1 { "1 package".into() } else { format!("{count} packages") };
        listener(InstallEvent::Step(format!("installing {number}")));
        // Hashed packages first: on a mismatch, nothing has been changed.
        self.install("hashed.txt", &hashed, true, listener)?;
        self.install("plain.txt", &plain, false, listener)
    }

    fn install(
        &self,
        file: &str,
        lines: &[String],
        hashes: bool,
        listener: InstallListener<'_>,
    ) -> Result<(), Error> {
        if lines.is_empty() {
            return Ok(());
        }
        let file = pip::write_lines(&self.scratch.join(file), lines)?;
        if let Some(uv) = &self.uv {
            match uv.install(&file, hashes, &self.sources, listener) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    listener(InstallEvent::Line(format!("uv: {error}; falling back to pip")));
                }
            }
        }
        let mut arguments =
            ["install", "--no-deps", "--force-reinstall"].map(str::to_owned).to_vec();
        if hashes {
            arguments.push("--require-hashes".into());
        }
        arguments.extend(self.sources.iter().cloned());
        arguments.extend(["--requirement".into(), file.display().to_string()]);
        self.pip.run(&arguments, listener)
    }
}

/// True if `name==version` is installed.
fn has_exactly(packages: &[Package], line: &str) -> bool {
    let Some((name, version)) = line.split_once("==") else { return false };
    packages.iter().any(|one| normalize(&one.name) == normalize(name) && one.version == version)
}

/// Requirement line for exactly this package.
fn requirement(package: &LockedPackage, project: &Path) -> String {
    let LockedPackage { name, version, source, .. } = package;
    match source {
        PackageSource::Index | PackageSource::Orrery => {
            format!("{name}=={}", version.as_deref().unwrap_or_default())
        }
        PackageSource::Git { url, commit, subdirectory } => {
            let inside = subdirectory.as_ref().map(|dir| format!("&subdirectory={dir}"));
            format!("git+{url}@{commit}#egg={name}{}", inside.unwrap_or_default())
        }
        PackageSource::Archive(place) if place.contains("://") => format!("{name} @ {place}"),
        PackageSource::Archive(path) => format!("{name} @ {}", file_url(project, Path::new(path))),
        PackageSource::Directory { path, editable: true } => {
            format!("--editable {}", file_url(project, path))
        }
        PackageSource::Directory { path, editable: false } => {
            format!("{name} @ {}", file_url(project, path))
        }
    }
}

/// A URL, since paths in requirement files cannot contain spaces.
fn file_url(project: &Path, path: &Path) -> String {
    let path = absolute(project, path);
    Url::from_file_path(&path).map_or(path, |url| url.to_string())
}

fn absolute(project: &Path, path: &Path) -> String {
    let path = project.join(path);
    path.canonicalize().unwrap_or(path).display().to_string()
}

/// True if this package is installed from this source.
fn is_installed(
    package: &LockedPackage,
    installed: &[Package],
    project: &Path,
    fresh: bool,
) -> bool {
    let Some(found) = installed.iter().find(|one| normalize(&one.name) == package.name) else {
        return false;
    };
    let origin = |pointer: &str| found.origin.as_ref()?.pointer(pointer)?.as_str();
    let same_version = package.version.as_ref().is_none_or(|version| *version == found.version);
    match &package.source {
        PackageSource::Index | PackageSource::Orrery => same_version && found.origin.is_none(),
        PackageSource::Git { url, commit, .. } => {
            origin("/vcs_info/commit_id") == Some(commit) && origin("/url") == Some(url)
        }
        PackageSource::Archive(place) if place.contains("://") => {
            same_version && origin("/url") == Some(place)
        }
        PackageSource::Archive(path) => {
            same_version && origin("/url").is_some_and(is_at(project, path))
        }
        PackageSource::Directory { path, editable } => {
            let as_editable =
                found.origin.as_ref().and_then(|one| one.pointer("/dir_info/editable"));
            let text = path.display().to_string();
            *editable
                && !fresh
                && as_editable.and_then(Value::as_bool) == Some(true)
                && origin("/url").is_some_and(is_at(project, &text))
        }
    }
}

/// Returns a predicate: true for the file URL of a path relative to the project.
fn is_at(project: &Path, path: &str) -> impl FnOnce(&str) -> bool {
    let wanted = absolute(project, Path::new(path));
    move |url| {
        report::file_path(url).is_some_and(|found| absolute(Path::new("/"), &found) == wanted)
    }
}
