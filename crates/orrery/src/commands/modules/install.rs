//! `orrery modules install`, `add` and `update`: the project's virtualenv.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use orrery_compiler::modules::requirements::{PACKAGE_PREFIX, package_of};

use super::fetch_rules::{self, Allowed, Notice, Update};
use super::install_display::InstallDisplay;
use super::list::refuse;
use super::locking;
use super::repositories::{self, FetchedModules, NotFound};
use super::sources::ModuleSource;
use super::target::{REQUIREMENTS, Target, absolute};
use crate::cli::modules::{AddModules, InstallModules, InstallOptions, UpdateModules};
use crate::{Exit, output, style};
use orrery_pyenv::lock::Lock;
use orrery_pyenv::package_names::normalize;
use orrery_pyenv::{Error, InstallOutcome, LockMode, Locking, Upgrade};

pub(super) fn install(options: &InstallModules, verbose: bool) -> Exit {
    let mode = match (options.locked, options.frozen) {
        (_, true) => LockMode::Frozen,
        (true, false) => LockMode::Locked,
        (false, false) => LockMode::Update,
    };
    let rules = Rules { mode: Some(mode), ..Rules::default() };
    run(&options.options, verbose, rules, |target, display| {
        target.request.rebuild = options.rebuild;
        display.watch(target)
    })
}

pub(super) fn update(options: &UpdateModules, verbose: bool) -> Exit {
    let packages: Vec<String> = options.modules.iter().map(|name| package_of(name)).collect();
    let modules = packages.iter().map(|name| name.strip_prefix(PACKAGE_PREFIX).unwrap_or(name));
    let modules: Vec<String> = modules.map(|name| name.replace('-', "_")).collect();
    let update = if modules.is_empty() { Update::All } else { Update::Only(modules) };
    run(&options.options, verbose, Rules { update, ..Rules::default() }, |target, display| {
        // A cloned module is not a package.
        let named = packages.iter().zip(&options.modules);
        let packages: Vec<String> = named
            .filter(|(package, _)| !target.has_clone_of(package))
            .map(|(package, name)| target.package_named(package, name))
            .collect();
        target.request.upgrade = match (options.modules.is_empty(), packages.is_empty()) {
            (true, _) => Upgrade::All,
            (false, true) => Upgrade::Nothing,
            (false, false) => Upgrade::Only(packages),
        };
        display.watch(target)
    })
}

pub(super) fn add(options: &AddModules, verbose: bool) -> Exit {
    run(&options.options, verbose, Rules::default(), |target, display| {
        add_to(target, &options.modules, display)
    })
}

/// Installation of a project's modules on a server, before a compile.
pub(crate) struct ServerInstallation<'a> {
    pub(crate) project: &'a Path,
    pub(crate) virtualenv: &'a Path,
    /// File for the result of `fetch`.
    pub(crate) fetched: &'a Path,
    pub(crate) update: bool,
}

impl ServerInstallation<'_> {
    fn options(&self) -> InstallOptions {
        InstallOptions {
            project: Some(self.project.to_owned()),
            main: orrery_project::MAIN_FILE.to_owned(),
            python_env: Some(self.virtualenv.to_owned()),
            python: None,
            json: false,
        }
    }

    /// True if there is a lock file, which is binding.
    fn is_locked(&self) -> bool {
        Lock::path(self.project).exists()
    }

    fn rules(&self, allowed: Allowed, fetched: Option<FetchedModules>) -> Rules {
        let locked = self.is_locked();
        Rules {
            update: if self.update && !locked { Update::All } else { Update::Nothing },
            allowed,
            mode: locked.then_some(LockMode::Locked),
            for_compile: true,
            fetched,
        }
    }

    /// Clones the project's modules from its repositories.
    pub(crate) fn fetch(&self, allowed: Allowed) -> Exit {
        let rules = self.rules(allowed, None);
        let options = self.options();
        // The compile reports problems of the project.
        let Ok(target) = Target::find(&options) else { return Exit::Done };
        let mut listener = |notice| match notice {
            Notice::Warning(text) => {
                output::print_status(&format!(
                    "{}: {}",
                    style::warning("warning"),
                    style::sanitize(&text)
                ));
            }
            Notice::Step(text) => output::print_status(&style::sanitize(&text)),
        };
        let fetched = read_lock(&target, rules.mode)
            .and_then(|locking| fetch_modules(&target, &rules, locking.as_ref(), &mut listener));
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => return InstallDisplay::new(&options, true).conclude(&target, Err(error)),
        };
        let written = serde_json::to_vec(&fetched).map_err(std::io::Error::from);
        match written.and_then(|text| std::fs::write(self.fetched, text)) {
            Ok(()) => Exit::Done,
            Err(error) => {
                let path = self.fetched.display();
                output::print_status(&format!("{}: {path}: {error}", style::error("error")));
                Exit::Error
            }
        }
    }

    /// Creates the virtualenv of the project, if it needs one, and reports every step. A lock file
    /// is binding; without one, versions are resolved here. Modules have been fetched.
    pub(crate) fn install(&self) -> Exit {
        let locked = self.is_locked();
        let upgrade = self.update && !locked;
        if locked {
            output::print_status("installing modules from orrery.lock");
        }
        let text = std::fs::read(self.fetched).unwrap_or_default();
        let fetched: FetchedModules = serde_json::from_slice(&text).unwrap_or_default();
        let rules = self.rules(Allowed::ByServer { local: false }, Some(fetched));
        run(&self.options(), true, rules, |target, display| {
            if upgrade {
                target.request.upgrade = Upgrade::All;
            }
            display.watch(target)
        })
    }
}

