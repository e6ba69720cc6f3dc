//! Source files of modules: their packages, and other packages of their distributions.
//!
//! A v2 module is a distribution, which may have more top-level packages than the one below
//! `inmanta_plugins`: code of `inmanta-module-mitogen` imports `inmanta_mitogen`. All of them are
//! copied, together with the metadata of the distribution, so that `importlib.metadata` works where
//! the code runs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use orrery_pyenv::interpreters::Interpreter;
use orrery_pyenv::{InstalledModule, external_requirements, installed_module};

use crate::handshake::ModuleCode;

/// Directory of a set for code outside the modules' packages; it is part of the search path.
pub(crate) const COMPANIONS: &str = "packages";
/// Namespace package of the modules.
const NAMESPACE: &str = "inmanta_plugins";
/// Size limits of the code of a module.
const PACKAGE_BYTES_MAX: u64 = 256 << 20;
pub(crate) const PACKAGE_FILES_MAX: usize = 20_000;
const DEPTH_MAX: usize = 32;
/// Directories of a source tree that look like packages but are not installed.
const NOT_INSTALLED: [&str; 7] =
    ["build", "dist", "docs", "examples", "node_modules", "test", "tests"];

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("the code of the module {module} cannot be copied: {}: {cause}", path.display())]
    Read { module: String, path: PathBuf, cause: io::Error },
    #[error("the code of the module {module} has more than {PACKAGE_FILES_MAX} files or {PACKAGE_BYTES_MAX} bytes, in {}", path.display())]
    TooLarge { module: String, path: PathBuf },
}

/// Returns the files of all modules, by their paths in a set.
pub(crate) fn collect(modules: &[ModuleCode]) -> Result<BTreeMap<String, PathBuf>, SourceError> {
    let mut all = BTreeMap::new();
    for module in modules {
        let mut package = Package { module, files: BTreeMap::new(), bytes: 0 };
        package.walk(&module.code, &package_path(module))?;
        package.add_companions()?;
        all.extend(package.files);
    }
    Ok(all)
}

/// Returns the path of a module's package in a set: `inmanta_plugins/fs`.
pub(crate) fn package_path(module: &ModuleCode) -> PathBuf {
    // Module names are identifiers; other parts must not lead out of the set.
    module.package.split('.').filter(|part| !part.is_empty() && !part.contains('/')).collect()
}

/// Returns the requirements in the metadata of an installed module's distribution.
fn distribution_requirements(module: &ModuleCode) -> Vec<String> {
    let info = site_of(module).and_then(|site| distribution(module, site));
    let text = info.and_then(|info| std::fs::read_to_string(info.join("METADATA")).ok());
    let text = text.unwrap_or_default();
    // The description follows an empty line.
    let header = text.lines().take_while(|line| !line.is_empty());
    let required = header.filter_map(|line| line.strip_prefix("Requires-Dist:"));
    required.map(|line| line.trim().to_owned()).filter(|line| !line.contains("extra ==")).collect()
}

/// Returns the external requirements of the modules' code, sorted and unique.
pub fn requirements(modules: &[ModuleCode]) -> Vec<String> {
    let external = |module: &ModuleCode| {
        // Without a file, the installed distribution's metadata is used.
        external_requirements(&module.root, || distribution_requirements(module)).collect()
    };
    let mut found: Vec<String> = modules.iter().flat_map::<Vec<_>, _>(external).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the code of modules that are installed in a virtualenv.
pub fn installed_code(interpreter: &Interpreter, modules: &[InstalledModule]) -> Vec<ModuleCode> {
    let code = |InstalledModule { name, version }: &InstalledModule| {
        let dir = installed_module(interpreter, name);
        ModuleCode {
            name: name.clone(),
            package: format!("{NAMESPACE}.{name}"),
            code: dir.clone(),
            root: dir,
            version: version.clone(),
        }
    };
    modules.iter().map(code).collect()
}

/// A module during the collection of its files.
struct Package<'m> {
    module: &'m ModuleCode,
    files: BTreeMap<String, PathBuf>,
    bytes: u64,
}

