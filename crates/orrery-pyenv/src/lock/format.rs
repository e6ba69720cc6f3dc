//! Text of a lock file: TOML in a canonical layout, so that diffs can be reviewed.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde::Deserialize;

use super::{FILE, Inputs, Lock, LockedModule, LockedPackage, PackageSource};
use crate::module_version::ModuleVersion;
use crate::{Error, shim_packages};

/// Format version; incremented if older programs cannot read it.
const FORMAT: u32 = 1;

const HEAD: &str = "\
# Exact versions of what is installed for this project, so that every machine gets the same. Commit this file.
# `orrery modules install`, `add` and `update` write it.
";

#[derive(Deserialize)]
struct Version {
    format: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "format")]
    _format: u32,
    python: String,
    #[serde(default)]
    inputs: Inputs,
    #[serde(default, rename = "package")]
    packages: Vec<PackageEntry>,
    #[serde(default, rename = "module")]
    modules: Vec<ModuleEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackageEntry {
    name: String,
    version: Option<String>,
    source: String,
    #[serde(default)]
    hashes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModuleEntry {
    name: String,
    source: String,
}

impl Lock {
    /// Reads the lock file of a project, if there is one.
    pub fn read(project: &Path) -> Result<Option<Self>, Error> {
        let path = Self::path(project);
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::System { what: format!("read {}", path.display()), error }),
            Ok(text) => {
                Self::parse(&text).map(Some).map_err(|reason| Error::LockInvalid { reason })
            }
        }
    }

    /// Writes the lock file atomically.
    pub fn write(&self, project: &Path) -> Result<(), Error> {
        let path = Self::path(project);
        let failed = || Error::system(format!("write {}", path.display()));
        let mut draft = tempfile::Builder::new()
            .prefix(&format!(".{FILE}-"))
            .tempfile_in(project)
            .map_err(failed())?;
        draft.write_all(self.to_text().as_bytes()).map_err(failed())?;
        let mode = std::fs::metadata(&path).map_or(0o644, |found| found.permissions().mode());
        let mode = std::fs::Permissions::from_mode(mode & 0o777);
        std::fs::set_permissions(draft.path(), mode).map_err(failed())?;
        draft.persist(&path).map_err(|error| failed()(error.error))?;
        Ok(())
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("{HEAD}format = {FORMAT}\npython = {}\n", quoted(&self.python));
        if !self.inputs.is_empty() {
            text.push_str("\n[inputs]\n");
            for (name, digest) in &self.inputs {
                let _ = writeln!(text, "{} = {}", quoted(name), quoted(digest));
            }
        }
        for package in &self.packages {
            let _ = writeln!(text, "\n[[package]]\nname = {}", quoted(&package.name));
            if let Some(version) = &package.version {
                let version = match package.source {
                    PackageSource::Orrery => shim_packages::without_label(version),
                    _ => version,
                };
                let _ = writeln!(text, "version = {}", quoted(version));
            }
            let _ = writeln!(text, "source = {}", quoted(&package.source.to_string()));
            if !package.hashes.is_empty() {
                text.push_str("hashes = [\n");
                for hash in &package.hashes {
                    let _ = writeln!(text, "    {},", quoted(hash));
                }
                text.push_str("]\n");
            }
        }
        for LockedModule { name, url, commit } in &self.modules {
            let source = quoted(&format!("git+{url}@{commit}"));
            let _ = writeln!(text, "\n[[module]]\nname = {}\nsource = {source}", quoted(name));
        }
        text
    }

    fn parse(text: &str) -> Result<Self, String> {
        let said = |error: toml::de::Error| error.to_string().trim_end().to_owned();
        let Version { format } = toml::from_str(text).map_err(said)?;
        if format != FORMAT {
            return Err(format!(
                "format {format} is not supported; this version of Orrery reads format {FORMAT}"
            ));
        }
        let document: Document = toml::from_str(text).map_err(said)?;
        let mut packages =
            document.packages.into_iter().map(PackageEntry::read).collect::<Result<Vec<_>, _>>()?;
        packages.sort_by(|one, other| one.name.cmp(&other.name));
        let mut modules =
            document.modules.into_iter().map(ModuleEntry::read).collect::<Result<Vec<_>, _>>()?;
        modules.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Lock { python: document.python, inputs: document.inputs, packages, modules })
    }
}