/// Rules of an installation.
struct Rules {
    /// Cloned modules to update.
    update: Update,
    allowed: Allowed,
    /// `None` if no lock file is used or written.
    mode: Option<LockMode>,
    /// True if a compile follows: it needs no virtualenv without requirements, and reports problems
    /// of the project.
    for_compile: bool,
    /// Modules that were fetched before.
    fetched: Option<FetchedModules>,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            update: Update::Nothing,
            allowed: Allowed::Everything,
            mode: Some(LockMode::Update),
            for_compile: false,
            fetched: None,
        }
    }
}

/// Reports the repositories that were tried for missing modules.
fn report_not_found(target: &Target, not_found: &[NotFound]) {
    let missing = target.missing();
    let untold = |one: &&NotFound| !one.tried.is_empty() && missing.contains(&one.module);
    for NotFound { module, tried } in not_found.iter().filter(untold) {
        let module = style::sanitize(module);
        output::print_status(&format!(
            "{}: no repository of project.yml has module {module}",
            style::warning("warning")
        ));
        for (address, reason) in tried {
            output::print_status(&style::sanitize(&format!("  {address}: {reason}")));
        }
    }
}

/// Finds the target, fetches modules, installs, and reports the result.
fn run(
    options: &InstallOptions,
    verbose: bool,
    mut rules: Rules,
    work: impl FnOnce(&mut Target, &InstallDisplay) -> Result<InstallOutcome, Error>,
) -> Exit {
    let display = InstallDisplay::new(options, verbose);
    let target = match Target::find(options) {
        Ok(target) => target,
        Err(error) if rules.for_compile => {
            // The following compile fails for the same reason and shows the location.
            output::print_status(&format!("nothing installed: {}", style::sanitize(&error.text)));
            return Exit::Done;
        }
        Err(error) => return refuse(&error),
    };
    let mut warnings = Vec::new();
    let fetched = read_lock(&target, rules.mode).and_then(|locking| {
        let mut listener = |notice| match notice {
            Notice::Warning(text) if options.json => warnings.push(text),
            Notice::Warning(text) => {
                output::print_status(&format!(
                    "{}: {}",
                    style::warning("warning"),
                    style::sanitize(&text)
                ));
            }
            Notice::Step(text) if !options.json => output::print_status(&style::sanitize(&text)),
            Notice::Step(_) => {}
        };
        let fetched = match rules.fetched.take() {
            Some(fetched) => fetched,
            None => fetch_modules(&target, &rules, locking.as_ref(), &mut listener)?,
        };
        Ok((locking, fetched))
    });
    let (locking, fetched) = match fetched {
        Ok(done) => done,
        Err(error) => return display.conclude(&target, Err(error)),
    };
    // Cloned modules may add requirements.
    let mut target = match Target::find(options) {
        Ok(target) => target,
        Err(error) => return refuse(&error),
    };
    let locks_packages = locking.as_ref().and_then(|one| one.lock.as_ref());
    let locks_packages = locks_packages.is_some_and(|lock| !lock.packages.is_empty());
    target.request.locking = locking;
    if rules.for_compile && !target.needs_environment() && !locks_packages {
        if let Err(error) = locking::check_modules(&target, &fetched) {
            return display.conclude(&target, Err(error));
        }
        output::print_status("the project needs no virtualenv");
        report_not_found(&target, &fetched.not_found);
        return Exit::Done;
    }
    let done = crate::commands::sdk::sdk_directory().and_then(|sdk| {
        target.request.sdk = Some(absolute(&sdk));
        let mut outcome = work(&mut target, &display)?;
        warnings.append(&mut outcome.warnings);
        outcome.warnings = warnings;
        let lock = locking::update_lock_file(&mut target, &outcome, &fetched)?;
        Ok((outcome, lock))
    });
    let exit = display.conclude(&target, done);
    if !options.json {
        report_not_found(&target, &fetched.not_found);
    }
    exit
}

