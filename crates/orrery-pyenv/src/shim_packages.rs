//! Shims of the packages that Orrery replaces. Modules depend on them by name; the real packages
//! would install another implementation of what modules import. pip gets empty wheels with the same
//! names, pinned by constraints.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::Error;
use crate::helper;
use crate::package_names::{MODULE_PREFIX, normalize};
use crate::pip::specifiers_in_conflict;

struct ShimPackage {
    name: &'static str,
    /// Available versions, preferred first: one per generation that modules require.
    versions: &'static [&'static str],
    /// Dependencies of the real package that modules use without requiring them.
    brings: &'static [&'static str],
}

const PACKAGES: [ShimPackage; 2] = [
    ShimPackage {
        name: "inmanta-core",
        versions: &[
            "20.1.0", "19.1.0", "18.0.1", "17.0.0", "16.0.0", "15.1.0", "15.0.0", "14.0.0",
            "13.0.1", "12.1.0", "11.5.5", "10.0.0", "9.3.0", "8.7.6", "7.1.0", "6.4.2", "5.1.1",
            "4.4.6",
        ],
        brings: &[
            "click",
            "email-validator",
            "Jinja2",
            "pydantic",
            "python-dateutil",
            "PyYAML",
            "requests",
            "texttable",
            "typing-inspect",
        ],
    },
    ShimPackage {
        name: "pytest-inmanta",
        versions: &["4.0.0", "3.2.0", "2.10.0", "1.6.2"],
        brings: &["pytest"],
    },
];

/// Label of shim versions.
const LABEL: &str = "+orrery";

/// Revision of the shims, so that older ones are replaced.
const REVISION: &str = "1";

/// Version of a shim.
pub(crate) fn labelled(version: &str) -> String {
    format!("{version}{LABEL}.{REVISION}")
}

/// Version of the real package.
pub(crate) fn without_label(version: &str) -> &str {
    version.split_once(LABEL).map_or(version, |(stands_for, _)| stands_for)
}

/// True if a package is a shim.
pub(crate) fn is_own(name: &str, version: &str) -> bool {
    version.contains(LABEL) && PACKAGES.iter().any(|package| package.name == normalize(name))
}

/// One selected version for each name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShimPackages {
    chosen: Vec<(&'static str, String)>,
}

impl ShimPackages {
    pub(crate) fn newest() -> Self {
        let newest = |package: &ShimPackage| (package.name, package.versions[0].to_owned());
        ShimPackages { chosen: PACKAGES.iter().map(newest).collect() }
    }

    /// Installed shims, so that packages which fit them are kept.
    pub(crate) fn installed(packages: &[helper::Package]) -> Self {
        Self::among(
            packages.iter().map(|package| (package.name.as_str(), package.version.as_str())),
        )
    }

    /// Shims among packages, given by name and version.
    pub(crate) fn among<'p>(packages: impl Iterator<Item = (&'p str, &'p str)>) -> Self {
        let mut all = Self::newest();
        for (package, installed) in packages.filter(|(name, version)| is_own(name, version)) {
            for (name, version) in &mut all.chosen {
                if normalize(package) == *name {
                    *version = without_label(installed).to_owned();
                }
            }
        }
        all
    }

    /// `inmanta-core==20.1.0+orrery`, for each.
    pub(crate) fn constraints(&self) -> Vec<String> {
        self.chosen.iter().map(|(name, version)| format!("{name}=={}", labelled(version))).collect()
    }

    /// Writes the wheels into a directory.
    pub(crate) fn write(&self, environment: &Path, into: &Path) -> Result<(), Error> {
        let described = self.chosen.iter().zip(&PACKAGES).map(|((name, version), package)| {
            json!({ "name": name, "version": labelled(version), "requires": package.brings })
        });
        helper::write_shims(environment, into, &described.collect())
    }

    /// Other versions that satisfy the specifiers of a conflict, if any.
    pub(crate) fn for_conflict(
        &self,
        environment: &Path,
        said: &str,
    ) -> Result<Option<Self>, Error> {
        let mut other = self.clone();
        for ((name, version), package) in other.chosen.iter_mut().zip(&PACKAGES) {
            let specifiers = specifiers_in_conflict(said, name);
            if specifiers.is_empty() {
                continue;
            }
            let mut versions: Vec<String> =
                package.versions.iter().map(|&one| one.to_owned()).collect();
            versions.extend(specifiers.iter().filter_map(|one| number_in(one)));
            if let Some(found) = helper::choose(environment, &specifiers, &versions)? {
                *version = found;
            }
        }
        Ok(Some(other).filter(|other| other != self))
    }
}

