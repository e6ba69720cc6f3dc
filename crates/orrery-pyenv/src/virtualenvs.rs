//! Virtualenvs for handlers: one for each set of requirements and Python version, created on first
//! use, shared, and removed when unused.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, SystemTime};

use orrery_base::credentials::mask_userinfo;
use orrery_base::hex::to_hex;
use orrery_base::lock::IgnorePoison;
use orrery_model::PipSettings;
use orrery_sandbox::Confinement;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::interpreters::{Interpreter, PythonError};
use crate::last_use::{subdirectories, touch};
use crate::module_requirements::CORE;
use crate::package_names::{self, MODULE_PREFIX};
use crate::paths::python_of;
use crate::{create, pip, pip_settings, process};

/// Written last: its presence means that the installation is complete. Its time is that of the last
/// use.
const COMPLETE: &str = "complete";
/// Subdirectory of the virtualenv itself.
const CONTENT: &str = "env";
/// Length of the truncated hash.
const HASH_BYTES: usize = 16;
/// Time limit of an installation.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// Lines of pip output in an error.
const LINES_SHOWN: usize = 20;
/// Script that prints the requirements of packages, one per line.
const REQUIRED_BY: &str = "import importlib.metadata as m, sys\n\
     print(*(line for name in sys.argv[1:] for line in m.requires(name) or ()), sep='\\n')";

/// Maximum number of installations of this process at once. A complete virtualenv needs none.
const INSTALLATIONS_MAX: usize = 16;

static INSTALLATIONS: Turns = Turns { used: Mutex::new(0), freed: Condvar::new() };

/// Number of installations in progress.
struct Turns {
    used: Mutex<usize>,
    freed: Condvar,
}

