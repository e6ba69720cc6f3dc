//! Modules from the git repositories in `repo` of `project.yml`: cloned into the module path, at
//! the locked commit or at a version that the requirements allow.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use orrery_compiler::files::Disk;
use orrery_compiler::modules::requirements::{self, PACKAGE_PREFIX, split_requirement};
use orrery_compiler::project::{Options, ProjectMetadata};
use orrery_pyenv::Error;
use orrery_pyenv::lock::LockedModule;
use serde::{Deserialize, Serialize};

use super::clones::{Cloning, Tried};
use super::fetch_rules::{Allowed, Notice, Rules};

/// Maximum rounds of fetching modules that other modules import.
const ROUNDS_MAX: usize = 100;

/// A module that no repository has, with the reasons.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NotFound {
    pub(crate) module: String,
    pub(crate) tried: Vec<(String, String)>,
}

/// Cloned modules, and those that were not found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct FetchedModules {
    /// For the lock file, which a server does not write.
    #[serde(skip)]
    pub(crate) modules: Vec<LockedModule>,
    pub(crate) not_found: Vec<NotFound>,
    /// True if the project names repositories.
    pub(crate) has_repositories: bool,
}

/// Clones missing modules, moves existing clones to their locked commits, and updates those that
/// are to be updated.
///
/// # Errors
/// An error if a module cannot be moved to its locked commit, if no version of it is allowed, or if
/// an explicitly updated module has local changes or cannot be updated.
pub(crate) fn fetch(
    options: &Options,
    rules: &Rules<'_>,
    say: &mut dyn FnMut(Notice),
) -> Result<FetchedModules, Error> {
    // The next reader of the project reports its problems.
    let Ok(project) = ProjectMetadata::load(&Disk, &options.project_dir) else {
        return Ok(FetchedModules::default());
    };
    let repositories = &project.repositories;
    let Some(directory) = repositories.directory.clone() else {
        return Ok(FetchedModules::default());
    };
    if repositories.addresses.is_empty() {
        return Ok(FetchedModules::default());
    }
    if rules.allowed != Allowed::Everything {
        // Git runs with the server's rights and must not access paths outside of the checkout.
        for path in project.module_path.iter().chain([&directory]) {
            if !is_below(path, &options.project_dir) {
                return Err(Error::ModulesElsewhere { path: path.clone() });
            }
        }
    }
    let mut cloning = Cloning { repositories, directory, rules, say };
    let mut settled = false;
    let mut failed: BTreeMap<String, Tried> = BTreeMap::new();
    let mut modules = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let Ok(needed) = requirements::project_requirements(&Disk, options) else { break };
        let requirements = requirements_of(&project, &needed.module_dirs);
        if !std::mem::replace(&mut settled, true) {
            needed.module_dirs.iter().try_for_each(|module| cloning.check_named(module))?;
            needed.module_dirs.iter().try_for_each(|module| cloning.fetch_named(module))?;
            for module in &needed.module_dirs {
                cloning.update_clone(module, &requirements)?;
            }
            continue;
        }
        let missing = requirements::missing(&Disk, options, &needed.imported).unwrap_or_default();
        let new: Vec<String> =
            missing.into_iter().filter(|name| !failed.contains_key(name)).collect();
        if new.is_empty() {
            modules = needed.module_dirs.iter().filter_map(|path| cloning.state(path)).collect();
            break;
        }
        for module in new {
            if let Err(tried) = cloning.clone_module(&module, &requirements)? {
                failed.insert(module, tried);
            }
        }
    }
    modules.sort_by(|one, other| one.name.cmp(&other.name));
    modules.dedup_by(|one, other| one.name == other.name);
    let not_found = failed.into_iter().map(|(module, tried)| NotFound { module, tried }).collect();
    Ok(FetchedModules { modules, not_found, has_repositories: true })
}

/// Version specifiers of modules, from the requirements of the project and its modules.
fn requirements_of(
    project: &ProjectMetadata,
    modules: &[PathBuf],
) -> BTreeMap<String, Vec<String>> {
    let mut all = project.requires.clone();
    for module in modules {
        all.extend(requirements::requires_of(&Disk, module));
    }
    let mut by_module: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for text in &all {
        let Ok((name, rest)) = split_requirement(text) else { continue };
        let name = name.strip_prefix(PACKAGE_PREFIX).unwrap_or(name).replace('-', "_");
        by_module.entry(name).or_default().push(rest.to_owned());
    }
    by_module
}

/// True if a path is below a directory after resolving links; the path may not exist yet.
fn is_below(path: &Path, directory: &Path) -> bool {
    let is_plain = |part: Component<'_>| part != Component::ParentDir;
    let Ok(directory) = directory.canonicalize() else { return false };
    let path = directory.join(path);
    let existing = path.ancestors().find(|one| one.symlink_metadata().is_ok());
    let existing = existing.and_then(|one| one.canonicalize().ok());
    path.components().all(is_plain)
        && existing.is_some_and(|existing| existing.starts_with(&directory))
}
