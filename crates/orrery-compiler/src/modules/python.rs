//! Modules installed in a virtualenv: the packages below `inmanta_plugins`. This code follows
//! Python's package lookup rules without running Python.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use crate::files::{Files, Kind};
use crate::project::Options;

/// Maximum number of paths that a virtualenv may add, and maximum size of a file that adds them.
const PATHS_MAX: usize = 1_000;
const PATH_FILE_BYTES_MAX: usize = 1 << 20;

const NAMESPACE: &str = "inmanta_plugins";

/// A virtualenv and the search paths of its packages.
#[derive(Debug)]
pub(crate) struct Virtualenv {
    pub(crate) dir: PathBuf,
    /// Directories that contain `inmanta_plugins`.
    paths: Vec<PathBuf>,
    /// Packages in other directories because of an editable installation: dotted name and
    /// directory.
    elsewhere: Vec<(String, PathBuf)>,
}

/// An installed module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Package {
    /// `root` contains `setup.cfg` and `model/`, `code` the Python files; often they are the same.
    Complete {
        root: PathBuf,
        code: PathBuf,
    },
    /// A directory without `__init__.py`, which is not a package.
    WithoutCode,
    WithoutMetadata {
        dir: PathBuf,
    },
}

impl Virtualenv {
    /// Finds the configured virtualenv, or the one inside the project.
    pub(crate) fn find(files: &dyn Files, options: &Options) -> Option<Self> {
        if let Some(dir) = &options.python_environment {
            return Some(Self::at(files, dir.clone()));
        }
        let inside = [".venv", ".env"].map(|name| options.project_dir.join(name));
        inside.into_iter().map(|dir| Self::at(files, dir)).find(Self::exists)
    }

    fn at(files: &dyn Files, dir: PathBuf) -> Self {
        let mut environment = Virtualenv { dir, paths: Vec::new(), elsewhere: Vec::new() };
        for site in site_packages(files, &environment.dir) {
            environment.add_site(files, site);
        }
        environment
    }

    /// True if it contains Python packages.
    pub(crate) fn exists(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Adds a directory of packages and the paths listed in its `*.pth` files.
    fn add_site(&mut self, files: &dyn Files, site: PathBuf) {
        self.add_path(files, site.clone());
        let names = files.list(&site).unwrap_or_default();
        for name in names.iter().filter(|name| name.ends_with(".pth") && !name.starts_with('.')) {
            let Some(text) = small_text(files, &site.join(name)) else { continue };
            for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
                if line.starts_with('#') {
                    continue;
                }
                if line.starts_with("import ") || line.starts_with("import\t") {
                    self.add_editable(files, &site, line);
                } else {
                    self.add_path(files, site.join(line));
                }
            }
        }
    }

    fn add_path(&mut self, files: &dyn Files, path: PathBuf) {
        let path = if files.is_dir(&path) { path } else { return };
        if self.paths.len() < PATHS_MAX && !self.paths.contains(&path) {
            self.paths.push(path);
        }
    }