/// Right to install, until it is dropped.
struct Turn(&'static Turns);

impl Turns {
    fn wait_for_turn(&'static self) -> Turn {
        let mut used = self.used.lock().ignore_poison();
        while *used >= INSTALLATIONS_MAX {
            used = self.freed.wait(used).ignore_poison();
        }
        *used += 1;
        Turn(self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.used.lock().ignore_poison() -= 1;
        self.0.freed.notify_one();
    }
}

#[derive(Debug, thiserror::Error)]
pub enum VirtualEnvError {
    #[error("the virtual environment {} cannot be created: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("{what} failed for the requirements {}:\n{output}", requirements.join(", "))]
    Command { what: &'static str, requirements: Vec<String>, output: String },
    #[error(transparent)]
    Python(#[from] PythonError),
}

/// Requirements of code on a virtualenv.
#[derive(Clone, Debug)]
pub struct VirtualEnvSpec<'n> {
    pub requirements: &'n [String],
    /// Modules to install as packages.
    pub modules: &'n [InstalledModule],
    /// Names of modules that are available as source, and never installed.
    pub sources: Vec<&'n str>,
    pub pip: &'n PipSettings,
}

/// A module from a package index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InstalledModule {
    pub name: String,
    pub version: String,
}

/// Returns the directory of a module's code that is installed in a virtualenv.
pub fn installed_module(interpreter: &Interpreter, module: &str) -> PathBuf {
    let environment = interpreter.program.parent().and_then(Path::parent);
    let library = environment.unwrap_or(Path::new("/")).join("lib");
    let packages = library.join(format!("python{}/site-packages", interpreter.version));
    packages.join("inmanta_plugins").join(module)
}

/// Store of virtualenvs.
#[derive(Clone, Debug)]
pub struct VirtualEnvs {
    dir: PathBuf,
    /// Additional arguments of `pip install`: an index, a directory of packages.
    pip: Vec<String>,
    /// Sandbox of pip and the code that it runs, which can write only to the new virtualenv.
    confinement: Option<Confinement>,
}

impl VirtualEnvs {
    pub fn new(dir: PathBuf, pip: Vec<String>) -> Self {
        VirtualEnvs { dir, pip, confinement: None }
    }

    /// Runs untrusted packages in a sandbox that can write only to the new virtualenv.
    #[must_use]
    pub fn confined(self, confinement: Option<Confinement>) -> Self {
        VirtualEnvs { confinement, ..self }
    }

    /// Returns an interpreter that satisfies the requirements: `base` itself if there are none.
    ///
    /// # Errors
    /// Fails if the virtualenv cannot be created.
    pub fn interpreter(
        &self,
        base: &Interpreter,
        needs: &VirtualEnvSpec<'_>,
    ) -> Result<Interpreter, VirtualEnvError> {
        if needs.requirements.is_empty() && needs.modules.is_empty() {
            return Ok(base.clone());
        }
        let path = self.dir.join(self.key(base, needs));
        let failed = |cause| VirtualEnvError::Io { path: path.clone(), cause };
        std::fs::create_dir_all(&self.dir).map_err(failed)?;
        // Concurrent callers wait and find it ready. The death of a process releases the lock.
        let lock = File::create(path.with_extension("lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        // Metadata of a virtualenv is outside of it, where packages cannot write.
        let own = path.join(CONTENT);
        if !path.join(COMPLETE).is_file() || !own.is_dir() {
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
            std::fs::create_dir_all(&path).map_err(failed)?;
            let _turn = INSTALLATIONS.wait_for_turn();
            self.create(base, &own, needs)?;
        }
        touch(&path.join(COMPLETE)).map_err(failed)?;
        if self.confinement.is_some() {
            // Its content is untrusted, and must not run unconfined.
            return Ok(Interpreter { program: python_of(&own), ..base.clone() });
        }
        Ok(Interpreter::find(Some(&own))?)
    }

    /// Returns a command for the virtualenv at a path.
    fn command(
        &self,
        program: &Path,
        path: &Path,
        settings: &PipSettings,
    ) -> Result<Command, VirtualEnvError> {
        let Some(confinement) = &self.confinement else {
            let mut command = Command::new(program);
            pip_settings::configure(&mut command, settings);
            return Ok(command);
        };
        let failed = |cause| VirtualEnvError::Io { path: path.to_owned(), cause };
        confinement.make_directory(path).map_err(failed)?;
        let mut confinement = confinement.clone().writable(path);
        for (name, value) in pip_settings::variables(settings) {
            match value {
                Some(value) => confinement.policy.set(name, value),
                None => {
                    confinement.policy.environment.remove(name);
                }
            }
        }
        let mut command = confinement.command(program);
        command.current_dir("/");
        Ok(command)
    }

    fn key(&self, base: &Interpreter, needs: &VirtualEnvSpec<'_>) -> String {
        let mut hash = Sha256::new();
        hash.update(base.version.to_string());
        let own = needs.requirements.iter().chain(&self.pip);
        own.for_each(|text| hash.update(format!("\0{text}")));
        for module in needs.modules {
            hash.update(format!("\0{} {}", module.name, module.version));
        }
        if !needs.pip.is_empty() {
            hash.update(format!("\0{:?}", needs.pip));
        }
        to_hex(&hash.finalize()[..HASH_BYTES])
    }

    fn create(
        &self,
        base: &Interpreter,
        path: &Path,
        needs: &VirtualEnvSpec<'_>,
    ) -> Result<(), VirtualEnvError> {
        let VirtualEnvSpec { requirements, modules, pip, .. } = needs;
        let shown: Vec<String> = requirements.iter().map(|line| mask_userinfo(line)).collect();
        tracing::info!(requirements = ?shown, ?modules, path = %path.display(), "creating a virtual environment");
        let python = self.command(&base.program, path, pip)?;
        let venv = create::arguments(python, path);
        run("creating a virtual environment", venv, path, requirements)?;
        let mut requirements = requirements.to_vec();
        requirements.extend(self.install_modules(path, needs)?);
        if requirements.is_empty() {
            return Ok(());
        }
        self.install(path, &[], &requirements, pip)
    }

    fn install(
        &self,
        path: &Path,
        options: &[&str],
        requirements: &[String],
        settings: &PipSettings,
    ) -> Result<(), VirtualEnvError> {
        let mut pip = pip::invocation(self.command(&python_of(path), path, settings)?);
        pip.args(["install", "--quiet"]).args(options);
        pip.args(&self.pip).args(pip_settings::arguments(settings)).arg("--").args(requirements);
        run("pip install", pip, path, requirements)
    }

    /// Installs modules and, one by one, the modules they need: all of them require the
    /// distribution that the SDK replaces, which must not be installed. Returns their other
    /// requirements.
    fn install_modules(
        &self,
        path: &Path,
        needs: &VirtualEnvSpec<'_>,
    ) -> Result<Vec<String>, VirtualEnvError> {
        let mut known: BTreeSet<String> =
            needs.sources.iter().map(|module| package_names::of_module(module)).collect();
        let mut wanted: Vec<String> = Vec::new();
        for InstalledModule { name, version } in needs.modules {
            let package = package_names::of_module(name);
            wanted.push(format!("{package}=={version}"));
            known.insert(package);
        }
        let mut others = BTreeSet::new();
        while !wanted.is_empty() {
            self.install(path, &["--no-deps"], &wanted, needs.pip)?;
            let mut next = Vec::new();
            for line in self.required_by(path, &wanted)? {
                let name = package_names::of_requirement(&line);
                if name == CORE || name == "inmanta" {
                    continue;
                }
                if !name.starts_with(MODULE_PREFIX) {
                    others.insert(line);
                } else if known.insert(name) {
                    next.push(line);
                }
            }
            wanted = next;
        }
        Ok(others.into_iter().collect())
    }

    /// Returns the requirements of installed packages from their metadata. pip skips those for
    /// other platforms.
    fn required_by(
        &self,
        path: &Path,
        packages: &[String],
    ) -> Result<Vec<String>, VirtualEnvError> {
        let names = packages.iter().map(|line| package_names::of_requirement(line));
        let settings = PipSettings::default();
        let mut command = self.command(&python_of(path), path, &settings)?;
        command.args(["-I", "-c", REQUIRED_BY]).args(names);
        let output = process::capture(command, TIME_MAX)
            .map_err(|cause| VirtualEnvError::Io { path: path.to_owned(), cause })?;
        if !output.status.success() {
            let what = "reading the requirements of installed packages";
            let output = String::from_utf8_lossy(&output.stderr);
            return Err(failed_command(what, packages, output.trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }

    /// Removes unused virtualenvs. Returns their number.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn remove_unused(&self, unused_for: Duration, now: SystemTime) -> io::Result<usize> {
        let mut removed = 0;
        for entry in subdirectories(&self.dir)? {
            let path = entry.path();
            let used = std::fs::metadata(path.join(COMPLETE)).or_else(|_| entry.metadata());
            let used = used.and_then(|used| used.modified());
            if !used.is_ok_and(|used| now.duration_since(used).is_ok_and(|ago| ago > unused_for)) {
                continue;
            }
            // Another process may be creating it at this moment.
            let lock_path = path.with_extension("lock");
            let free = File::create(&lock_path).is_ok_and(|lock| {
                lock.try_lock().is_ok() && std::fs::remove_dir_all(&path).is_ok()
            });
            if free {
                let _ = std::fs::remove_file(&lock_path);
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// Runs a command to its end; its output becomes part of the error.
fn run(
    what: &'static str,
    mut command: Command,
    path: &Path,
    requirements: &[String],
) -> Result<(), VirtualEnvError> {
    command.env_remove("PYTHONPATH");
    let ended = process::stream(command, Some(TIME_MAX), &mut |_| ())
        .map_err(|cause| VirtualEnvError::Io { path: path.to_owned(), cause })?;
    let Err(mut lines) = ended else { return Ok(()) };
    lines.retain(|line| !line.is_empty());
    let output = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
    Err(failed_command(what, requirements, &output))
}

/// Error of a command, for people: without the credentials of URLs.
fn failed_command(what: &'static str, requirements: &[String], output: &str) -> VirtualEnvError {
    VirtualEnvError::Command {
        what,
        requirements: requirements.iter().map(|line| mask_userinfo(line)).collect(),
        output: mask_userinfo(output),
    }
}
