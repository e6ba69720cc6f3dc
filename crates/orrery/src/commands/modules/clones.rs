//! Clones of modules: cloned from a repository, checked out at a locked commit or an allowed version.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use orrery_compile_service::check_repository;
use orrery_compiler::project::{InstallMode, ModuleRepositories};
use orrery_pyenv::lock::LockedModule;
use orrery_pyenv::module_version::{ModuleVersion, satisfies};
use orrery_pyenv::{Error, LockMode};

use super::fetch_rules::{Allowed, Notice, Rules};
use super::git::{ask, git, is_modified, local_changes, run, without_password};

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

/// Fetches everything from the repository of a clone.
fn fetch_all(path: &Path) -> Result<(), String> {
    ask(Some(path), &["fetch", "--quiet", "--tags", "--force", "--prune", "origin"]).map(drop)
}

/// Tried addresses with their reasons.
pub(super) type Tried = Vec<(String, String)>;

/// Clones of a project's modules during a fetch.
pub(super) struct Cloning<'a> {
    pub(super) repositories: &'a ModuleRepositories,
    pub(super) directory: PathBuf,
    pub(super) rules: &'a Rules<'a>,
    pub(super) say: &'a mut dyn FnMut(Notice),
}

impl Cloning<'_> {
    /// Clones a module from its locked repository, or from the first one that has it. The inner
    /// error has the reason for each tried repository.
    pub(super) fn clone_module(
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
    pub(super) fn state(&self, path: &Path) -> Option<LockedModule> {
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
    pub(super) fn check_named(&self, path: &Path) -> Result<(), Error> {
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
    pub(super) fn fetch_named(&self, path: &Path) -> Result<(), Error> {
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
    pub(super) fn update_clone(
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