/// Version in `==13.0.5`, which may not be a known one.
fn number_in(specifier: &str) -> Option<String> {
    let number = specifier.trim_start_matches(['=', '~', '<', '>', '!', ' ']);
    let plain = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
    plain.then(|| number.trim_end_matches('.').to_owned())
}

/// Finds the real core package, or another package with its import names, which must not be
/// installed.
pub(crate) fn real_core(packages: &[helper::Package]) -> Option<String> {
    let is_real = |package: &&helper::Package| {
        let name = normalize(&package.name);
        let stands_for = PACKAGES.iter().any(|known| known.name == name);
        let own = name == crate::sdk::PACKAGE;
        stands_for && !package.version.contains(LABEL)
            || !own && package.top_level.iter().any(|top| top == "inmanta")
    };
    packages.iter().find(is_real).map(|package| format!("{} {}", package.name, package.version))
}

/// Import names of a module package that do not belong to the module: `inmanta_mitogen` belongs to
/// `mitogen`. Others may hide a package of that name.
pub(crate) fn unexpected(package: &helper::Package) -> Vec<String> {
    let name = normalize(&package.name);
    let Some(module) = name.strip_prefix(MODULE_PREFIX) else { return Vec::new() };
    let own = format!("inmanta_{}", module.replace('-', "_"));
    let expected = |top: &&String| *top == "inmanta_plugins" || **top == own;
    package.top_level.iter().filter(|top| !expected(top)).cloned().collect()
}

/// Directory of the wheels in a virtualenv, for manual use of pip.
pub(crate) fn wheel_directory(environment: &Path) -> PathBuf {
    environment.join("share/orrery")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, top_level: &[&str]) -> helper::Package {
        helper::Package {
            name: name.into(),
            version: version.into(),
            top_level: top_level.iter().map(|&top| top.to_owned()).collect(),
            origin: None,
        }
    }

    #[test]
    fn the_real_core_is_distinguished_from_the_shim() {
        let stand_in = package("inmanta_core", "20.1.0+orrery", &[]);
        let sdk = package("orrery-sdk", "0.1.0+abc", &["inmanta", "orrery_sdk"]);
        assert_eq!(real_core(&[stand_in.clone(), sdk.clone()]), None);
        let real = package("Inmanta.Core", "20.1.0", &["inmanta"]);
        assert_eq!(real_core(&[sdk.clone(), real]).as_deref(), Some("Inmanta.Core 20.1.0"));
        let disguised = package("other", "1.0", &["inmanta"]);
        assert_eq!(real_core(&[sdk, disguised]).as_deref(), Some("other 1.0"));
    }

    #[test]
    fn unexpected_top_level_packages_are_found() {
        let mitogen =
            package("inmanta-module-mitogen", "0.2.5", &["inmanta_mitogen", "inmanta_plugins"]);
        assert!(unexpected(&mitogen).is_empty());
        let ansible =
            package("inmanta-module-ansible", "0.2.1", &["env", "inmanta_plugins", "irt"]);
        assert_eq!(unexpected(&ansible), ["env", "irt"]);
        assert!(unexpected(&package("requests", "2", &["requests"])).is_empty());
    }

    #[test]
    fn installed_shims_are_kept() {
        let packages = [package("inmanta-core", "13.0.1+orrery", &[])];
        let found = ShimPackages::installed(&packages).constraints();
        assert_eq!(found, ["inmanta-core==13.0.1+orrery.1", "pytest-inmanta==4.0.0+orrery.1"]);
    }

    #[test]
    fn versions_are_found_in_specifiers() {
        assert_eq!(number_in("==13.0.5").as_deref(), Some("13.0.5"));
        assert_eq!(number_in("~= 13.0").as_deref(), Some("13.0"));
        assert_eq!(number_in("==13.*").as_deref(), None);
        assert_eq!(number_in(">=8.7.0.dev"), None);
    }
}
