//! Modules from the git repositories that `repo` in `project.yml` names: cloned into the module path, at the commit that the lock
//! file has, or at the version that the requirements allow.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use orrery_compiler::files::Disk;
use orrery_compiler::modules::wanted::{self, PACKAGE_PREFIX, split_requirement};
use orrery_compiler::project::{InstallMode, ModuleRepositories, Options, Project};
use orrery_compiler::release::{Release, fits};
use orrery_server::compiling::check_repository;
use serde::{Deserialize, Serialize};

use super::git::{ask, git, is_modified, local_changes, run, without_password};
use crate::environment::lock::LockedModule;
use crate::environment::{Error, LockMode, Locking};

/// Modules that are fetched because others import them: more rounds than any project needs.
const ROUNDS_MAX: usize = 100;

/// What may be cloned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Whatever git can reach: the user's own project.
    Everything,
    /// What the server allows for environments.
    ByServer { local: bool },
}

/// A module that no repository has, with the reason of each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NotFound {
    pub(crate) module: String,
    pub(crate) tried: Vec<(String, String)>,
}

/// Modules to bring up to date.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Update {
    #[default]
    Nothing,
    All,
    /// Those with these names.
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

    /// Whether a module is named, and does not just belong to all of them.
    fn names(&self, module: &str) -> bool {
        matches!(self, Update::Only(names) if names.iter().any(|name| name == module))
    }
}

/// What is told while modules are fetched.
#[derive(Debug)]
pub(crate) enum Notice {
    Step(String),
    Warning(String),
}

/// Why no version of a module could be checked out.
enum Failure {
    /// Git failed.
    Git(String),
    /// The requirements allow no version.
    NoVersion(String),
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Failure::Git(reason)
    }
}

