//! Modules from the git repositories that `repo` in `project.yml` names: cloned into the module path, at the commit that the lock
//! file has, or at the version that the requirements allow.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use orrery_compiler::files::Disk;
use orrery_compiler::modules::wanted::{self, PACKAGE_PREFIX, split_requirement};
use orrery_compiler::project::{InstallMode, ModuleRepositories, Options, Project};
use orrery_compiler::release::{Release, fits};
use orrery_server::compiling::check_repository;

use crate::environment::lock::LockedModule;
use crate::environment::{Error, LockMode, Locking};
use crate::style;

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
#[derive(Debug)]
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
            Update::Only(names) => names.iter().any(|name| name == module),
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
        let modules = self.locking.map_or(&[][..], Locking::modules);
        modules.iter().find(|one| one.name == module).filter(|_| !self.update.has(module))
    }
}

/// Cloned modules, and those that could not be.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    pub(crate) modules: Vec<LockedModule>,
    pub(crate) not_found: Vec<NotFound>,
    /// Whether the project names repositories.
    pub(crate) has_repositories: bool,
}

/// Clones modules that a project needs and does not have, brings those that were cloned before to the commits of the lock file,
/// and those that are to be updated up to date.
///
/// # Errors
/// If a module cannot be brought to its locked commit.
pub(crate) fn fetch(
    options: &Options,
    rules: &Rules<'_>,
    say: &mut dyn FnMut(&str),
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
    let mut cloning = Cloning { repositories, directory, rules, say };
    let mut settled = false;
    let mut failed: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let mut modules = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let Ok(needed) = wanted::wanted(&Disk, options) else { break };
        let requirements = requirements_of(&project, &needed.module_dirs);
        if !std::mem::replace(&mut settled, true) {
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

/// Reasons of each address that was tried.
type Tried = Vec<(String, String)>;

struct Cloning<'a> {
    repositories: &'a ModuleRepositories,
    directory: PathBuf,
    rules: &'a Rules<'a>,
    say: &'a mut dyn FnMut(&str),
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
            Some(locked) => self.check_out_locked(&clone, locked, requirements)?,
            None => self.check_out(&clone, module, requirements)?,
        };
        std::fs::rename(&clone, target).map_err(failed)?;
        (self.say)(&format!(
            "cloned module {module} ({version}) from {}",
            without_password(address)
        ));
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
        let stays =
            |locked: &&LockedModule| locked.commit == commit || local_changes(path).is_some();
        match self.rules.locked(&name).filter(stays) {
            Some(locked) => Some(locked.clone()),
            None => Some(LockedModule { name, url, commit }),
        }
    }

    /// Brings a module that was cloned before up to date, or to its locked commit.
    fn settle(
        &mut self,
        path: &Path,
        requirements: &BTreeMap<String, Vec<String>>,
    ) -> Result<(), Error> {
        let Some((module, _)) = self.origin(path) else { return Ok(()) };
        if self.rules.update.has(&module) {
            self.update(path, &module, requirements);
            return Ok(());
        }
        let Some(locked) = self.rules.locked(&module).cloned() else {
            if self.rules.is_strict() {
                let changed = vec![format!("module {module} is not in it")];
                return Err(Error::LockOutdated { changed });
            }
            return Ok(());
        };
        let current = ask(Some(path), &["rev-parse", "HEAD"]).unwrap_or_default();
        let mut reason = None;
        if current == locked.commit && self.allows(path, &locked, requirements) {
            if !self.rules.is_strict() || !is_modified(path) {
                return Ok(());
            }
        } else if local_changes(path).is_none() {
            match self.check_out_locked(path, &locked, requirements) {
                Ok(version) => {
                    (self.say)(&format!("module {module} is at {version} now"));
                    return Ok(());
                }
                Err(why) => reason = Some(why),
            }
        }
        let reason = reason.or_else(|| local_changes(path));
        let reason = reason.unwrap_or_default();
        if self.rules.is_strict() {
            return Err(Error::LockedModule { module, reason });
        }
        (self.say)(&format!(
            "{}: module {module} stays as it is: {reason}",
            style::warning("warning")
        ));
        Ok(())
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
    ) -> Result<String, String> {
        let commit = locked.commit.as_str();
        let object = format!("{commit}^{{commit}}");
        let known = || ask(Some(path), &["cat-file", "-e", &object]);
        if known().is_err() {
            // Everything, and then what no branch has any more.
            let _ = ask(Some(path), &["fetch", "--quiet", "--tags", "--force", "origin"]);
            if known().is_err() {
                ask(Some(path), &["fetch", "--quiet", "origin", commit])?;
            }
        }
        if !self.allows(path, locked, requirements) {
            if self.rules.is_strict() {
                let specifiers = requirements.get(&locked.name).into_iter().flatten();
                let wanted: Vec<&str> = specifiers.map(|one| one.trim()).collect();
                return Err(format!(
                    "the locked commit is no version that satisfies {} {}",
                    locked.name,
                    wanted.join(", ")
                ));
            }
            return self.check_out(path, &locked.name, requirements);
        }
        ask(Some(path), &["checkout", "--quiet", "--force", "--detach", commit, "--"])?;
        let short: String = commit.chars().take(12).collect();
        let tags = ask(Some(path), &["tag", "--points-at", commit])?;
        Ok(match tags.lines().next() {
            Some(tag) => format!("{tag}, {short}"),
            None => short,
        })
    }

    /// Brings a module up to date.
    fn update(&mut self, path: &Path, module: &str, requirements: &BTreeMap<String, Vec<String>>) {
        let before = ask(Some(path), &["rev-parse", "HEAD"]).unwrap_or_default();
        let mut command = git(Some(path));
        command.args(["fetch", "--quiet", "--tags", "--force", "--prune", "origin"]);
        let done = run(command).and_then(|_| self.check_out(path, module, requirements));
        match done {
            Err(reason) => (self.say)(&format!(
                "{}: module {module} stays as it is: {reason}",
                style::warning("warning")
            )),
            Ok(version) => {
                if ask(Some(path), &["rev-parse", "HEAD"]).unwrap_or_default() != before {
                    (self.say)(&format!("updated module {module} to {version}"));
                }
            }
        }
    }

    /// Checks out the version that the mode and the requirements choose; answers its name.
    fn check_out(
        &mut self,
        path: &Path,
        module: &str,
        requirements: &BTreeMap<String, Vec<String>>,
    ) -> Result<String, String> {
        let go_to = |reference: &str| {
            let mut command = git(Some(path));
            command.args(["checkout", "--quiet", "--force", reference, "--"]);
            run(command)
        };
        if self.repositories.mode == InstallMode::Master {
            let known = ask(Some(path), &["rev-parse", "--verify", "--quiet", "origin/master"]);
            let name = if known.is_ok() { "origin/master" } else { "origin/HEAD" };
            go_to(name)?;
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
            go_to(&format!("refs/tags/{}", newest.text()))?;
            return Ok(newest.text().to_owned());
        }
        let wanted = specifiers.iter().map(|one| one.trim()).filter(|one| !one.is_empty());
        let wanted: Vec<&str> = wanted.collect();
        if !wanted.is_empty() {
            return Err(format!("no version of it satisfies {module} {}", wanted.join(", ")));
        }
        go_to("origin/HEAD")?;
        Ok("no version is tagged: its default branch".to_owned())
    }
}

