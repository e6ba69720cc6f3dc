//! Virtual environments for handlers: one for each set of requirements and version of Python, made when it is first
//! needed, shared by all who need the same, and removed when nobody has for a while.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use orrery_sandbox::Confinement;
use sha2::{Digest, Sha256};

use crate::code::{CodeSet, InstalledModule, list, touch};
use crate::pip::PipSettings;
use crate::python::{Interpreter, PythonError};
use crate::session::ModuleCode;

/// Written last: where it is, everything is installed. Its time says when the environment was last used.
const COMPLETE: &str = "complete";
/// The environment itself, below its name.
const CONTENT: &str = "env";
/// Bytes of the hash that are kept.
const HASH_BYTES: usize = 16;
/// Bytes of output of pip that are kept.
const OUTPUT_KEPT: usize = 256 << 10;
/// An installation may take so long.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// Between two looks whether a command has ended.
const POLL: Duration = Duration::from_millis(5);
/// Lines of pip that an error shows.
const LINES_SHOWN: usize = 20;
/// What the SDK itself stands for.
const CORE: &str = "inmanta-core";
const MODULE_PREFIX: &str = "inmanta-module-";
/// That, and code that comes as code: not installed because a module asks for it.
const OWN: [&str; 2] = [CORE, MODULE_PREFIX];
/// Writes what packages require, one a line.
const REQUIRED_BY: &str = "import importlib.metadata as m, sys\n\
     print(*(line for name in sys.argv[1:] for line in m.requires(name) or ()), sep='\\n')";

#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("the virtual environment {} cannot be made: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("{what} failed for the requirements {}:\n{output}", requirements.join(", "))]
    Command { what: &'static str, requirements: Vec<String>, output: String },
    #[error(transparent)]
    Python(#[from] PythonError),
}

/// What code needs of an environment.
#[derive(Clone, Copy, Debug)]
pub struct Needs<'n> {
    pub requirements: &'n [String],
    /// Modules that are installed as packages.
    pub modules: &'n [InstalledModule],
    /// Modules that are there as source, and are not installed whoever requires them.
    pub sources: &'n [ModuleCode],
    pub pip: &'n PipSettings,
}

impl<'n> From<&'n CodeSet> for Needs<'n> {
    fn from(set: &'n CodeSet) -> Self {
        Needs {
            requirements: &set.requirements,
            modules: &set.installed,
            sources: &set.modules,
            pip: &set.pip,
        }
    }
}

/// The code of modules that are installed in an environment.
pub fn installed_code(interpreter: &Interpreter, modules: &[InstalledModule]) -> Vec<ModuleCode> {
    let environment = interpreter.program.parent().and_then(Path::parent);
    let place = environment.unwrap_or(Path::new("/")).join("lib");
    let place = place.join(format!("python{}/site-packages/inmanta_plugins", interpreter.version));
    let code = |module: &InstalledModule| ModuleCode {
        name: module.name.clone(),
        package: format!("inmanta_plugins.{}", module.name),
        code: place.join(&module.name),
        root: place.join(&module.name),
        version: module.version.clone(),
    };
    modules.iter().map(code).collect()
}

/// The package of a module.
fn package_of(module: &str) -> String {
    format!("{MODULE_PREFIX}{}", package_name(module))
}

/// The name in a requirement, as names are compared.
fn package_name(requirement: &str) -> String {
    let end = requirement.find(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c));
    let name = &requirement[..end.unwrap_or(requirement.len())];
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

/// Where environments are kept.
#[derive(Clone, Debug)]
pub struct Environments {
    dir: PathBuf,
    /// Further arguments of `pip install`: an index, a directory of packages.
    pip: Vec<String>,
    /// Keeps pip, and the code that it runs, away from everything but the environment it makes.
    confinement: Option<Confinement>,
}

impl Environments {
    pub fn new(dir: PathBuf, pip: Vec<String>) -> Self {
        Environments { dir, pip, confinement: None }
    }

    /// The same where packages are code of others: it is run in a sandbox that can write nothing but the new environment.
    #[must_use]
    pub fn confined(self, confinement: Option<Confinement>) -> Self {
        Environments { confinement, ..self }
    }