    /// Adds the packages of an editable installation, which writes a Python file with their names
    /// and directories in one line: `MAPPING: dict[str, str] = {'inmanta_plugins':
    /// '/home/me/shop/inmanta_plugins'}`.
    fn add_editable(&mut self, files: &dyn Files, site: &Path, line: &str) {
        static FINDER: LazyLock<Regex> = LazyLock::new(|| pattern(r"^import\s+(__editable___\w+)"));
        static ENTRY: LazyLock<Regex> = LazyLock::new(|| {
            pattern(r#"(?:'([^'\\]*)'|"([^"\\]*)")\s*:\s*(?:'([^'\\]*)'|"([^"\\]*)")"#)
        });
        let Some(finder) = FINDER.captures(line) else { return };
        let Some(text) = small_text(files, &site.join(format!("{}.py", &finder[1]))) else {
            return;
        };
        let Some(mapping) = text.lines().find(|line| line.starts_with("MAPPING")) else { return };
        for entry in ENTRY.captures_iter(mapping) {
            let either =
                |one, other| entry.get(one).or(entry.get(other)).map(|found| found.as_str());
            let (Some(name), Some(dir)) = (either(1, 2), either(3, 4)) else { continue };
            if self.elsewhere.len() < PATHS_MAX {
                self.elsewhere.push((name.to_owned(), PathBuf::from(dir)));
            }
        }
    }

    /// Finds the package of a module.
    pub(crate) fn find_package(&self, files: &dyn Files, name: &str) -> Option<Package> {
        let dotted = format!("{NAMESPACE}.{name}");
        let below = self.paths.iter().map(|path| path.join(NAMESPACE));
        let mapped =
            self.elsewhere.iter().filter(|(of, _)| of == NAMESPACE).map(|(_, dir)| dir.clone());
        let mut without_code = false;
        for parent in below.chain(mapped) {
            let dir = parent.join(name);
            if is_package(files, &dir) {
                return Some(package(files, &dir));
            }
            if files.is_file(&parent.join(format!("{name}.py"))) {
                return Some(Package::WithoutMetadata { dir: parent });
            }
            without_code |= files.is_dir(&dir);
        }
        let itself =
            self.elsewhere.iter().find(|(of, dir)| *of == dotted && is_package(files, dir));
        match itself {
            Some((_, dir)) => Some(package(files, dir)),
            None => without_code.then_some(Package::WithoutCode),
        }
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("invariant: the patterns of installations are valid")
}

fn is_package(files: &dyn Files, dir: &Path) -> bool {
    ["__init__.py", "__init__.pyc"].iter().any(|name| files.is_file(&dir.join(name)))
}

/// A package has its metadata and model beside its code or, if it is edited in place, two
/// directories up.
fn package(files: &dyn Files, dir: &Path) -> Package {
    let code = files.real_path(dir);
    let above = code.parent().and_then(Path::parent);
    for root in std::iter::once(code.as_path()).chain(above) {
        if files.is_file(&root.join("setup.cfg")) {
            return Package::Complete { root: root.to_owned(), code };
        }
    }
    Package::WithoutMetadata { dir: code }
}

/// True if a package contains more than an empty `__init__.py`.
pub(crate) fn has_code(files: &dyn Files, code: &Path) -> bool {
    let is_blank = |name: &str| {
        name == "__init__.py"
            && small_text(files, &code.join(name)).is_some_and(|text| text.trim().is_empty())
    };
    let is_code = |name: &String| {
        let dir = code.join(name);
        (name.ends_with(".py") || name.ends_with(".pyc")) && !is_blank(name)
            || is_package(files, &dir)
    };
    files.list(code).unwrap_or_default().iter().any(is_code)
}

/// Directories of installed packages, newest Python version first.
fn site_packages(files: &dyn Files, environment: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut real = Vec::new();
    let windows = environment.join("Lib/site-packages");
    let versions = ["lib", "lib64"].map(|lib| {
        let lib = environment.join(lib);
        let mut names = files.list(&lib).unwrap_or_default();
        names.retain(|name| version_of(name).is_some());
        names.sort_by_key(|name| std::cmp::Reverse(version_of(name)));
        names.into_iter().map(move |name| lib.join(name).join("site-packages"))
    });
    for site in versions.into_iter().flatten().chain([windows]) {
        // `lib64` is often a link to `lib`.
        let resolved = files.real_path(&site);
        if files.is_dir(&site) && !real.contains(&resolved) {
            real.push(resolved);
            found.push(site);
        }
    }
    found
}

/// `(3, 13)` of `python3.13`.
fn version_of(name: &str) -> Option<(u32, u32)> {
    let (major, minor) = name.strip_prefix("python")?.split_once('.')?;
    let minor: String = minor.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn small_text(files: &dyn Files, path: &Path) -> Option<String> {
    if files.kind(path).ok()? != Kind::File {
        return None;
    }
    let bytes = files.read(path).ok().filter(|bytes| bytes.len() <= PATH_FILE_BYTES_MAX)?;
    String::from_utf8(bytes).ok()
}
