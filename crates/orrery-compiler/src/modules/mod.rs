//! Module lookup: in the project's module path, among built-in modules, and in a virtualenv; reads
//! their metadata.

mod metadata;
pub(crate) mod python;
pub mod requirements;
#[cfg(test)]
mod tests;

use std::path::{Component, Path, PathBuf};

use crate::builtin::{self, BuiltinModule};
use crate::error::{CompileError, Result};
use crate::files::{Files, Kind};
use crate::project::{Options, ProjectMetadata};
use metadata::Description;
use orrery_syntax::Explanation;

use python::{Package, Virtualenv};

/// Origin of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Below the project's module path, the classic layout.
    ModulePath,
    /// Installed in a virtualenv.
    Python,
    /// Built into the program.
    Builtin,
}

#[derive(Clone, Debug)]
pub struct Module {
    pub name: String,
    /// The directory that contains `model/`.
    pub dir: PathBuf,
    pub origin: Origin,
    pub version: Option<String>,
    /// Directory of its Python code, which may define plugins, if any.
    pub code: Option<PathBuf>,
    /// Directory of its Python package, even if that is empty.
    pub package: Option<PathBuf>,
}

/// A module with its warnings and requirements.
pub(crate) struct LocatedModule {
    pub(crate) module: Module,
    pub(crate) warnings: Vec<(&'static str, String)>,
    /// Required modules, with version specifiers.
    pub(crate) requires: Vec<String>,
}

/// Locations to search.
pub(crate) struct Search<'f> {
    pub(crate) files: &'f dyn Files,
    pub(crate) options: &'f Options,
    pub(crate) environment: Option<Virtualenv>,
}

const ADVICE: &str = "This occurs when you install or build modules from source incorrectly. Always use the \
    `inmanta module build` command followed by `pip install ./dist/<dist-package>` to respectively build a \
    module from source and install the distribution package. Make sure to uninstall the broken package first.";

impl<'f> Search<'f> {
    pub(crate) fn new(files: &'f dyn Files, options: &'f Options) -> Self {
        Search { files, options, environment: Virtualenv::find(files, options) }
    }

    /// Finds a module by name. An installed one takes precedence over one in the module path. A
    /// built-in one replaces the installed one unless it yields to it, and serves as fallback;
    /// `std` is installed wherever the reference compiler is.
    pub(crate) fn locate(
        &self,
        project: &ProjectMetadata,
        name: &str,
    ) -> Result<Option<LocatedModule>> {
        let in_path = project
            .module_path
            .iter()
            .map(|base| base.join(name))
            .find(|dir| self.files.kind(dir).is_ok());
        let package =
            self.environment.as_ref().and_then(|found| found.find_package(self.files, name));
        let builtin = builtin::builtin_modules().iter().find(|module| module.name == name);
        let is_installed = package.is_some() || name == "std" && builtin.is_some();
        let mut located = match (builtin, package, &in_path) {
            (_, _, Some(dir)) if !is_installed => self.in_module_path(name, dir.clone())?,
            (Some(builtin), package, _) if !self.yields(builtin, package.as_ref()) => {
                locate_builtin(builtin, package)
            }
            (_, Some(package), _) => self.installed(name, package)?,
            (_, None, _) => return Ok(None),
        };
        if is_installed && in_path.is_some() {
            let text = format!(
                "Module {name} is installed as a V1 module and a V2 module: V1 will be ignored."
            );
            located.warnings.insert(0, ("", text));
        }
        Ok(Some(located))
    }

    /// True if an installed package replaces a built-in module: a module that yields, or a package
    /// of the previous generation, which has other types and resources.
    fn yields(&self, builtin: &BuiltinModule, package: Option<&Package>) -> bool {
        let Some(Package::Complete { root, .. }) = package else {
            return package.is_some() && builtin.yields_to_installed;
        };
        if builtin.yields_to_installed {
            return true;
        }
        let metadata = root.join("setup.cfg");
        let described = Description::of_package(self.files, &metadata, &self.show(&metadata));
        let major = described.ok().and_then(|of| of.version.split('.').next()?.parse().ok());
        major.is_some_and(|major: u32| major < builtin.oldest_major)
    }

    fn in_module_path(&self, name: &str, dir: PathBuf) -> Result<LocatedModule> {
        let shown = self.show(&dir);
        let metadata = dir.join("module.yml");
        if self.files.kind(&metadata).is_err() {
            return Err(if self.files.kind(&dir.join("setup.cfg")).is_ok() {
                let text = format!(
                    "Module at {shown} looks like a v2 module. Please have a look at the documentation on how to use v2 modules."
                );
                CompileError::new("ModuleV2InV1PathException", text).help(
                    "install it into the Python environment, or give it a module.yml and no setup.cfg",
                )
            } else {
                let text = format!("Metadata file {} does not exist", self.show(&metadata));
                CompileError::new("ModuleMetadataFileNotFound", text)
            });
        }
        let described = Description::of_module_path(self.files, &metadata, &self.show(&metadata));
        let described = described.map_err(|unusable| unusable.of_module_path(name, &shown))?;
        let mut warnings = Vec::new();
        if described.name != name {
            let text = format!(
                "The name in the module file ({}) does not match the directory name ({name})",
                described.name
            );
            warnings.push(("", text));
        }
        let text = format!(
            "Loaded V1 module {}. The use of V1 modules is deprecated. Use the equivalent V2 module instead.",
            described.name
        );
        warnings.push(("InmantaWarning", text));
        let code = Some(dir.join("plugins")).filter(|code| self.files.is_dir(code));
        let package = code.clone();
        Ok(self.located(name, dir, Origin::ModulePath, described, warnings, (code, package)))
    }

