//! Virtualenvs for handlers: one for each set of requirements and Python version, created on first
//! use, shared, and removed when unused.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use orrery_sandbox::Confinement;
use sha2::{Digest, Sha256};

use crate::code_store::{CodeSet, InstalledModule, list, touch};
use crate::handshake::ModuleCode;
use crate::pip::PipSettings;
use crate::python::{Interpreter, PythonError};

/// Written last: its presence means that the installation is complete. Its time is that of the last
/// use.
const COMPLETE: &str = "complete";
/// Subdirectory of the virtualenv itself.
const CONTENT: &str = "env";
/// Length of the truncated hash.
const HASH_BYTES: usize = 16;
/// Maximum captured output of pip in bytes.
const OUTPUT_KEPT: usize = 256 << 10;
/// Time limit of an installation.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// Poll interval for the end of a command.
const POLL: Duration = Duration::from_millis(5);
/// Lines of pip output in an error.
const LINES_SHOWN: usize = 20;
/// Distribution that the SDK replaces.
const CORE: &str = "inmanta-core";
const MODULE_PREFIX: &str = "inmanta-module-";
/// Distributions that are not installed on request of a module: the SDK's, and modules that are
/// shipped as code.
const OWN: [&str; 2] = [CORE, MODULE_PREFIX];
/// Script that prints the requirements of packages, one per line.
const REQUIRED_BY: &str = "import importlib.metadata as m, sys\n\
     print(*(line for name in sys.argv[1:] for line in m.requires(name) or ()), sep='\\n')";

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
#[derive(Clone, Copy, Debug)]
pub struct VirtualEnvSpec<'n> {
    pub requirements: &'n [String],
    /// Modules to install as packages.
    pub modules: &'n [InstalledModule],
    /// Modules that are available as source, and never installed.
    pub sources: &'n [ModuleCode],
    pub pip: &'n PipSettings,
}

impl<'n> From<&'n CodeSet> for VirtualEnvSpec<'n> {
    fn from(set: &'n CodeSet) -> Self {
        VirtualEnvSpec {
            requirements: &set.requirements,
            modules: &set.installed,
            sources: &set.modules,
            pip: &set.pip,
        }
    }
}

/// Returns the code of modules that are installed in a virtualenv.
pub fn installed_code(interpreter: &Interpreter, modules: &[InstalledModule]) -> Vec<ModuleCode> {
    let environment = interpreter.program.parent().and_then(Path::parent);
    let packages_dir = environment.unwrap_or(Path::new("/")).join("lib");
    let packages_dir =
        packages_dir.join(format!("python{}/site-packages/inmanta_plugins", interpreter.version));
    let code = |module: &InstalledModule| ModuleCode {
        name: module.name.clone(),
        package: format!("inmanta_plugins.{}", module.name),
        code: packages_dir.join(&module.name),
        root: packages_dir.join(&module.name),
        version: module.version.clone(),
    };
    modules.iter().map(code).collect()
}

/// Returns the package name of a module.
fn package_of(module: &str) -> String {
    format!("{MODULE_PREFIX}{}", package_name(module))
}

