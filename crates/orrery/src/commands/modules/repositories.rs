//! Modules from the git repositories in `repo` of `project.yml`: cloned into the module path, at
//! the locked commit or at a version that the requirements allow.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use orrery_compiler::files::Disk;
use orrery_compiler::modules::requirements::{self, PACKAGE_PREFIX, split_requirement};
use orrery_compiler::project::{InstallMode, ModuleRepositories, Options, ProjectMetadata};
use orrery_pyenv::module_version::{ModuleVersion, satisfies};
use orrery_server::compile_service::check_repository;
use serde::{Deserialize, Serialize};

use super::git::{ask, git, is_modified, local_changes, run, without_password};
use orrery_pyenv::lock::LockedModule;
use orrery_pyenv::{Error, LockMode, Locking};

/// Maximum rounds of fetching modules that other modules import.
const ROUNDS_MAX: usize = 100;

/// Allowed repositories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Any repository: the user's own project.
    Everything,
    /// Repositories that the server allows for environments.
    ByServer { local: bool },
}

/// A module that no repository has, with the reasons.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NotFound {
    pub(crate) module: String,
    pub(crate) tried: Vec<(String, String)>,
}

/// Modules to update.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Update {
    #[default]
    Nothing,
    All,
    /// Modules with these names.
    Only(Vec<String>),
}

impl Update {
    fn has(&self, module: &str) -> bool {
        match self {
            Update::Nothing => false,
            Update::All => true,
            Update::Only(_) => self.names(module),
        }
    }

    /// True if a module is named explicitly.
    fn names(&self, module: &str) -> bool {
        matches!(self, Update::Only(names) if names.iter().any(|name| name == module))
    }
}

/// Progress messages.
#[derive(Debug)]
pub(crate) enum Notice {
    Step(String),
    Warning(String),
}

/// Reason why no version of a module could be checked out.
enum CheckoutError {
    /// Git failed.
    Git(String),
    /// The requirements allow no version.
    NoVersion(String),
}

impl From<String> for CheckoutError {
    fn from(reason: String) -> Self {
        CheckoutError::Git(reason)
    }
}

impl CheckoutError {
    fn reason(self) -> String {
        match self {
            CheckoutError::Git(reason) | CheckoutError::NoVersion(reason) => reason,
        }
    }
}

/// Rules for fetching.
pub(crate) struct Rules<'a> {
    pub(crate) update: &'a Update,
    pub(crate) allowed: Allowed,
    pub(crate) locking: Option<&'a Locking>,
}

impl Rules<'_> {
    /// True if only the lock file may be used.
    fn is_strict(&self) -> bool {
        self.locking.is_some_and(|locking| locking.mode != LockMode::Update)
    }

    /// Commit that a module must be at.
    fn locked(&self, module: &str) -> Option<&LockedModule> {
        self.entry(module).filter(|_| !self.update.has(module))
    }

    /// Lock file entry of a module.
    fn entry(&self, module: &str) -> Option<&LockedModule> {
        let modules = self.locking.map_or(&[][..], Locking::modules);
        modules.iter().find(|one| one.name == module)
    }

    /// Local work in a clone that must not be lost. Clones on a server have none.
    fn local_changes(&self, path: &Path) -> Option<String> {
        (self.allowed == Allowed::Everything).then(|| local_changes(path)).flatten()
    }
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
    let mut failed: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
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

/// Fetches everything from the repository of a clone.
fn fetch_all(path: &Path) -> Result<(), String> {
    ask(Some(path), &["fetch", "--quiet", "--tags", "--force", "--prune", "origin"]).map(drop)
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

/// Tried addresses with their reasons.
type Tried = Vec<(String, String)>;

struct Cloning<'a> {
    repositories: &'a ModuleRepositories,
    directory: PathBuf,
    rules: &'a Rules<'a>,
    say: &'a mut dyn FnMut(Notice),
}