/// Reads the lock file of a project; modules have none.
fn read_lock(target: &Target, mode: Option<LockMode>) -> Result<Option<Locking>, Error> {
    match mode {
        None => Ok(None),
        Some(LockMode::Update) if target.is_module() => Ok(None),
        Some(_) if target.is_module() => {
            let text = "this is a module: only projects have an orrery.lock";
            Err(Error::Requirement { text: text.into() })
        }
        Some(mode) => Locking::read(&target.directory, mode).map(Some),
    }
}

/// Clones missing modules from the project's repositories.
fn fetch_modules(
    target: &Target,
    rules: &Rules,
    locking: Option<&Locking>,
    listener: &mut dyn FnMut(Notice),
) -> Result<FetchedModules, Error> {
    let Some(options) = &target.options else { return Ok(FetchedModules::default()) };
    let rules = fetch_rules::Rules { update: &rules.update, allowed: rules.allowed, locking };
    repositories::fetch(options, &rules, listener)
}

/// Installs with the new requirements first; writes them only on success.
fn add_to(
    target: &mut Target,
    modules: &[String],
    display: &InstallDisplay,
) -> Result<InstallOutcome, Error> {
    if target.is_module() {
        let text = "this is a module: its requirements are in `install_requires` of setup.cfg";
        return Err(Error::Requirement { text: text.into() });
    }
    let read = modules.iter().map(|module| ModuleSource::read(module, &target.directory));
    let wanted: Vec<ModuleSource> = read.collect::<Result<_, _>>()?;
    let path = target.directory.join(REQUIREMENTS);
    let before = read_if_there(&path)?;
    let with = |text: &str, version: &dyn Fn(&str) -> Option<String>| {
        wanted.iter().fold(text.to_owned(), |text, one| one.added_to(&text, &before, version))
    };
    // pip reads the new requirements from a temporary file beside the real one.
    let failed = || Error::system(format!("write {}", path.display()));
    let mut draft = tempfile::Builder::new()
        .prefix(".requirements-")
        .suffix(".txt")
        .tempfile_in(&target.directory)
        .map_err(failed())?;
    let text = with(&before, &|_| None);
    std::io::Write::write_all(&mut draft, text.as_bytes()).map_err(failed())?;
    let files = std::mem::take(&mut target.request.files);
    target.request.files = std::iter::once(draft.path().to_owned())
        .chain(files.iter().filter(|file| **file != path).cloned())
        .collect();
    let outcome = display.watch(target)?;
    let compatible = |package: &str| {
        let found = outcome.packages.iter().find(|one| normalize(&one.name) == normalize(package));
        found.and_then(|package| compatible_with(&package.version))
    };
    std::fs::write(draft.path(), with(&before, &compatible)).map_err(failed())?;
    // Keeps the mode of a regular project file instead of 0600.
    let mode = std::fs::metadata(&path).map_or(0o644, |metadata| metadata.permissions().mode());
    let mode = std::fs::Permissions::from_mode(mode & 0o777);
    std::fs::set_permissions(draft.path(), mode).map_err(failed())?;
    draft.persist(&path).map_err(|error| failed()(error.error))?;
    // Records the new requirements, so that the next installation has nothing to do.
    target.request.files = std::iter::once(path.clone())
        .chain(files.into_iter().filter(|file| *file != path))
        .collect();
    orrery_pyenv::refresh_record(&target.request)?;
    Ok(outcome)
}

/// `~=1.2` for version 1.2.3: compatible with the installed version.
fn compatible_with(version: &str) -> Option<String> {
    let mut parts = version.split('.');
    let (major, minor) = (parts.next()?, parts.next()?);
    let number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    (number(major) && number(minor)).then(|| format!("~={major}.{minor}"))
}

fn read_if_there(path: &Path) -> Result<String, Error> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(Error::system(format!("read {}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compatible_specifiers_keep_the_major_version() {
        assert_eq!(compatible_with("1.2.3").as_deref(), Some("~=1.2"));
        assert_eq!(compatible_with("2.0").as_deref(), Some("~=2.0"));
        assert_eq!(compatible_with("7"), None);
        assert_eq!(compatible_with("1.0rc1"), None);
    }
}