/// Whether files of a clone differ from its commit.
fn is_modified(path: &Path) -> bool {
    let changed = ask(Some(path), &["status", "--porcelain", "--untracked-files=no"]);
    changed.is_ok_and(|changed| !changed.is_empty())
}

/// What a clone has that its repository has not; such a clone is not moved to another commit.
fn local_changes(path: &Path) -> Option<String> {
    if is_modified(path) {
        return Some("it has local changes".to_owned());
    }
    let kept = |kind: &[&str]| ask(Some(path), kind).is_ok_and(|found| !found.is_empty());
    let published = kept(&["branch", "--remotes", "--contains", "HEAD"])
        || kept(&["tag", "--contains", "HEAD"]);
    (!published).then(|| "it has local commits".to_owned())
}

fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    match rest.split_once('@') {
        Some((user, host)) if user.contains(':') => format!("{scheme}://***@{host}"),
        _ => address.to_owned(),
    }
}

/// Git, so that it runs nothing that a repository brings, and asks nobody.
fn git(directory: Option<&Path>) -> Command {
    let mut command = Command::new("git");
    for setting in
        ["core.hooksPath=/dev/null", "protocol.ext.allow=never", "advice.detachedHead=false"]
    {
        command.args(["-c", setting]);
    }
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    command.env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null());
    command
}

/// Runs git; answers what it says, or why it failed.
fn run(mut command: Command) -> Result<String, String> {
    let done = command.output().map_err(|error| format!("git cannot be started: {error}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let cause = said.lines().find(|line| line.starts_with("fatal:") || line.starts_with("error:"));
    let cause = cause.or_else(|| said.lines().next_back()).unwrap_or("git failed");
    let cause = cause.trim_start_matches("fatal:").trim_start_matches("error:").trim();
    Err(without_password(cause))
}

fn ask(directory: Option<&Path>, arguments: &[&str]) -> Result<String, String> {
    let mut command = git(directory);
    command.args(arguments);
    run(command)
}
