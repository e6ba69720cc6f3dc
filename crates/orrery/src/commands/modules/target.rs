//! Target of an installation: a project, or a module under development.

use std::path::{Path, PathBuf};

use orrery_compiler::error::CompileError;
use orrery_compiler::files::Disk;
use orrery_compiler::modules::requirements::{self, PACKAGE_PREFIX};
use orrery_compiler::project::Options;

use crate::cli::modules::InstallOptions;
use orrery_pyenv::InstallRequest;
use orrery_pyenv::package_names::normalize;

/// Requirements file of projects and of modules in the module path.
pub(super) const REQUIREMENTS: &str = "requirements.txt";
/// Development requirements of a module.
const DEVELOPMENT: &str = "requirements.dev.txt";

pub(super) struct Target {
    pub(super) directory: PathBuf,
    pub(super) request: InstallRequest,
    /// Imported modules of a project.
    pub(super) imported: Vec<String>,
    pub(super) options: Option<Options>,
    /// Directories of used modules in the module path.
    module_dirs: Vec<PathBuf>,
}

impl Target {
    /// Finds the project or module and reads its requirements.
    pub(super) fn find(given: &InstallOptions) -> Result<Self, Box<CompileError>> {
        let module = match &given.project {
            Some(dir) => Some(dir.clone()).filter(|dir| is_module(dir)),
            None => module_around_here(),
        };
        match module {
            Some(directory) => Ok(Self::module(absolute(&directory), given)),
            None => Self::project(given),
        }
    }

    fn project(given: &InstallOptions) -> Result<Self, Box<CompileError>> {
        let directory =
            absolute(&orrery_project::find_directory(given.project.as_deref(), &given.main)?);
        let mut options = Options::new(&directory);
        options.main_file.clone_from(&given.main);
        let found = requirements::project_requirements(&Disk, &options)?;
        let places = std::iter::once(&directory).chain(&found.module_dirs);
        let files = places.map(|dir| dir.join(REQUIREMENTS)).filter(|path| path.is_file());
        let request = InstallRequest {
            files: files.collect(),
            requirements: found.requirements.into_iter().map(|one| one.package).collect(),
            pip: found.pip,
            ..Self::request(&directory, given)
        };
        options.python_environment = Some(request.environment.clone());
        let (imported, module_dirs) = (found.imported, found.module_dirs);
        Ok(Target { directory, request, imported, options: Some(options), module_dirs })
    }

    fn module(directory: PathBuf, given: &InstallOptions) -> Self {
        let development = directory.join(DEVELOPMENT);
        let request = InstallRequest {
            files: Some(development).filter(|path| path.is_file()).into_iter().collect(),
            requirements: vec!["pytest".into()],
            editable: Some(directory.clone()),
            ..Self::request(&directory, given)
        };
        let (imported, module_dirs) = (Vec::new(), Vec::new());
        Target { directory, request, imported, options: None, module_dirs }
    }

    fn request(directory: &Path, given: &InstallOptions) -> InstallRequest {
        InstallRequest {
            directory: directory.to_owned(),
            environment: orrery_pyenv::environment_path(directory, given.python_env.as_deref()),
            python: given.python.clone(),
            ..InstallRequest::default()
        }
    }

    /// Imported modules that were not found, after the installation.
    pub(super) fn missing(&self) -> Vec<String> {
        let found = self
            .options
            .as_ref()
            .map(|options| requirements::missing(&Disk, options, &self.imported));
        found.and_then(Result::ok).unwrap_or_default()
    }

    /// True if there are requirements, or a virtualenv exists.
    pub(super) fn needs_environment(&self) -> bool {
        let InstallRequest { files, requirements, environment, .. } = &self.request;
        self.is_module()
            || !files.is_empty()
            || !requirements.is_empty()
            || orrery_pyenv::is_environment(environment)
    }

    /// True if the module of a package is in the module path.
    pub(super) fn has_clone_of(&self, package: &str) -> bool {
        let module = package.strip_prefix(PACKAGE_PREFIX).unwrap_or(package).replace('-', "_");
        let is_it = |path: &PathBuf| path.file_name().is_some_and(|name| *name == *module);
        self.module_dirs.iter().any(is_it)
    }

    /// Package of a name on the command line: that of a module, or else another locked package.
    pub(super) fn package_named(&self, package: &str, name: &str) -> String {
        let lock = self.request.locking.as_ref().and_then(|locking| locking.lock.as_ref());
        let is_locked = |name: &str| lock.is_some_and(|lock| lock.package(name).is_some());
        let (package, plain) = (normalize(package), normalize(name));
        if !is_locked(&package) && is_locked(&plain) { plain } else { package }
    }

    pub(super) fn is_module(&self) -> bool {
        self.options.is_none()
    }
}

/// Absolute path for pip, which runs in the project directory.
pub(super) fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// True if a directory is a packaged module.
fn is_module(dir: &Path) -> bool {
    let text = std::fs::read_to_string(dir.join("setup.cfg")).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split_once('='));
    let mut names = names.filter(|(key, _)| key.trim() == "name").map(|(_, name)| name.trim());
    !dir.join("project.yml").is_file() && names.any(|name| name.starts_with(PACKAGE_PREFIX))
}

/// Nearest parent directory with a module, unless a project is nearer.
fn module_around_here() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let nearest =
        here.ancestors().find(|dir| is_module(dir) || dir.join("project.yml").is_file())?;
    is_module(nearest).then(|| nearest.to_owned())
}