/// Returns the normalized package name of a requirement.
fn package_name(requirement: &str) -> String {
    let end = requirement.find(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c));
    let name = &requirement[..end.unwrap_or(requirement.len())];
    name.to_ascii_lowercase().replace(['_', '.'], "-")
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
            self.create(base, &own, needs)?;
        }
        touch(&path.join(COMPLETE)).map_err(failed)?;
        if self.confinement.is_some() {
            // Its content is untrusted, and must not run unconfined.
            return Ok(Interpreter { program: own.join("bin/python"), version: base.version });
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
            crate::pip::configure(&mut command, settings);
            return Ok(command);
        };
        let failed = |cause| VirtualEnvError::Io { path: path.to_owned(), cause };
        confinement.make_directory(path).map_err(failed)?;
        let mut confinement = confinement.clone().writable(path);
        for (name, value) in crate::pip::variables(settings) {
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
        hash.finalize().iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }

    fn create(
        &self,
        base: &Interpreter,
        path: &Path,
        needs: &VirtualEnvSpec<'_>,
    ) -> Result<(), VirtualEnvError> {
        let VirtualEnvSpec { requirements, modules, pip, .. } = *needs;
        tracing::info!(?requirements, ?modules, path = %path.display(), "creating a virtual environment");
        let mut venv = self.command(&base.program, path, pip)?;
        venv.args(["-m", "venv"]).arg(path);
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
        let mut pip = self.command(&path.join("bin/python"), path, settings)?;
        let quiet =
            ["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--quiet"];
        pip.args(quiet).args(options).args(&self.pip).args(crate::pip::arguments(settings));
        pip.arg("--").args(requirements);
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
            needs.sources.iter().map(|module| package_of(&module.name)).collect();
        let mut wanted: Vec<String> = Vec::new();
        for InstalledModule { name, version } in needs.modules {
            let package = package_of(name);
            wanted.push(format!("{package}=={version}"));
            known.insert(package);
        }
        let mut others = BTreeSet::new();
        while !wanted.is_empty() {
            self.install(path, &["--no-deps"], &wanted, needs.pip)?;
            let mut next = Vec::new();
            for line in self.required_by(path, &wanted)? {
                let name = package_name(&line);
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
        let names = packages.iter().map(|line| package_name(line));
        let settings = PipSettings::default();
        let mut command = self.command(&path.join("bin/python"), path, &settings)?;
        command.args(["-I", "-c", REQUIRED_BY]).args(names);
        let output = output(command)
            .map_err(|cause| VirtualEnvError::Io { path: path.to_owned(), cause })?;
        if !output.status.success() {
            return Err(VirtualEnvError::Command {
                what: "reading the requirements of installed packages",
                requirements: packages.to_vec(),
                output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }

    /// Removes unused virtualenvs. Returns their number.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn remove_unused(&self, unused_for: Duration, now: SystemTime) -> io::Result<usize> {
        let mut removed = 0;
        for entry in list(&self.dir)? {
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

/// Runs a command to its end and returns the end of its output, which may be unbounded. A command
/// past the time limit is killed.
fn output(mut command: Command) -> io::Result<Output> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let readers = [
        std::thread::spawn(move || out.map(last_bytes).unwrap_or_default()),
        std::thread::spawn(move || err.map(last_bytes).unwrap_or_default()),
    ];
    let until = Instant::now() + TIME_MAX;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= until {
            child.kill()?;
        }
        std::thread::sleep(POLL);
    };
    let [stdout, stderr] = readers.map(|reader| reader.join().unwrap_or_default());
    Ok(Output { status, stdout, stderr })
}

fn last_bytes(mut pipe: impl io::Read) -> Vec<u8> {
    let (mut kept, mut chunk) = (Vec::new(), [0; 8 << 10]);
    while let Ok(count @ 1..) = pipe.read(&mut chunk) {
        kept.extend_from_slice(&chunk[..count]);
        if kept.len() > 2 * OUTPUT_KEPT {
            kept.drain(..kept.len() - OUTPUT_KEPT);
        }
    }
    kept
}

/// Runs a command to its end; its output becomes part of the error.
fn run(
    what: &'static str,
    mut command: Command,
    path: &Path,
    requirements: &[String],
) -> Result<(), VirtualEnvError> {
    command.env_remove("PYTHONPATH");
    let output =
        output(command).map_err(|cause| VirtualEnvError::Io { path: path.to_owned(), cause })?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let output = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
    Err(VirtualEnvError::Command { what, requirements: requirements.to_vec(), output })
}

/// Returns the external requirements of the modules' code, sorted and unique.
pub fn requirements(modules: &[ModuleCode]) -> Vec<String> {
    let mut found = Vec::new();
    for module in modules {
        let read = |name: &str| std::fs::read_to_string(module.root.join(name)).unwrap_or_default();
        let listed = read("requirements.txt");
        let configured = read("setup.cfg");
        let listed = listed.lines().map(str::to_owned);
        let mut lines: Vec<String> = listed.chain(install_requires(&configured)).collect();
        if lines.is_empty() {
            // Without a file, the installed distribution's metadata is used.
            lines = crate::sources::distribution_requirements(module);
        }
        found.extend(lines.iter().filter_map(|line| requirement(line)));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Parses one line; `None` if it is not a requirement to install.
fn requirement(line: &str) -> Option<String> {
    let line = line.split(" #").next().unwrap_or(line).trim();
    // Options of pip concern the module's author, not its users.
    if line.is_empty() || line.starts_with(['#', '-']) {
        return None;
    }
    let name = line.to_ascii_lowercase().replace('_', "-");
    let own = OWN.iter().any(|own| name.starts_with(own)) || name == "inmanta";
    (!own).then(|| line.to_owned())
}

/// Returns the lines of `install_requires` in the section `options` of a `setup.cfg`.
fn install_requires(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut in_options, mut in_list) = (false, false);
    for line in text.lines() {
        if line.starts_with('[') {
            (in_options, in_list) = (line.trim() == "[options]", false);
        } else if in_options && !line.starts_with(char::is_whitespace) {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            in_list = name.trim() == "install_requires";
            if in_list {
                found.push(value.to_owned());
            }
        } else if in_list {
            found.push(line.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_found_and_our_own_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let listed = "# what it needs\npyyaml>=6 # for files\ninmanta-core\n--index x\n\njinja2\n";
        std::fs::write(dir.path().join("requirements.txt"), listed).unwrap();
        let configured = "[metadata]\nname = x\ninstall_requires = no\n[options]\ninstall_requires =\n  \
                          inmanta-module-std>=1\n  Jinja2 ~= 3.0\n  inmanta_core>1\nzip_safe = False\n";
        std::fs::write(dir.path().join("setup.cfg"), configured).unwrap();
        let module = ModuleCode {
            name: "m".into(),
            package: "inmanta_plugins.m".into(),
            code: dir.path().into(),
            root: dir.path().into(),
            version: "1".into(),
        };
        let twice = [module.clone(), module];
        assert_eq!(requirements(&twice), ["Jinja2 ~= 3.0", "jinja2", "pyyaml>=6"]);
    }
}
