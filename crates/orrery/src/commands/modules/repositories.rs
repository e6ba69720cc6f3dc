//! Modules from the git repositories that `repo` in `project.yml` names: cloned into the module path, at the version that the
//! requirements allow.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use orrery_compiler::files::Disk;
use orrery_compiler::modules::wanted::{self, PACKAGE_PREFIX, split_requirement};
use orrery_compiler::project::{InstallMode, ModuleRepositories, Options, Project};
use orrery_compiler::release::{Release, fits};
use orrery_server::compiling::check_repository;

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

/// Clones modules that a project needs and does not have; with `update`, brings those that were cloned before up to date. Answers
/// which modules no repository has.
pub(crate) fn fetch(
    options: &Options,
    update: bool,
    allowed: Allowed,
    say: &mut dyn FnMut(&str),
) -> Vec<NotFound> {
    // What is wrong with the project is told by who reads it next.
    let Ok(project) = Project::load(&Disk, &options.project_dir) else { return Vec::new() };
    let repositories = &project.repositories;
    let Some(directory) = repositories.directory.clone() else { return Vec::new() };
    if repositories.addresses.is_empty() {
        return Vec::new();
    }
    let mut cloning = Cloning { repositories, directory, allowed, say };
    let mut updated = !update;
    let mut failed: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for _ in 0..ROUNDS_MAX {
        let Ok(needed) = wanted::wanted(&Disk, options) else { break };
        let requirements = requirements_of(&project, &needed.module_dirs);
        if !std::mem::replace(&mut updated, true) {
            for module in &needed.module_dirs {
                cloning.update(module, &requirements);
            }
            continue;
        }
        let missing = wanted::missing(&Disk, options, &needed.imported).unwrap_or_default();
        let new: Vec<String> =
            missing.into_iter().filter(|name| !failed.contains_key(name)).collect();
        if new.is_empty() {
            break;
        }
        for module in new {
            if let Err(tried) = cloning.clone_module(&module, &requirements) {
                failed.insert(module, tried);
            }
        }
    }
    failed.into_iter().map(|(module, tried)| NotFound { module, tried }).collect()
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

struct Cloning<'a> {
    repositories: &'a ModuleRepositories,
    directory: PathBuf,
    allowed: Allowed,
    say: &'a mut dyn FnMut(&str),
}

impl Cloning<'_> {
    /// Clones a module from the first repository that has it.
    fn clone_module(
        &mut self,
        module: &str,
        requirements: &BTreeMap<String, Vec<String>>,
    ) -> Result<(), Vec<(String, String)>> {
        let target = self.directory.join(module);
        let mut tried = Vec::new();
        for address in self.repositories.addresses_of(module) {
            match self.clone_from(&address, module, requirements, &target) {
                Ok(()) => return Ok(()),
                Err(reason) => tried.push((without_password(&address), reason)),
            }
        }
        Err(tried)
    }

    fn clone_from(
        &mut self,
        address: &str,
        module: &str,
        requirements: &BTreeMap<String, Vec<String>>,
        target: &Path,
    ) -> Result<(), String> {
        if address.starts_with('-') || address.contains("::") {
            return Err("it is no address of a git repository".to_owned());
        }
        if let Allowed::ByServer { local } = self.allowed {
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
        let version = self.check_out(&clone, module, requirements)?;
        std::fs::rename(&clone, target).map_err(failed)?;
        (self.say)(&format!(
            "cloned module {module} ({version}) from {}",
            without_password(address)
        ));
        Ok(())
    }

    /// Brings a module that was cloned from one of the repositories up to date.
    fn update(&mut self, path: &Path, requirements: &BTreeMap<String, Vec<String>>) {
        let Some(module) = path.file_name().and_then(|name| name.to_str()) else { return };
        if path.parent() != Some(&self.directory) || !path.join(".git").exists() {
            return;
        }
        let origin = ask(Some(path), &["config", "--get", "remote.origin.url"]);
        let Ok(origin) = origin else { return };
        if !self.repositories.addresses_of(module).contains(&origin) {
            return;
        }
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