    /// An interpreter that has what is needed: `base` itself if nothing is.
    ///
    /// # Errors
    /// If the environment cannot be made.
    pub fn interpreter(
        &self,
        base: &Interpreter,
        needs: &Needs<'_>,
    ) -> Result<Interpreter, EnvironmentError> {
        if needs.requirements.is_empty() && needs.modules.is_empty() {
            return Ok(base.clone());
        }
        let path = self.dir.join(self.key(base, needs));
        let failed = |cause| EnvironmentError::Io { path: path.clone(), cause };
        std::fs::create_dir_all(&self.dir).map_err(failed)?;
        // Whoever comes second waits, and finds it ready. A process that dies frees the lock.
        let lock = File::create(path.with_extension("lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        // What is noted of an environment lies beside it, where packages cannot write.
        let own = path.join(CONTENT);
        if !path.join(COMPLETE).is_file() || !own.is_dir() {
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
            std::fs::create_dir_all(&path).map_err(failed)?;
            self.make(base, &own, needs)?;
        }
        touch(&path.join(COMPLETE)).map_err(failed)?;
        if self.confinement.is_some() {
            // What lies in it is not to be believed, and not to be run here.
            return Ok(Interpreter { program: own.join("bin/python"), version: base.version });
        }
        Ok(Interpreter::find(Some(&own))?)
    }

    /// A command for the environment at a path.
    fn command(
        &self,
        program: &Path,
        path: &Path,
        settings: &PipSettings,
    ) -> Result<Command, EnvironmentError> {
        let Some(confinement) = &self.confinement else {
            let mut command = Command::new(program);
            crate::pip::configure(&mut command, settings);
            return Ok(command);
        };
        let failed = |cause| EnvironmentError::Io { path: path.to_owned(), cause };
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

    fn key(&self, base: &Interpreter, needs: &Needs<'_>) -> String {
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

    fn make(
        &self,
        base: &Interpreter,
        path: &Path,
        needs: &Needs<'_>,
    ) -> Result<(), EnvironmentError> {
        let Needs { requirements, modules, pip, .. } = *needs;
        tracing::info!(?requirements, ?modules, path = %path.display(), "a virtual environment is made");
        let mut venv = self.command(&base.program, path, pip)?;
        venv.args(["-m", "venv"]).arg(path);
        run("making a virtual environment", venv, path, requirements)?;
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
    ) -> Result<(), EnvironmentError> {
        let mut pip = self.command(&path.join("bin/python"), path, settings)?;
        let quiet =
            ["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--quiet"];
        pip.args(quiet).args(options).args(&self.pip).args(crate::pip::arguments(settings));
        pip.arg("--").args(requirements);
        run("pip install", pip, path, requirements)
    }

    /// Installs modules, and the modules that they need in turn, each by itself: all of them ask for the package that the SDK
    /// stands for, which must not come in. Answers what else they need.
    fn install_modules(
        &self,
        path: &Path,
        needs: &Needs<'_>,
    ) -> Result<Vec<String>, EnvironmentError> {
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

    /// What installed packages require, as they say themselves. pip leaves out what is for other machines.
    fn required_by(
        &self,
        path: &Path,
        packages: &[String],
    ) -> Result<Vec<String>, EnvironmentError> {
        let names = packages.iter().map(|line| package_name(line));
        let settings = PipSettings::default();
        let mut command = self.command(&path.join("bin/python"), path, &settings)?;
        command.args(["-I", "-c", REQUIRED_BY]).args(names);
        let output = output(command)
            .map_err(|cause| EnvironmentError::Io { path: path.to_owned(), cause })?;
        if !output.status.success() {
            return Err(EnvironmentError::Command {
                what: "looking at what was installed",
                requirements: packages.to_vec(),
                output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }

    /// Removes environments that were not used for a while. Gives how many.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn clean(&self, unused_for: Duration, now: SystemTime) -> io::Result<usize> {
        let mut removed = 0;
        for entry in list(&self.dir)? {
            let path = entry.path();
            let used = std::fs::metadata(path.join(COMPLETE)).or_else(|_| entry.metadata());
            let used = used.and_then(|used| used.modified());
            if !used.is_ok_and(|used| now.duration_since(used).is_ok_and(|ago| ago > unused_for)) {
                continue;
            }
            // Somebody may be making it at this moment.
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

/// Runs a command to its end, and keeps the end of what it says: packages may print without one. A command that takes too long is ended.
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

/// Runs a command to its end; what it says is for the error.
fn run(
    what: &'static str,
    mut command: Command,
    path: &Path,
    requirements: &[String],
) -> Result<(), EnvironmentError> {
    command.env_remove("PYTHONPATH");
    let output =
        output(command).map_err(|cause| EnvironmentError::Io { path: path.to_owned(), cause })?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let output = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
    Err(EnvironmentError::Command { what, requirements: requirements.to_vec(), output })
}

/// What the code of modules needs from elsewhere: sorted, each once.
pub fn requirements(modules: &[ModuleCode]) -> Vec<String> {
    let mut found = Vec::new();
    for module in modules {
        let read = |name: &str| std::fs::read_to_string(module.root.join(name)).unwrap_or_default();
        let listed = read("requirements.txt");
        let configured = read("setup.cfg");
        let listed = listed.lines().map(str::to_owned);
        let mut lines: Vec<String> = listed.chain(install_requires(&configured)).collect();
        if lines.is_empty() {
            // Its author may say so elsewhere; then the installed distribution knows.
            lines = crate::sources::distribution_requirements(module);
        }
        found.extend(lines.iter().filter_map(|line| requirement(line)));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// One requirement, if the line is one that is to be installed.
fn requirement(line: &str) -> Option<String> {
    let line = line.split(" #").next().unwrap_or(line).trim();
    // Options of pip are for whoever wrote the file, not for everybody who uses the module.
    if line.is_empty() || line.starts_with(['#', '-']) {
        return None;
    }
    let name = line.to_ascii_lowercase().replace('_', "-");
    let own = OWN.iter().any(|own| name.starts_with(own)) || name == "inmanta";
    (!own).then(|| line.to_owned())
}

/// The lines of `install_requires` in the section `options` of a `setup.cfg`.
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