impl PackageEntry {
    fn read(self) -> Result<LockedPackage, String> {
        let PackageEntry { name, version, source, hashes } = self;
        // These values reach the command line of an installer.
        let plain = |text: &str, more: &str| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        if !plain(&name, "-") || name != name.to_ascii_lowercase() {
            return Err(format!("{name:?} is not a package name"));
        }
        let is_version =
            |version: &&str| plain(version, ".+!_-") && ModuleVersion::parse(version).is_some();
        if let Some(version) = version.as_deref().filter(|version| !is_version(version)) {
            return Err(format!("package {name}: {version:?} is not a version"));
        }
        let source = PackageSource::parse(&source)
            .filter(|parsed| {
                // Paths become URLs before they reach an installer.
                let is_path = match parsed {
                    PackageSource::Directory { .. } => true,
                    PackageSource::Archive(place) => !place.contains("://"),
                    _ => false,
                };
                !source.chars().any(|c| c.is_control() || !is_path && (c == ' ' || c == ';'))
            })
            .ok_or_else(|| format!("package {name}: {source:?} is not a source"))?;
        let is_hash = |hash: &&String| {
            let digits = hash.strip_prefix("sha256:").unwrap_or_default();
            digits.len() == 64 && digits.chars().all(|c| c.is_ascii_hexdigit())
        };
        if let Some(hash) = hashes.iter().find(|hash| !is_hash(hash)) {
            return Err(format!("package {name}: {hash:?} is not a SHA-256 hash"));
        }
        let version = match (&source, version) {
            (PackageSource::Index, None) => return Err(format!("package {name} has no version")),
            (PackageSource::Orrery, Some(version)) => Some(shim_packages::labelled(&version)),
            (_, version) => version,
        };
        Ok(LockedPackage { name, version, source, hashes: hashes.into_iter().collect() })
    }
}

impl ModuleEntry {
    fn read(self) -> Result<LockedModule, String> {
        match PackageSource::parse(&self.source) {
            Some(PackageSource::Git { url, commit, subdirectory: None }) => {
                Ok(LockedModule { name: self.name, url, commit })
            }
            _ => Err(format!(
                "module {}: {:?} is not a commit of a repository",
                self.name, self.source
            )),
        }
    }
}

/// TOML string literal.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> Lock {
        let hash = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let package =
            |name: &str, version: Option<&str>, source: &str, hashes: Vec<String>| LockedPackage {
                name: name.into(),
                version: version.map(Into::into),
                source: PackageSource::parse(source).unwrap(),
                hashes: hashes.into_iter().collect(),
            };
        let commit = "0123456789".repeat(4);
        let standin = shim_packages::labelled("20.1.0");
        Lock {
            python: "3.13".into(),
            inputs: [("a \"b\"\\\n".to_owned(), "sha256:1".to_owned())].into(),
            packages: vec![
                package("a", Some("1.0"), "index", vec![hash("b"), hash("a")]),
                package("d", None, "editable+../d", vec![]),
                package(
                    "g",
                    Some("2"),
                    &format!("git+ssh://git@e.org/g@{commit}#subdirectory=x"),
                    vec![],
                ),
                package("inmanta-core", Some(&standin), "orrery", vec![]),
                package("w", Some("3"), "archive+https://e.org/w.whl", vec![hash("c")]),
            ],
            modules: vec![LockedModule { name: "m".into(), url: "https://e.org/m".into(), commit }],
        }
    }

    #[test]
    fn a_lock_file_is_read_as_it_was_written() {
        let text = lock().to_text();
        assert_eq!(Lock::parse(&text).unwrap(), lock());
        assert!(text.contains("version = \"20.1.0\"\nsource = \"orrery\""), "{text}");
        assert!(text.find("sha256:aaa") < text.find("sha256:bbb"), "{text}");
    }

    #[test]
    fn invalid_lock_files_are_rejected() {
        let text = lock().to_text();
        for (from, to, reason) in [
            ("format = 1", "format = 2", "format 2 is not supported"),
            ("sha256:aaa", "sha256:zzz", "is not a SHA-256 hash"),
            ("\"index\"", "\"elsewhere\"", "is not a source"),
            ("\"1.0\"", "\"1.0 --pre\"", "is not a version"),
            ("\"1.0\"", "\"1.0.x2\"", "package a: \"1.0.x2\" is not a version"),
            ("name = \"a\"", "name = \"-r x\"", "is not a package name"),
            ("[[module]]", "[[modul]]", "unknown field `modul`"),
            ("@0123", "@main", "is not a source"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = Lock::parse(&text.replace(from, to)).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
