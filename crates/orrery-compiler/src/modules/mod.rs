//! Finds modules: in the project's module path, among those inside the program, and in a Python
//! environment; and reads what they say about themselves.

mod description;
pub(crate) mod python;
#[cfg(test)]
mod tests;
pub mod wanted;

use std::path::{Component, Path, PathBuf};

use crate::builtin::{self, BuiltinModule};
use crate::error::{CompileError, Result};
use crate::files::{Files, Kind};
use crate::project::{Options, Project};
use description::Description;
use orrery_syntax::Explanation;

use python::{Environment, Package};

/// Where a module comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Below the project's module path, the classic layout.
    ModulePath,
    /// Installed in a Python environment.
    Python,
    /// Inside the program.
    Builtin,
}

#[derive(Clone, Debug)]
pub struct Module {
    pub name: String,
    /// The directory with `model/` in it.
    pub dir: PathBuf,
    pub origin: Origin,
    pub version: Option<String>,
    /// Where it has code in Python, which may define plugins, if it has any.
    pub code: Option<PathBuf>,
    /// Where its Python package is, also if there is nothing in it.
    pub package: Option<PathBuf>,
}

/// A module, and what is to be said about it once it is used.
pub(crate) struct Located {
    pub(crate) module: Module,
    pub(crate) warnings: Vec<(&'static str, String)>,
    /// Other modules that it wants, with versions.
    pub(crate) requires: Vec<String>,
}

/// Where to look.
pub(crate) struct Search<'f> {
    pub(crate) files: &'f dyn Files,
    pub(crate) options: &'f Options,
    pub(crate) environment: Option<Environment>,
}

const ADVICE: &str = "This occurs when you install or build modules from source incorrectly. Always use the \
    `inmanta module build` command followed by `pip install ./dist/<dist-package>` to respectively build a \
    module from source and install the distribution package. Make sure to uninstall the broken package first.";

impl<'f> Search<'f> {
    pub(crate) fn new(files: &'f dyn Files, options: &'f Options) -> Self {
        Search { files, options, environment: Environment::of(files, options) }
    }

    /// Finds a module by name. An installed one goes before one in the module path. What is inside
    /// the program stands for the installed one unless it gives way to it, and for one that is nowhere
    /// else; `std` is installed wherever the reference is.
    pub(crate) fn locate(&self, project: &Project, name: &str) -> Result<Option<Located>> {
        let in_path = project
            .module_path
            .iter()
            .map(|base| base.join(name))
            .find(|dir| self.files.kind(dir).is_ok());
        let package = self.environment.as_ref().and_then(|found| found.find(self.files, name));
        let builtin = builtin::builtin_modules().iter().find(|module| module.name == name);
        let is_installed = package.is_some() || name == "std" && builtin.is_some();
        let mut located = match (builtin, package, &in_path) {
            (_, _, Some(dir)) if !is_installed => self.in_module_path(name, dir.clone())?,
            (Some(builtin), package, _) if !self.yields(builtin, package.as_ref()) => {
                located_inside(builtin, package)
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

    /// Whether an installed package takes the place of a module of the program: one that wants to, or one of the
    /// generation before, which has other types and resources.
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

    fn in_module_path(&self, name: &str, dir: PathBuf) -> Result<Located> {
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

    fn installed(&self, name: &str, package: Package) -> Result<Located> {
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
    ) -> Located {
        if described.deprecated {
            let text = format!("Module {} has been deprecated", described.name);
            warnings.push(("ModuleDeprecationWarning", text));
        }
        Located {
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
        shown(self.options, path)
    }

    /// The file of a namespace: below the module's `model`, `a/b/_init.cf` if that directory exists
    /// and `a/b.cf` if not. `relative` is `a/b`; empty for the module itself.
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

    /// Reads a model file, wherever its module lies.
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

/// A module inside the program.
/// A module of the program. The code of an installed one of that name is for other modules that import it.
fn located_inside(builtin: &BuiltinModule, installed: Option<Package>) -> Located {
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
    Located { module, warnings: Vec::new(), requires: Vec::new() }
}

/// The Python environment in which modules are looked for, if there is anything of Python in it.
pub(crate) fn environment(files: &dyn Files, options: &Options) -> Option<PathBuf> {
    Environment::of(files, options).filter(Environment::exists).map(|found| found.dir)
}

/// A path as messages show it: relative to the project where it lies inside.
pub fn shown(options: &Options, path: &Path) -> String {
    match path.strip_prefix(&options.project_dir) {
        Ok(inside) => format!("./{}", inside.display()),
        Err(_) => path.display().to_string(),
    }
}

/// Joins a path of a description to the project's directory, without `.` and `..` where they can be
/// resolved without asking the file system.
pub(crate) fn join_plainly(base: &Path, path: &str) -> PathBuf {
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