impl Package<'_> {
    fn failed(&self, path: &Path, cause: io::Error) -> SourceError {
        SourceError::Read { module: self.module.name.clone(), path: path.to_owned(), cause }
    }

    fn walk(&mut self, dir: &Path, prefix: &Path) -> Result<(), SourceError> {
        for entry in std::fs::read_dir(dir).map_err(|cause| self.failed(dir, cause))? {
            let entry = entry.map_err(|cause| self.failed(dir, cause))?;
            let (path, name) = (entry.path(), entry.file_name());
            let Some(name) = name.to_str() else { continue };
            if name.starts_with('.') || name == "__pycache__" || name.ends_with(".pyc") {
                continue;
            }
            let below = prefix.join(name);
            // Links are followed, as an import does.
            let found = std::fs::metadata(&path).map_err(|cause| self.failed(&path, cause))?;
            if !found.is_dir() {
                self.add(&below, path, found.len())?;
            } else if below.components().count() <= DEPTH_MAX {
                self.walk(&path, &below)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &Path, path: PathBuf, bytes: u64) -> Result<(), SourceError> {
        self.bytes += bytes;
        if self.bytes > PACKAGE_BYTES_MAX || self.files.len() >= PACKAGE_FILES_MAX {
            let path = self.module.code.clone();
            return Err(SourceError::TooLarge { module: self.module.name.clone(), path });
        }
        self.files.insert(name.to_string_lossy().into_owned(), path);
        Ok(())
    }

    /// Adds the packages of the module's distribution outside the namespace.
    fn add_companions(&mut self) -> Result<(), SourceError> {
        let Some(site) = site_of(self.module) else { return Ok(()) };
        if let Some(info) = distribution(self.module, site) {
            let path = info.join("RECORD");
            let record =
                std::fs::read_to_string(&path).map_err(|cause| self.failed(&path, cause))?;
            for name in record.lines().filter_map(recorded_path).filter(|name| is_companion(name)) {
                let path = site.join(&name);
                // A removed file is imported by nothing.
                if let Ok(found) = std::fs::metadata(&path)
                    && found.is_file()
                {
                    self.add(&Path::new(COMPANIONS).join(&name), path, found.len())?;
                }
            }
            return Ok(());
        }
        // An editable module: its packages are beside the namespace.
        if site != self.module.root {
            return Ok(());
        }
        for entry in std::fs::read_dir(site).map_err(|cause| self.failed(site, cause))? {
            let entry = entry.map_err(|cause| self.failed(site, cause))?;
            let (name, path) = (entry.file_name(), entry.path());
            let Some(name) = name.to_str() else { continue };
            let is_package = path.join("__init__.py").is_file();
            if is_package && name != NAMESPACE && !NOT_INSTALLED.contains(&name) {
                self.walk(&path, &Path::new(COMPANIONS).join(name))?;
            }
        }
        Ok(())
    }
}

/// Returns the directory above the namespace: `site-packages`, or a source tree.
fn site_of(module: &ModuleCode) -> Option<&Path> {
    let namespace = module.code.parent()?;
    let is_namespace = namespace.file_name().is_some_and(|name| name == NAMESPACE);
    is_namespace.then(|| namespace.parent()).flatten()
}

/// Returns the metadata directory of the distribution that installed a module.
fn distribution(module: &ModuleCode, site: &Path) -> Option<PathBuf> {
    let own = format!("{NAMESPACE}/{}/", module.name);
    let usual = format!("inmanta_module_{}-", module.name.to_ascii_lowercase());
    let mut found: Vec<(bool, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(site).ok()? {
        let path = entry.ok()?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !name.ends_with(".dist-info") {
            continue;
        }
        let name = name.to_ascii_lowercase().replace('-', "_");
        found.push((!name.starts_with(&usual.replace('-', "_")), path));
    }
    // The conventional name first: usually no other has to be read.
    found.sort_unstable();
    let has_module = |info: &PathBuf| {
        let record = std::fs::read_to_string(info.join("RECORD")).unwrap_or_default();
        record.lines().filter_map(recorded_path).any(|name| name.starts_with(&own))
    };
    found.into_iter().map(|(_, info)| info).find(has_module)
}

/// Parses the path in a line of a record: `path,hash,size`, where a path may be quoted.
fn recorded_path(line: &str) -> Option<String> {
    match line.strip_prefix('"') {
        Some(rest) => {
            let end = rest.replace("\"\"", "\0\0").find('"')?;
            Some(rest[..end].replace("\"\"", "\""))
        }
        None => line.split(',').next().filter(|path| !path.is_empty()).map(str::to_owned),
    }
}

/// Returns true if a recorded file is importable outside the namespace, or is metadata of the
/// distribution.
fn is_companion(name: &str) -> bool {
    let path = Path::new(name);
    let mut parts = path.components();
    if !parts.clone().all(|part| matches!(part, Component::Normal(_))) {
        // Programs are outside of the directory of packages.
        return false;
    }
    let Some(Component::Normal(first)) = parts.next() else { return false };
    let first = first.to_string_lossy();
    if first.ends_with(".dist-info") {
        return path.file_name().is_some_and(|name| name == "METADATA");
    }
    let is_cached =
        name.ends_with(".pyc") || path.components().any(|of| of.as_os_str() == "__pycache__");
    first != NAMESPACE && !name.ends_with(".pth") && !is_cached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn module(site: &Path, root: &Path) -> ModuleCode {
        ModuleCode {
            name: "pair".to_owned(),
            package: "inmanta_plugins.pair".to_owned(),
            code: site.join("inmanta_plugins/pair"),
            root: root.to_owned(),
            version: "1.0".to_owned(),
        }
    }

    #[test]
    fn requirements_are_sorted_and_unique() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("requirements.txt"), "b\na>=1\ninmanta-core\n").unwrap();
        let module = ModuleCode {
            name: "m".into(),
            package: "inmanta_plugins.m".into(),
            code: dir.path().into(),
            root: dir.path().into(),
            version: "1".into(),
        };
        assert_eq!(requirements(&[module.clone(), module]), ["a>=1", "b"]);
    }

    #[test]
    fn installed_modules_are_found_in_a_virtualenv() {
        let interpreter = Interpreter {
            program: "/v/bin/python".into(),
            version: orrery_pyenv::interpreters::PythonVersion(3, 13),
            release: "3.13.0".into(),
        };
        let modules = [InstalledModule { name: "my_toy".into(), version: "1.5".into() }];
        let [code] = &installed_code(&interpreter, &modules)[..] else { panic!() };
        assert_eq!(code.package, "inmanta_plugins.my_toy");
        assert_eq!(code.code, Path::new("/v/lib/python3.13/site-packages/inmanta_plugins/my_toy"));
    }

    #[test]
    fn a_distribution_brings_all_its_packages() {
        let dir = tempfile::tempdir().unwrap();
        let site = dir.path();
        for name in [
            "inmanta_plugins/pair/__init__.py",
            "inmanta_pair/__init__.py",
            "a,b.py",
            "other/__init__.py",
        ] {
            write(&site.join(name), "");
        }
        let record = "inmanta_plugins/pair/__init__.py,,\ninmanta_pair/__init__.py,sha256=x,0\n\
             inmanta_pair/__pycache__/__init__.cpython-311.pyc,,\n\"a,b.py\",,\n../../../bin/pair,,\n\
             removed.py,,\nx.pth,,\nInmanta_Module-pair-1.0.dist-info/METADATA,,\n";
        let info = site.join("Inmanta_Module-pair-1.0.dist-info");
        write(&info.join("RECORD"), record);
        write(
            &info.join("METADATA"),
            "Name: x\nRequires-Dist: pyyaml>=6\nRequires-Dist: tox; extra == \"dev\"\n\nRequires-Dist: no\n",
        );
        write(&site.join("other-1.0.dist-info/RECORD"), "other/__init__.py,,\n");
        let module = module(site, &site.join("inmanta_plugins/pair"));
        let found = collect(std::slice::from_ref(&module)).unwrap();
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        let expected = [
            "inmanta_plugins/pair/__init__.py",
            "packages/Inmanta_Module-pair-1.0.dist-info/METADATA",
            "packages/a,b.py",
            "packages/inmanta_pair/__init__.py",
        ];
        assert_eq!(names, expected);
        assert_eq!(distribution_requirements(&module), ["pyyaml>=6"]);
    }

    #[test]
    fn a_source_tree_brings_its_packages_and_not_its_tests() {
        let dir = tempfile::tempdir().unwrap();
        let names = [
            "inmanta_plugins/pair/__init__.py",
            "inmanta_pair/deep/x.py",
            "inmanta_pair/__init__.py",
            "tests/__init__.py",
            "notes/a.txt",
        ];
        names.iter().for_each(|name| write(&dir.path().join(name), ""));
        let found = collect(&[module(dir.path(), dir.path())]).unwrap();
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        let expected = [
            "inmanta_plugins/pair/__init__.py",
            "packages/inmanta_pair/__init__.py",
            "packages/inmanta_pair/deep/x.py",
        ];
        assert_eq!(names, expected);
        // A package directory without a distribution is not a source tree.
        let root = dir.path().join("inmanta_plugins/pair");
        assert_eq!(collect(&[module(dir.path(), &root)]).unwrap().len(), 1);
    }
}
