//! Requirements of a project: its own and those of the modules that it uses from the module path.
//! This runs before the installation, so a missing module is not an error here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use orrery_model::PipSettings;
use orrery_syntax::Interner;
use orrery_syntax::ast::{FileId, Item};

use super::Search;
use crate::builtin;
use crate::error::Result;
use crate::pep440;
use crate::project::{Options, ProjectMetadata};

/// Maximum directory depth below a module's `model`.
const DEPTH_MAX: usize = 64;

/// Packages to install for a project.
#[derive(Debug, Default)]
pub struct ProjectRequirements {
    /// Required module packages as `name specifiers`, with the file that requires them.
    pub requirements: Vec<Requirement>,
    /// Directories of the used modules of the module path; they may hold a `requirements.txt`.
    pub module_dirs: Vec<PathBuf>,
    /// Imported modules that are neither in the module path nor built in.
    pub imported: Vec<String>,
    /// The project's installer settings.
    pub pip: PipSettings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// In the installer's syntax: `inmanta-module-fs>=1.2`.
    pub package: String,
    /// The file that requires it.
    pub source: PathBuf,
}

/// Prefix of module packages.
pub const PACKAGE_PREFIX: &str = "inmanta-module-";

/// The package of a module; a package name is returned unchanged.
pub fn package_of(module: &str) -> String {
    if module.starts_with(PACKAGE_PREFIX) {
        return module.to_owned();
    }
    format!("{PACKAGE_PREFIX}{}", module.replace('_', "-"))
}

/// Splits a requirement into the name and the rest: `fs >= 1.2` is `fs` and ` >= 1.2`.
///
/// # Errors
/// A description of the syntax error, with the position marked below the text.
pub fn split_requirement(text: &str) -> std::result::Result<(&str, &str), String> {
    pep440::check_requirement(text)?;
    let text = text.trim();
    let end =
        text.find(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c)).unwrap_or(text.len());
    Ok(text.split_at(end))
}

/// Advice for a module that was not found. The text must not lead users to install an unknown
/// package by name alone.
pub fn install_advice(files: &dyn crate::files::Files, project: &Path, name: &str) -> String {
    for place in ["..", "."] {
        let directory = project.join(place).join(name);
        if ["setup.cfg", "pyproject.toml"].iter().any(|one| files.is_file(&directory.join(one))) {
            return format!(
                "there is one in {place}/{name}: `orrery modules add {place}/{name}` uses it"
            );
        }
    }
    format!(
        "create it with `orrery modules new {name}`, or if it is published, install it with `orrery modules add {name}`"
    )
}

/// Reads the requirements of a project.
///
/// # Errors
/// A diagnostic, if metadata or a model cannot be read.
pub fn project_requirements(
    files: &dyn crate::files::Files,
    options: &Options,
) -> Result<ProjectRequirements> {
    let project = ProjectMetadata::load(files, &options.project_dir)?;
    let search = Search { files, options, environment: None };
    let mut collected =
        RequirementCollector { search, project: &project, result: ProjectRequirements::default() };
    let description = options.project_dir.join("project.yml");
    collected.add_requirements(&project.requires, &description)?;
    let mut imports = BTreeSet::new();
    let main = options.project_dir.join(&options.main_file);
    if files.is_file(&main) {
        collected.imports_of(&main, &mut imports);
    }
    // Modules required by name count as used.
    imports.extend(project.requires.iter().filter_map(|text| module_of(text)));
    collected.follow(imports)?;
    let mut result = collected.result;
    result.pip.clone_from(&project.pip);
    Ok(result)
}

/// The given modules that are found nowhere: not in the module path, built in, or in the
/// virtualenv.
///
/// # Errors
/// A diagnostic, if the project's metadata cannot be read.
pub fn missing(
    files: &dyn crate::files::Files,
    options: &Options,
    modules: &[String],
) -> Result<Vec<String>> {
    let project = ProjectMetadata::load(files, &options.project_dir)?;
    let search = Search::new(files, options);
    // A broken module is not missing; the compiler reports its errors.
    let is_missing = |name: &&String| matches!(search.locate(&project, name), Ok(None));
    Ok(modules.iter().filter(is_missing).cloned().collect())
}

