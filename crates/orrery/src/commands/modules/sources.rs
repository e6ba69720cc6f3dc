//! Arguments of `orrery modules add`: published modules, directories, and git repositories.

use std::path::Path;

use orrery_compiler::modules::requirements::{package_of, split_requirement};

use orrery_pyenv::requirements::relative;
use orrery_pyenv::{Error, requirements};

/// Source of a module.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ModuleSource {
    /// A package with its version specifier.
    Package { name: String, rest: String },
    /// A directory, as in a requirements file.
    Directory { path: String },
    /// A URL for pip: `git+https://…`.
    Repository { address: String },
}

impl ModuleSource {
    /// Parses an argument.
    ///
    /// # Errors
    /// An error if it is none of these, or a directory without a package.
    pub(super) fn read(text: &str, project: &Path) -> Result<Self, Error> {
        if let Some(address) = git_address(text) {
            return Ok(ModuleSource::Repository { address });
        }
        if is_path(text) {
            return Self::directory(text, project);
        }
        let (name, rest) = split_requirement(text).map_err(|text| Error::Requirement { text })?;
        Ok(ModuleSource::Package { name: package_of(name), rest: rest.trim().to_owned() })
    }

    fn directory(text: &str, project: &Path) -> Result<Self, Error> {
        let refuse = |text: String| Err(Error::Requirement { text });
        let Ok(found) = Path::new(text).canonicalize() else {
            return refuse(format!("no such directory: {text}"));
        };
        if !found.is_dir() {
            return refuse(format!("{text} is not a directory"));
        }
        if !["setup.cfg", "pyproject.toml", "setup.py"].iter().any(|one| found.join(one).is_file())
        {
            return refuse(match found.join("module.yml").is_file() {
                true => format!(
                    "{text} is a module without a package: move it into a directory of the project's modulepath, such as libs/"
                ),
                false => {
                    format!("{text} has no setup.cfg: not an installable module")
                }
            });
        }
        let path = match Path::new(text).is_absolute() {
            true => found,
            false => relative(&found, project),
        };
        Ok(ModuleSource::Directory { path: path.display().to_string() })
    }

    /// Adds this source to the text of a requirements file. `version` returns a specifier for a
    /// package without one.
    pub(super) fn added_to(
        &self,
        text: &str,
        before: &str,
        version: &dyn Fn(&str) -> Option<String>,
    ) -> String {
        match self {
            ModuleSource::Package { name, rest } => {
                if rest.is_empty() && requirements::has_requirement(before, name) {
                    return text.to_owned();
                }
                let rest =
                    if rest.is_empty() { version(name).unwrap_or_default() } else { rest.clone() };
                requirements::with_requirement(text, &format!("{name}{rest}"))
            }
            ModuleSource::Directory { path } => {
                let is_same = |line: &str| editable(line) == Some(path);
                requirements::with_line(text, &format!("-e {path}"), &is_same)
            }
            ModuleSource::Repository { address } => {
                let is_same = |line: &str| without_commit(line) == without_commit(address);
                requirements::with_line(text, address, &is_same)
            }
        }
    }
}

fn editable(line: &str) -> Option<&str> {
    let rest = line.trim().strip_prefix("-e").or_else(|| line.trim().strip_prefix("--editable"))?;
    Some(rest.trim_start_matches([' ', '=']).trim())
}

/// A URL without its branch, tag or commit.
fn without_commit(address: &str) -> &str {
    let address = address.trim().split('#').next().unwrap_or(address);
    let path = address.find("://").map_or(0, |at| at + 3);
    let path = address[path..].find('/').map_or(address.len(), |at| path + at);
    address[path..].find('@').map_or(address, |at| &address[..path + at])
}

/// URL of a git repository in pip's form.
fn git_address(text: &str) -> Option<String> {
    if text.starts_with("git+") {
        return Some(text.to_owned());
    }
    if text.starts_with("ssh://") || text.starts_with("git://") {
        return Some(format!("git+{text}"));
    }
    if text.starts_with("https://") || text.starts_with("http://") || text.starts_with("file://") {
        return without_commit(text).ends_with(".git").then(|| format!("git+{text}"));
    }
    // Git's own form: git@host:path.
    let (host, path) = text.split_once(':')?;
    let is_host = host.contains('@') && !host.contains('/') && !path.starts_with("//");
    is_host.then(|| format!("git+ssh://{host}/{}", path.trim_start_matches('/')))
}

fn is_path(text: &str) -> bool {
    text.starts_with(['.', '/', '~']) || text.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_repositories_are_known() {
        for (text, address) in [
            ("git+https://e.org/a.git@v1", "git+https://e.org/a.git@v1"),
            ("https://e.org/a.git@v1", "git+https://e.org/a.git@v1"),
            ("ssh://git@e.org/a", "git+ssh://git@e.org/a"),
            ("git@e.org:team/a.git", "git+ssh://git@e.org/team/a.git"),
        ] {
            assert_eq!(git_address(text).as_deref(), Some(address), "{text}");
        }
        for text in ["fs", "fs>=1.2", "../shop", "https://e.org/a.whl", "fs[x]~=1.0"] {
            assert_eq!(git_address(text), None, "{text}");
        }
    }

    #[test]
    fn a_source_takes_the_place_of_the_same_one() {
        let none = |_: &str| None;
        let git = |address: &str| ModuleSource::Repository { address: address.to_owned() };
        let text = git("git+ssh://git@e.org/a.git@v2").added_to(
            "x\ngit+ssh://git@e.org/a.git@v1\n",
            "",
            &none,
        );
        assert_eq!(text, "x\ngit+ssh://git@e.org/a.git@v2\n");
        let shop = ModuleSource::Directory { path: "../shop".into() };
        let text = shop.added_to("--editable ../shop\n-e ../other\n", "", &none);
        assert_eq!(text, "-e ../shop\n-e ../other\n");
    }

    #[test]
    fn directories_are_named_as_seen_from_the_project() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for dir in ["project/inner", "mods/shop", "mods/old"] {
            std::fs::create_dir_all(root.join(dir)).unwrap();
        }
        std::fs::write(root.join("mods/old/module.yml"), "").unwrap();
        std::fs::write(root.join("mods/shop/setup.cfg"), "").unwrap();
        assert_eq!(
            relative(&root.join("mods/shop"), &root.join("project")),
            Path::new("../mods/shop")
        );
        assert_eq!(
            relative(&root.join("project/inner"), &root.join("project")),
            Path::new("./inner")
        );
        let old = root.join("mods/old").display().to_string();
        let error = ModuleSource::read(&old, &root).unwrap_err();
        assert!(error.to_string().contains("modulepath"), "{error}");
    }
}