impl Cloning<'_> {
    /// Clones a module from its locked repository, or from the first one that has it. The inner
    /// error has the reason for each tried repository.
    fn clone_module(
        &mut self,
        module: &str,
        requirements: &BTreeMap<String, Vec<String>>,
    ) -> Result<Result<(), Tried>, Error> {
        let target = self.directory.join(module);
        let addresses = self.repositories.addresses_of(module);
        if let Some(locked) = self.rules.locked(module).cloned() {
            let address = addresses.iter().find(|one| without_password(one) == locked.url);
            if let Some(address) = address {
                let failed = |reason| Error::LockedModule { module: module.to_owned(), reason };
                let done = self.clone_from(address, module, requirements, &target, Some(&locked));
                return done.map(Ok).map_err(failed);
            }
            if self.rules.is_strict() {
                let reason = format!("project.yml has no repository {}", locked.url);
                return Err(Error::LockedModule { module: module.to_owned(), reason });
            }
        } else if self.rules.is_strict() {
            // Reported only if the module is not a package either.
            return Ok(Err(Vec::new()));
        }
        let mut tried = Vec::new();
        for address in addresses {
            match self.clone_from(&address, module, requirements, &target, None) {
                Ok(()) => return Ok(Ok(())),
                Err(reason) => tried.push((without_password(&address), reason)),
            }
        }
        Ok(Err(tried))
    }

    fn clone_from(
        &mut self,
        address: &str,
        module: &str,
        requirements: &BTreeMap<String, Vec<String>>,
        target: &Path,
        locked: Option<&LockedModule>,
    ) -> Result<(), String> {
        if address.starts_with('-') || address.contains("::") {
            return Err("not the URL of a git repository".to_owned());
        }
        if let Allowed::ByServer { local } = self.rules.allowed {
            check_repository(address, "", local).map_err(|error| error.to_string())?;
        }
        let failed = |error: std::io::Error| error.to_string();
        std::fs::create_dir_all(&self.directory).map_err(failed)?;
        // Cloned to a temporary directory: an incomplete clone never looks like a module.
        let fresh = tempfile::Builder::new().prefix(".cloning-").tempdir_in(&self.directory);
        let fresh = fresh.map_err(failed)?;
        let clone = fresh.path().join(module);
        let mut command = git(None);
        command
            .args(["clone", "--quiet", "--no-recurse-submodules", "--"])
            .arg(address)
            .arg(&clone);
        run(command)?;
        let version = match locked {
            Some(locked) => self.check_out_locked(&clone, locked, requirements),
            None => self.check_out(&clone, module, requirements),
        };
        let version = version.map_err(CheckoutError::reason)?;
        std::fs::rename(&clone, target).map_err(failed)?;
        (self.say)(Notice::Step(format!(
            "cloned module {module} ({version}) from {}",
            without_password(address)
        )));
        Ok(())
    }

    /// Name and URL of a module, if it was cloned from one of the repositories.
    fn origin(&self, path: &Path) -> Option<(String, String)> {
        let module = path.file_name()?.to_str()?;
        if path.parent() != Some(&self.directory) || !path.join(".git").exists() {
            return None;
        }
        let origin = ask(Some(path), &["config", "--get", "remote.origin.url"]).ok()?;
        let known = self.repositories.addresses_of(module).contains(&origin);
        known.then(|| (module.to_owned(), without_password(&origin)))
    }

    /// Lock entry of a module. With local changes, the old entry is kept.
    fn state(&self, path: &Path) -> Option<LockedModule> {
        let (name, url) = self.origin(path)?;
        let commit = ask(Some(path), &["rev-parse", "HEAD"]).ok()?;
        let stays = |locked: &&LockedModule| {
            locked.commit == commit || self.rules.local_changes(path).is_some()
        };
        match self.rules.entry(&name).filter(stays) {
            Some(locked) => Some(locked.clone()),
            None => Some(LockedModule { name, url, commit }),
        }
    }

    /// Rejects an explicit update that would lose local changes.
    fn check_named(&self, path: &Path) -> Result<(), Error> {
        let Some((module, _)) = self.origin(path) else { return Ok(()) };
        if !self.rules.update.names(&module) {
            return Ok(());
        }
        match self.rules.local_changes(path) {
            Some(reason) => Err(Error::ChangedModule { module, path: path.to_owned(), reason }),
            None => Ok(()),
        }
    }

    /// Fetches for explicit updates, before any clone is moved.
    fn fetch_named(&self, path: &Path) -> Result<(), Error> {
        match self.origin(path) {
            Some((module, _)) if self.rules.update.names(&module) => {
                fetch_all(path).map_err(|reason| Error::ModuleNotUpdated { module, reason })
            }
            _ => Ok(()),
        }
    }

    fn warn_unchanged(&mut self, module: &str, reason: &str) {
        (self.say)(Notice::Warning(format!("module {module} is unchanged: {reason}")));
    }

    /// Updates an existing clone, or moves it to its locked commit.
    fn update_clone(
        &mut self,
        path: &Path,
        requirements: &BTreeMap<String, Vec<String>>,
    ) -> Result<(), Error> {
        let Some((module, _)) = self.origin(path) else { return Ok(()) };
        if self.rules.update.has(&module) {
            return self.update(path, module, requirements);
        }
        let Some(locked) = self.rules.locked(&module).cloned() else {
            if self.rules.is_strict() {
                let changed = vec![format!("module {module} is not in it")];
                return Err(Error::LockOutdated { changed });
            }
            if let Some(reason) = self.rules.local_changes(path) {
                self.warn_unchanged(&module, &reason);
            }
            return Ok(());
        };
        let current = ask(Some(path), &["rev-parse", "HEAD"]).unwrap_or_default();
        let is_there = current == locked.commit && self.allows(path, &locked, requirements);
        if is_there && !is_modified(path) {
            return Ok(());
        }
        if let Some(reason) = local_changes(path) {
            if self.rules.is_strict() {
                return Err(Error::LockedModule { module, reason });
            }
            self.warn_unchanged(&module, &reason);
            return Ok(());
        }
        match self.check_out_locked(path, &locked, requirements) {
            Ok(version) => {
                (self.say)(Notice::Step(format!("module {module} is now at {version}")));
                Ok(())
            }
            Err(CheckoutError::NoVersion(reason)) => Err(Error::NoModuleVersion { module, reason }),
            Err(CheckoutError::Git(reason)) => Err(Error::LockedModule { module, reason }),
        }
    }

    /// True if the requirements allow the locked commit.
    fn allows(
        &self,
        path: &Path,
        locked: &LockedModule,
        requirements: &BTreeMap<String, Vec<String>>,
    ) -> bool {
        let specifiers = requirements.get(&locked.name).map_or(&[][..], Vec::as_slice);
        if self.rules.locking.is_some_and(|locking| locking.mode == LockMode::Frozen)
            || self.repositories.mode == InstallMode::Master
            || specifiers.iter().all(|one| one.trim().is_empty())
        {
            return true;
        }
        let tags = ask(Some(path), &["tag", "--points-at", &locked.commit]).unwrap_or_default();
        let mut releases = tags.lines().filter_map(ModuleVersion::parse);
        releases.any(|release| specifiers.iter().all(|one| satisfies(&release, one)))
    }

    /// Checks out the locked commit, or another one if the requirements disallow it and the lock
    /// file may change.
    fn check_out_locked(
        &mut self,
        path: &Path,
        locked: &LockedModule,
        requirements: &BTreeMap<String, Vec<String>>,
    ) -> Result<String, CheckoutError> {
        let commit = locked.commit.as_str();
        let object = format!("{commit}^{{commit}}");
        let known = || ask(Some(path), &["cat-file", "-e", &object]);
        if known().is_err() {
            // Fetches everything, then the commit itself, which may be on no branch.
            let _ = ask(Some(path), &["fetch", "--quiet", "--tags", "--force", "origin"]);
            if known().is_err() {
                // Stored under its own ref, distinct from the user's work.
                let fetched = format!("{commit}:refs/remotes/locked/{commit}");
                ask(Some(path), &["fetch", "--quiet", "origin", &fetched])?;
            }
        }
        if !self.allows(path, locked, requirements) {
            if self.rules.is_strict() {
                let specifiers = requirements.get(&locked.name).into_iter().flatten();
                let wanted: Vec<&str> = specifiers.map(|one| one.trim()).collect();
                return Err(CheckoutError::Git(format!(
                    "the locked commit does not satisfy {} {}",
                    locked.name,
                    wanted.join(", ")
                )));
            }
            return self.check_out(path, &locked.name, requirements);
        }
        self.check_out_commit(path, commit)?;
        let short: String = commit.chars().take(12).collect();
        let tags = ask(Some(path), &["tag", "--points-at", commit])?;
        Ok(match tags.lines().next() {
            Some(tag) => format!("{tag}, {short}"),
            None => short,
        })
    }

    /// Updates a module. Keeps one with local changes, and one that fails, unless it is named
    /// explicitly.
    fn update(
        &mut self,
        path: &Path,
        module: String,
        requirements: &BTreeMap<String, Vec<String>>,
    ) -> Result<(), Error> {
        let is_named = self.rules.update.names(&module);
        // Checked before the fetch: a rewritten branch leaves commits that look local. Explicitly
        // named modules are already checked and fetched.
        if !is_named && let Some(reason) = self.rules.local_changes(path) {
            self.warn_unchanged(&module, &reason);
            return Ok(());
        }
        let before = ask(Some(path), &["rev-parse", "HEAD"]).unwrap_or_default();
        let done = if is_named { Ok(()) } else { fetch_all(path).map_err(CheckoutError::Git) };
        match done.and_then(|()| self.check_out(path, &module, requirements)) {
            // The following compile reports this with its location.
            Err(CheckoutError::NoVersion(reason)) if self.rules.allowed == Allowed::Everything => {
                return Err(Error::NoModuleVersion { module, reason });
            }
            Err(failure) if is_named => {
                return Err(Error::ModuleNotUpdated { module, reason: failure.reason() });
            }
            Err(failure) => self.warn_unchanged(&module, &failure.reason()),
            Ok(version) => {
                if ask(Some(path), &["rev-parse", "HEAD"]).unwrap_or_default() != before {
                    (self.say)(Notice::Step(format!("updated module {module} to {version}")));
                }
            }
        }
        Ok(())
    }

    /// Checks out a commit. Fails on changed files, except in a server's own clone.
    fn check_out_commit(&self, path: &Path, reference: &str) -> Result<(), String> {
        let force = (self.rules.allowed != Allowed::Everything).then_some("--force");
        let mut command = git(Some(path));
        command.args(["checkout", "--quiet", "--detach"]).args(force).args([reference, "--"]);
        run(command).map(drop)
    }

    /// Checks out the version that the mode and the requirements select; returns its name.
    fn check_out(
        &mut self,
        path: &Path,
        module: &str,
        requirements: &BTreeMap<String, Vec<String>>,
    ) -> Result<String, CheckoutError> {
        if self.repositories.mode == InstallMode::Master {
            let known = ask(Some(path), &["rev-parse", "--verify", "--quiet", "origin/master"]);
            let name = if known.is_ok() { "origin/master" } else { "origin/HEAD" };
            self.check_out_commit(path, name)?;
            return Ok(name.trim_start_matches("origin/").to_owned());
        }
        let none = Vec::new();
        let specifiers = requirements.get(module).unwrap_or(&none);
        let tags = ask(Some(path), &["tag", "--list"])?;
        let releases = tags.lines().filter_map(ModuleVersion::parse);
        let wants_all = self.repositories.mode == InstallMode::Prerelease;
        let newest = releases
            .filter(|release| wants_all || !release.is_prerelease())
            .filter(|release| specifiers.iter().all(|one| satisfies(release, one)))
            .max();
        if let Some(newest) = newest {
            self.check_out_commit(path, &format!("refs/tags/{}", newest.text()))?;
            return Ok(newest.text().to_owned());
        }
        let wanted = specifiers.iter().map(|one| one.trim()).filter(|one| !one.is_empty());
        let wanted: Vec<&str> = wanted.collect();
        if !wanted.is_empty() {
            let wanted = wanted.join(", ");
            return Err(CheckoutError::NoVersion(format!(
                "no version of it satisfies {module} {wanted}"
            )));
        }
        self.check_out_commit(path, "origin/HEAD")?;
        Ok("default branch, no tagged version".to_owned())
    }
}