impl Failure {
    fn reason(self) -> String {
        match self {
            Failure::Git(reason) | Failure::NoVersion(reason) => reason,
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
    /// Whether only what the lock file has may be used.
    fn is_strict(&self) -> bool {
        self.locking.is_some_and(|locking| locking.mode != LockMode::Update)
    }

    /// The commit that a module has to be at.
    fn locked(&self, module: &str) -> Option<&LockedModule> {
        self.entry(module).filter(|_| !self.update.has(module))
    }

    /// The entry of a module in the lock file.
    fn entry(&self, module: &str) -> Option<&LockedModule> {
        let modules = self.locking.map_or(&[][..], Locking::modules);
        modules.iter().find(|one| one.name == module)
    }

    /// Work in a clone that must not be lost. Clones of a server are its own: nobody works there.
    fn local_changes(&self, path: &Path) -> Option<String> {
        (self.allowed == Allowed::Everything).then(|| local_changes(path)).flatten()
    }
}

/// Cloned modules, and those that could not be.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Fetched {
    /// For the lock file, which a server does not write.
    #[serde(skip)]
    pub(crate) modules: Vec<LockedModule>,
    pub(crate) not_found: Vec<NotFound>,
    /// Whether the project names repositories.
    pub(crate) has_repositories: bool,
}

/// Clones modules that a project needs and does not have, brings those that were cloned before to the commits of the lock file,
/// and those that are to be updated up to date.
///
/// # Errors
/// If a module cannot be brought to its locked commit, if no version of it is allowed, or if one that is to be updated by its name
/// has local changes or cannot be updated.
pub(crate) fn fetch(
    options: &Options,
    rules: &Rules<'_>,
    say: &mut dyn FnMut(Notice),
) -> Result<Fetched, Error> {
    // What is wrong with the project is told by who reads it next.
    let Ok(project) = Project::load(&Disk, &options.project_dir) else {
        return Ok(Fetched::default());
    };
    let repositories = &project.repositories;
    let Some(directory) = repositories.directory.clone() else { return Ok(Fetched::default()) };
    if repositories.addresses.is_empty() {
        return Ok(Fetched::default());
    }
    if rules.allowed != Allowed::Everything {
        // Git runs with the rights of the server, and must not read or write what a repository names elsewhere.
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
        let Ok(needed) = wanted::wanted(&Disk, options) else { break };
        let requirements = requirements_of(&project, &needed.module_dirs);
        if !std::mem::replace(&mut settled, true) {
            needed.module_dirs.iter().try_for_each(|module| cloning.check_named(module))?;
            needed.module_dirs.iter().try_for_each(|module| cloning.fetch_named(module))?;
            for module in &needed.module_dirs {
                cloning.settle(module, &requirements)?;
            }
            continue;
        }
        let missing = wanted::missing(&Disk, options, &needed.imported).unwrap_or_default();
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
    Ok(Fetched { modules, not_found, has_repositories: true })
}

/// What follows the names of modules in requirements of the project and of the modules that it uses.
fn requirements_of(project: &Project, modules: &[PathBuf]) -> BTreeMap<String, Vec<String>> {
    let mut all = project.requires.clone();
    for module in modules {
        all.extend(wanted::requires_of(&Disk, module));
    }
    let mut by_module: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for text in &all {
        let Ok((name, rest)) = split_requirement(text) else { continue };
        let name = name.strip_prefix(PACKAGE_PREFIX).unwrap_or(name).replace('-', "_");
        by_module.entry(name).or_default().push(rest.to_owned());
    }
    by_module
}

/// Fetches all that the repository of a clone has.
fn fetch_all(path: &Path) -> Result<(), String> {
    ask(Some(path), &["fetch", "--quiet", "--tags", "--force", "--prune", "origin"]).map(drop)
}

/// Whether a path lies below a directory, wherever links on the way lead to, and whether or not it exists yet.
fn is_below(path: &Path, directory: &Path) -> bool {
    let is_plain = |part: Component<'_>| part != Component::ParentDir;
    let Ok(directory) = directory.canonicalize() else { return false };
    let path = directory.join(path);
    let existing = path.ancestors().find(|one| one.symlink_metadata().is_ok());
    let existing = existing.and_then(|one| one.canonicalize().ok());
    path.components().all(is_plain)
        && existing.is_some_and(|existing| existing.starts_with(&directory))
}

/// Reasons of each address that was tried.
type Tried = Vec<(String, String)>;

struct Cloning<'a> {
    repositories: &'a ModuleRepositories,
    directory: PathBuf,
    rules: &'a Rules<'a>,
    say: &'a mut dyn FnMut(Notice),
}

impl Cloning<'_> {
    /// Clones a module from the first repository that has it, or from the one in the lock file. The inner error has the reason of
    /// each repository that was tried.
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
            // That is told once it is known that it did not come as a package either.
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
            return Err("it is no address of a git repository".to_owned());
        }
        if let Allowed::ByServer { local } = self.rules.allowed {
            check_repository(address, "", local).map_err(|error| error.to_string())?;
        }
        let failed = |error: std::io::Error| error.to_string();
        std::fs::create_dir_all(&self.directory).map_err(failed)?;
        // Beside its place: what is half done is never taken for a module.
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
        let version = version.map_err(Failure::reason)?;
        std::fs::rename(&clone, target).map_err(failed)?;
        (self.say)(Notice::Step(format!(
            "cloned module {module} ({version}) from {}",
            without_password(address)
        )));
        Ok(())
    }

    /// Name and address of a module, if it was cloned from one of the repositories.
    fn origin(&self, path: &Path) -> Option<(String, String)> {
        let module = path.file_name()?.to_str()?;
        if path.parent() != Some(&self.directory) || !path.join(".git").exists() {
            return None;
        }
        let origin = ask(Some(path), &["config", "--get", "remote.origin.url"]).ok()?;
        let known = self.repositories.addresses_of(module).contains(&origin);
        known.then(|| (module.to_owned(), without_password(&origin)))
    }

    /// A module as the lock file is to have it. One with local changes stays locked as it was.
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

    /// Checks that a module which is to be updated by its name has nothing that would be lost.
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

    /// Fetches for a module that is to be updated by its name, before any clone is moved.
    fn fetch_named(&self, path: &Path) -> Result<(), Error> {
        match self.origin(path) {
            Some((module, _)) if self.rules.update.names(&module) => {
                fetch_all(path).map_err(|reason| Error::ModuleNotUpdated { module, reason })
            }
            _ => Ok(()),
        }
    }

    fn warn_that_it_stays(&mut self, module: &str, reason: &str) {
        (self.say)(Notice::Warning(format!("module {module} stays as it is: {reason}")));
    }

    /// Brings a module that was cloned before up to date, or to its locked commit.
    fn settle(
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
                self.warn_that_it_stays(&module, &reason);
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
            self.warn_that_it_stays(&module, &reason);
            return Ok(());
        }
        match self.check_out_locked(path, &locked, requirements) {
            Ok(version) => {
                (self.say)(Notice::Step(format!("module {module} is at {version} now")));
                Ok(())
            }
            Err(Failure::NoVersion(reason)) => Err(Error::NoModuleVersion { module, reason }),
            Err(Failure::Git(reason)) => Err(Error::LockedModule { module, reason }),
        }
    }

    /// Whether the requirements allow the commit of the lock file.
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
        let mut releases = tags.lines().filter_map(Release::parse);
        releases.any(|release| specifiers.iter().all(|one| fits(&release, one)))
    }

    /// Checks out the commit of the lock file; another one, if the requirements do not allow it and the lock file may change.
    fn check_out_locked(
        &mut self,
        path: &Path,
        locked: &LockedModule,
        requirements: &BTreeMap<String, Vec<String>>,
    ) -> Result<String, Failure> {
        let commit = locked.commit.as_str();
        let object = format!("{commit}^{{commit}}");
        let known = || ask(Some(path), &["cat-file", "-e", &object]);
        if known().is_err() {
            // Everything, and then what no branch has any more.
            let _ = ask(Some(path), &["fetch", "--quiet", "--tags", "--force", "origin"]);
            if known().is_err() {
                // Under a name of its own, which tells it from the work of a user.
                let fetched = format!("{commit}:refs/remotes/locked/{commit}");
                ask(Some(path), &["fetch", "--quiet", "origin", &fetched])?;
            }
        }
        if !self.allows(path, locked, requirements) {
            if self.rules.is_strict() {
                let specifiers = requirements.get(&locked.name).into_iter().flatten();
                let wanted: Vec<&str> = specifiers.map(|one| one.trim()).collect();
                return Err(Failure::Git(format!(
                    "the locked commit is no version that satisfies {} {}",
                    locked.name,
                    wanted.join(", ")
                )));
            }
            return self.check_out(path, &locked.name, requirements);
        }
        self.go_to(path, commit)?;
        let short: String = commit.chars().take(12).collect();
        let tags = ask(Some(path), &["tag", "--points-at", commit])?;
        Ok(match tags.lines().next() {
            Some(tag) => format!("{tag}, {short}"),
            None => short,
        })
    }

    /// Brings a module up to date. One with local changes stays as it is, and so does one that fails, unless it is named.
    fn update(
        &mut self,
        path: &Path,
        module: String,
        requirements: &BTreeMap<String, Vec<String>>,
    ) -> Result<(), Error> {
        let is_named = self.rules.update.names(&module);
        // Before anything is fetched: a branch that was rewritten leaves commits behind which nobody here made. For a module that is
        // named, both have been done.
        if !is_named && let Some(reason) = self.rules.local_changes(path) {
            self.warn_that_it_stays(&module, &reason);
            return Ok(());
        }
        let before = ask(Some(path), &["rev-parse", "HEAD"]).unwrap_or_default();
        let done = if is_named { Ok(()) } else { fetch_all(path).map_err(Failure::Git) };
        match done.and_then(|()| self.check_out(path, &module, requirements)) {
            // A compile that follows tells that too, and shows where.
            Err(Failure::NoVersion(reason)) if self.rules.allowed == Allowed::Everything => {
                return Err(Error::NoModuleVersion { module, reason });
            }
            Err(failure) if is_named => {
                return Err(Error::ModuleNotUpdated { module, reason: failure.reason() });
            }
            Err(failure) => self.warn_that_it_stays(&module, &failure.reason()),
            Ok(version) => {
                if ask(Some(path), &["rev-parse", "HEAD"]).unwrap_or_default() != before {
                    (self.say)(Notice::Step(format!("updated module {module} to {version}")));
                }
            }
        }
        Ok(())
    }

    /// Checks out a commit. Files that were changed, or are in the way, make it fail, unless the clone is a server's own.
    fn go_to(&self, path: &Path, reference: &str) -> Result<(), String> {
        let force = (self.rules.allowed != Allowed::Everything).then_some("--force");
        let mut command = git(Some(path));
        command.args(["checkout", "--quiet", "--detach"]).args(force).args([reference, "--"]);
        run(command).map(drop)
    }

    /// Checks out the version that the mode and the requirements choose; answers its name.
    fn check_out(
        &mut self,
        path: &Path,
        module: &str,
        requirements: &BTreeMap<String, Vec<String>>,
    ) -> Result<String, Failure> {
        if self.repositories.mode == InstallMode::Master {
            let known = ask(Some(path), &["rev-parse", "--verify", "--quiet", "origin/master"]);
            let name = if known.is_ok() { "origin/master" } else { "origin/HEAD" };
            self.go_to(path, name)?;
            return Ok(name.trim_start_matches("origin/").to_owned());
        }
        let none = Vec::new();
        let specifiers = requirements.get(module).unwrap_or(&none);
        let tags = ask(Some(path), &["tag", "--list"])?;
        let releases = tags.lines().filter_map(Release::parse);
        let wants_all = self.repositories.mode == InstallMode::Prerelease;
        let newest = releases
            .filter(|release| wants_all || !release.is_prerelease())
            .filter(|release| specifiers.iter().all(|one| fits(release, one)))
            .max();
        if let Some(newest) = newest {
            self.go_to(path, &format!("refs/tags/{}", newest.text()))?;
            return Ok(newest.text().to_owned());
        }
        let wanted = specifiers.iter().map(|one| one.trim()).filter(|one| !one.is_empty());
        let wanted: Vec<&str> = wanted.collect();
        if !wanted.is_empty() {
            let wanted = wanted.join(", ");
            return Err(Failure::NoVersion(format!(
                "no version of it satisfies {module} {wanted}"
            )));
        }
        self.go_to(path, "origin/HEAD")?;
        Ok("no version is tagged: its default branch".to_owned())
    }
}