    fn installed(&self, name: &str, package: Package) -> Result<LocatedModule> {
        let invalid = |text: String| {
            let headline = text.replace(ADVICE, "");
            let explanation = Explanation::new(format!(
                "module `{name}` is installed incompletely: {}",
                headline.trim_end()
            ));
            let explanation = explanation.help(
                "uninstall the package, and install it again: `orrery modules add` takes a \
                 directory or a published name",
            );
            let error = CompileError::new("InvalidModuleException", text);
            Err(error.explained(explanation))
        };
        let (root, code) = match package {
            Package::Complete { root, code } => (root, code),
            Package::WithoutCode => {
                return invalid(format!(
                    "Package inmanta_plugins.{name} was installed but no __init__.py file could be found."
                ));
            }
            Package::WithoutMetadata { dir } => {
                return invalid(format!(
                    "Invalid module at {}: found module package but it has no setup.cfg. {ADVICE}",
                    self.show(&dir)
                ));
            }
        };
        if self.files.kind(&root.join("model/_init.cf")).is_err() {
            let shown = self.show(&root);
            return invalid(format!("The module at {shown} contains no _init.cf file. {ADVICE}"));
        }
        let metadata = root.join("setup.cfg");
        let described = Description::of_package(self.files, &metadata, &self.show(&metadata));
        let described = described.map_err(|unusable| unusable.of_package(name))?;
        if described.name != name {
            let text = format!(
                "The package at {} is module {}, by the name in its setup.cfg, but it is installed as inmanta_plugins.{name}",
                self.show(&root),
                described.name
            );
            return invalid(text);
        }
        let package = Some(code);
        let code = package.clone().filter(|code| python::has_code(self.files, code));
        Ok(self.located(name, root, Origin::Python, described, Vec::new(), (code, package)))
    }

    fn located(
        &self,
        name: &str,
        dir: PathBuf,
        origin: Origin,
        described: Description,
        mut warnings: Vec<(&'static str, String)>,
        (code, package): (Option<PathBuf>, Option<PathBuf>),
    ) -> LocatedModule {
        if described.deprecated {
            let text = format!("Module {} has been deprecated", described.name);
            warnings.push(("ModuleDeprecationWarning", text));
        }
        LocatedModule {
            module: Module {
                name: name.into(),
                dir,
                origin,
                version: Some(described.version),
                code,
                package,
            },
            warnings,
            requires: described.requires,
        }
    }

    pub(crate) fn show(&self, path: &Path) -> String {
        display_path(self.options, path)
    }

    /// The file of a namespace below the module's `model`: `a/b/_init.cf` if that directory exists,
    /// otherwise `a/b.cf`. `relative` is `a/b`; empty for the module itself.
    pub(crate) fn model_file(&self, module: &Module, relative: &str) -> PathBuf {
        let model = module.dir.join("model");
        if relative.is_empty() {
            return model.join("_init.cf");
        }
        let directory = model.join(relative);
        let is_directory = match module.origin {
            Origin::Builtin => {
                builtin::find(&module.name, &format!("model/{relative}/_init.cf")).is_some()
            }
            _ => self.files.is_dir(&directory),
        };
        if is_directory { directory.join("_init.cf") } else { model.join(format!("{relative}.cf")) }
    }

    /// Reads a model file of any module.
    pub(crate) fn read_model(&self, module: &Module, path: &Path) -> std::io::Result<Vec<u8>> {
        if module.origin == Origin::Builtin {
            let inside = path.strip_prefix(&module.dir).unwrap_or(path);
            let text = builtin::find(&module.name, &inside.to_string_lossy());
            return text
                .map(|text| text.as_bytes().to_vec())
                .ok_or(std::io::ErrorKind::NotFound.into());
        }
        match self.files.kind(path)? {
            Kind::File => self.files.read(path),
            Kind::Directory => Err(std::io::ErrorKind::IsADirectory.into()),
            Kind::Other => Err(std::io::Error::other("it is no regular file")),
        }
    }
}

/// A built-in module. The code of an installed one of that name is for other modules that import
/// it.
fn locate_builtin(builtin: &BuiltinModule, installed: Option<Package>) -> LocatedModule {
    let code = match installed {
        Some(Package::Complete { code, .. }) => Some(code),
        _ => None,
    };
    let module = Module {
        name: builtin.name.into(),
        dir: PathBuf::from(format!("<builtin>/{}", builtin.name)),
        origin: Origin::Builtin,
        version: Some(builtin.version.into()),
        package: code.clone(),
        code,
    };
    LocatedModule { module, warnings: Vec::new(), requires: Vec::new() }
}

/// The virtualenv to search for modules, if it contains Python packages.
pub(crate) fn environment(files: &dyn Files, options: &Options) -> Option<PathBuf> {
    Virtualenv::find(files, options).filter(Virtualenv::exists).map(|found| found.dir)
}

/// The display form of a path: relative to the project if it is inside.
pub fn display_path(options: &Options, path: &Path) -> String {
    match path.strip_prefix(&options.project_dir) {
        Ok(inside) => format!("./{}", inside.display()),
        Err(_) => path.display().to_string(),
    }
}

/// Joins a metadata path to the project's directory and resolves `.` and `..` where that needs no
/// file system access.
pub(crate) fn join_normalized(base: &Path, path: &str) -> PathBuf {
    let mut joined = base.to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if joined != base && joined.file_name().is_some() => {
                joined.pop();
            }
            other => joined.push(other),
        }
    }
    joined
}
