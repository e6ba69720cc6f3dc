//! Differences of installed packages and of lock files.

use std::collections::BTreeSet;

use crate::helper::Contents;
use crate::lock::Lock;
use crate::package_names::normalize;

/// An added, changed or removed version. Equal versions mean that the files differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageChange {
    pub name: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// Differences between the contents of a virtualenv.
pub(crate) fn installed(before: &Contents, after: &Contents) -> Vec<PackageChange> {
    let version_in = |contents: &Contents, name: &str| {
        let found = contents.packages.iter().find(|package| normalize(&package.name) == name);
        found.map(|package| package.version.clone())
    };
    let mut names: Vec<(String, String)> = [before, after]
        .iter()
        .flat_map(|contents| &contents.packages)
        .map(|package| (normalize(&package.name), package.name.clone()))
        .collect();
    names.sort();
    names.dedup_by(|one, other| one.0 == other.0);
    names
        .into_iter()
        .map(|(normal, name)| PackageChange {
            before: version_in(before, &normal),
            after: version_in(after, &normal),
            name,
        })
        .filter(|change| change.before != change.after)
        .collect()
}

/// Differences between lock files: packages, then modules. Includes packages with equal versions
/// and other files.
pub fn locked(before: Option<&Lock>, after: &Lock) -> Vec<PackageChange> {
    let entries = |lock: &Lock| -> Vec<(String, String)> {
        let packages = lock.packages.iter().map(|one| (one.name.clone(), one.display_version()));
        let modules = lock.modules.iter().map(|one| {
            (format!("module {}", one.name), one.commit.chars().take(12).collect::<String>())
        });
        packages.chain(modules).collect()
    };
    let has_other_files = |name: &str| {
        let (old, new) = (before.and_then(|lock| lock.package(name)), after.package(name));
        old.zip(new).is_some_and(|(old, new)| old.hashes != new.hashes)
    };
    let has_other_files: Vec<String> = after
        .packages
        .iter()
        .map(|package| package.name.clone())
        .filter(|name| has_other_files(name))
        .collect();
    let before = before.map(entries).unwrap_or_default();
    let after = entries(after);
    let names: BTreeSet<&String> = before.iter().chain(&after).map(|(name, _)| name).collect();
    let version = |list: &[(String, String)], name: &str| {
        list.iter().find(|(other, _)| other == name).map(|(_, version)| version.clone())
    };
    let change = |name: &String| PackageChange {
        before: version(&before, name),
        after: version(&after, name),
        name: name.clone(),
    };
    let differs = |change: &PackageChange| {
        change.before != change.after || has_other_files.contains(&change.name)
    };
    names.into_iter().map(change).filter(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::Package;

    fn contents(packages: &[(&str, &str)]) -> Contents {
        let package = |&(name, version): &(&str, &str)| Package {
            name: name.into(),
            version: version.into(),
            ..Package::default()
        };
        Contents {
            python: "3.13.0".into(),
            pip: None,
            packages: packages.iter().map(package).collect(),
        }
    }

    #[test]
    fn changes_list_the_differences() {
        let before = contents(&[("A_b", "1"), ("gone", "1"), ("same", "1")]);
        let after = contents(&[("a-b", "2"), ("new", "1"), ("same", "1")]);
        let found: Vec<(String, Option<String>, Option<String>)> = installed(&before, &after)
            .into_iter()
            .map(|change| (normalize(&change.name), change.before, change.after))
            .collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            found,
            [
                ("a-b".into(), text("1"), text("2")),
                ("gone".into(), text("1"), None),
                ("new".into(), None, text("1")),
            ]
        );
    }
}