/// The requirements of a module of the module path, by its directory; none if its metadata cannot
/// be read.
pub fn requires_of(files: &dyn crate::files::Files, module: &Path) -> Vec<String> {
    let name = module.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let options = Options::new("");
    let search = Search { files, options: &options, environment: None };
    search.in_module_path(name, module.to_owned()).map(|found| found.requires).unwrap_or_default()
}

/// The module name of a validated requirement.
fn module_of(requirement: &str) -> Option<String> {
    let (name, _) = split_requirement(requirement).ok()?;
    Some(name.strip_prefix(PACKAGE_PREFIX).unwrap_or(name).replace('-', "_"))
}

struct RequirementCollector<'f> {
    search: Search<'f>,
    project: &'f ProjectMetadata,
    result: ProjectRequirements,
}

impl RequirementCollector<'_> {
    /// Follows imports through the modules of the module path.
    fn follow(&mut self, imports: BTreeSet<String>) -> Result<()> {
        let mut pending: Vec<String> = imports.into_iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(name) = pending.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let Some(dir) = self.in_module_path(&name) else {
                if builtin::builtin_modules().iter().all(|module| module.name != name) {
                    self.result.imported.push(name);
                }
                continue;
            };
            let located = self.search.in_module_path(&name, dir.clone())?;
            self.add_requirements(&located.requires, &dir.join("module.yml"))?;
            let mut more = BTreeSet::new();
            more.extend(located.requires.iter().filter_map(|text| module_of(text)));
            self.imports_below(&dir.join("model"), 0, &mut more);
            self.result.module_dirs.push(dir);
            pending.extend(more);
        }
        self.result.imported.sort();
        self.result.module_dirs.sort();
        Ok(())
    }

    fn in_module_path(&self, name: &str) -> Option<PathBuf> {
        let places = self.project.module_path.iter().map(|base| base.join(name));
        places.into_iter().find(|dir| self.search.files.is_dir(dir))
    }

    /// Adds the requirements to install: not modules of the module path, and not built-in modules
    /// that take precedence over installed ones.
    fn add_requirements(&mut self, requirements: &[String], source: &Path) -> Result<()> {
        crate::load::check_requirements(requirements)?;
        for text in requirements {
            let Some(module) = module_of(text) else { continue };
            let inside = builtin::builtin_modules()
                .iter()
                .any(|builtin| builtin.name == module && !builtin.yields_to_installed);
            if inside || self.in_module_path(&module).is_some() {
                continue;
            }
            let Ok((name, rest)) = split_requirement(text) else { continue };
            let package = package_of(name) + rest;
            self.result.requirements.push(Requirement { package, source: source.to_owned() });
        }
        Ok(())
    }

    fn imports_below(&self, dir: &Path, depth: usize, imports: &mut BTreeSet<String>) {
        for name in self.search.files.list(dir).unwrap_or_default() {
            let path = dir.join(&name);
            if name.ends_with(".cf") {
                self.imports_of(&path, imports);
            } else if depth < DEPTH_MAX && self.search.files.is_dir(&path) {
                self.imports_below(&path, depth + 1, imports);
            }
        }
    }

    /// The modules that a file imports. The compiler reports files that cannot be read or parsed.
    fn imports_of(&self, path: &Path, imports: &mut BTreeSet<String>) {
        if !self.search.files.is_file(path) {
            return;
        }
        let Ok(bytes) = self.search.files.read(path) else { return };
        let Ok(text) = String::from_utf8(bytes) else { return };
        let mut interner = Interner::default();
        let parsed = orrery_syntax::parse_file(&text, FileId(0), &mut interner);
        for item in &parsed.file.items {
            let Item::Import(import) = item else { continue };
            let name = interner.text(import.path.symbol);
            imports.insert(name.split("::").next().unwrap_or(name).to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Memory;

    fn requirements_of(files: &[(&str, &str)]) -> Result<ProjectRequirements> {
        let mut memory = Memory::default();
        for (path, text) in files {
            memory.add(format!("p/{path}"), *text);
        }
        project_requirements(&memory, &Options::new("p"))
    }

    const MODULE: &str = "name: office\nversion: 1.0\nlicense: x\n";

    #[test]
    fn requirements_on_modules_become_packages() {
        let found = requirements_of(&[(
            "project.yml",
            "name: p\nrequires:\n  - my_shop >= 1.2\n  - inmanta-module-fs\n  - std\n  - exec~=2.0\n",
        )])
        .unwrap();
        let packages: Vec<&str> =
            found.requirements.iter().map(|wanted| wanted.package.as_str()).collect();
        assert_eq!(
            packages,
            ["inmanta-module-my-shop >= 1.2", "inmanta-module-fs", "inmanta-module-exec~=2.0"]
        );
        assert_eq!(found.requirements[0].source, Path::new("p/project.yml"));
    }

    #[test]
    fn modules_of_the_module_path_are_followed_by_their_imports() {
        let other = MODULE.replace("office", "other");
        let unused = MODULE.replace("office", "unused");
        let found = requirements_of(&[
            ("project.yml", "name: p\nmodulepath: libs\n"),
            ("main.cf", "import office::rooms\nimport fs\nimport std\n"),
            ("libs/office/module.yml", &format!("{MODULE}requires: [ssh >= 1, other]\n")),
            ("libs/office/model/_init.cf", ""),
            ("libs/office/model/deep/rooms.cf", "import other\nimport yum::a\n"),
            ("libs/other/module.yml", &other),
            ("libs/other/model/_init.cf", "import office\n"),
            ("libs/unused/module.yml", &format!("{unused}requires: [nowhere]\n")),
        ])
        .unwrap();
        assert_eq!(found.module_dirs, [Path::new("p/libs/office"), Path::new("p/libs/other")]);
        assert_eq!(found.imported, ["fs", "ssh", "yum"]);
        let packages: Vec<&str> =
            found.requirements.iter().map(|wanted| wanted.package.as_str()).collect();
        assert_eq!(packages, ["inmanta-module-ssh >= 1"]);
    }

    #[test]
    fn an_installed_module_is_not_missing() {
        let mut memory = Memory::default();
        memory.add("p/project.yml", "name: p\n");
        let package = "p/.venv/lib/python3.13/site-packages/inmanta_plugins/fs";
        memory.add(format!("{package}/__init__.py"), "");
        memory.add(
            format!("{package}/setup.cfg"),
            "[metadata]\nname = inmanta-module-fs\nversion = 1.2.0\nlicense = x\n",
        );
        memory.add(format!("{package}/model/_init.cf"), "");
        let names = ["fs", "std", "yum"].map(str::to_owned);
        assert_eq!(missing(&memory, &Options::new("p"), &names).unwrap(), ["yum"]);
    }

    #[test]
    fn an_invalid_requirement_is_reported() {
        let error =
            requirements_of(&[("project.yml", "name: p\nrequires: ['n >= ']\n")]).unwrap_err();
        assert!(error.text.starts_with("Expected semicolon"), "{}", error.text);
    }

    #[test]
    fn installer_settings_of_the_project_are_preserved() {
        let found = requirements_of(&[(
            "project.yml",
            "name: p\npip:\n  index-url: https://one.example/simple\n  extra_index_url: [https://two.example]\n  pre: yes\n",
        )])
        .unwrap();
        assert_eq!(found.pip.index_url.as_deref(), Some("https://one.example/simple"));
        assert_eq!(found.pip.extra_index_url, ["https://two.example"]);
        assert_eq!((found.pip.pre, found.pip.use_system_config), (Some(true), false));
    }
}
