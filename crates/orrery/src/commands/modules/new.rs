//! `orrery modules new`: writes the module of `examples/new-module`, which is part of the binary.

use std::fs;
use std::path::{Path, PathBuf};

use orrery_compiler::builtin;

use crate::cli::modules::NewModule;
use crate::{Exit, output, style};

macro_rules! template {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../../examples/new-module/", $path)))),*]
    };
}

/// Path and text of every file.
const TEMPLATE: &[(&str, &str)] = template![
    "README.md",
    "setup.cfg",
    "pyproject.toml",
    "MANIFEST.in",
    "gitignore",
    "inmanta_plugins/my_module/__init__.py",
    "inmanta_plugins/my_module/model/_init.cf",
    "tests/test_basics.py",
];

const TEMPLATE_NAME: &str = "my_module";
/// The same in package names.
const TEMPLATE_PACKAGE: &str = "my-module";

/// Installed modules have their metadata beside their code; the link provides that in the source
/// tree.
const LINK: (&str, &str) = ("inmanta_plugins/my_module/setup.cfg", "../../setup.cfg");

pub(super) fn run(options: &NewModule) -> Exit {
    let directory = options.directory.clone().unwrap_or_else(|| PathBuf::from(&options.name));
    let written = check_name(&options.name).and_then(|()| write(&directory, &options.name));
    if let Err(problem) = written {
        output::print_status(&format!("{}: {}", style::error("error"), style::sanitize(&problem)));
        return Exit::Error;
    }
    let shown = style::sanitize(&directory.display().to_string());
    let printed = output::print_styled(&format!(
        "{} {shown} with an entity, its resource and handler, and tests\n\nNext:\n    cd {shown}\n    \
         orrery modules install      a virtualenv in .venv\n    .venv/bin/pytest            the tests\n",
        style::good("created")
    ));
    if printed { Exit::Done } else { Exit::Error }
}

/// Checks that a name is valid for Python packages and for namespaces.
fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let parts_are_words = name.split('_').all(|part| !part.is_empty());
    if !name.starts_with(|c: char| c.is_ascii_lowercase())
        || !name.chars().all(plain)
        || !parts_are_words
    {
        return Err(format!(
            "`{name}` cannot be the name of a module; it has to begin with a letter and consist of lower-case \
             letters, digits and single underscores"
        ));
    }
    if orrery_syntax::SyntaxKind::keyword(name).is_some() || PYTHON_KEYWORDS.contains(&name) {
        return Err(format!("`{name}` is a keyword and cannot be a module name"));
    }
    if builtin::builtin_modules().iter().any(|module| module.name == name) {
        return Err(format!("module `{name}` is built in; choose another name"));
    }
    Ok(())
}

/// Python keywords that match the rules of module names.
const PYTHON_KEYWORDS: [&str; 32] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
    "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

fn write(directory: &Path, name: &str) -> Result<(), String> {
    let shown = directory.display();
    if fs::symlink_metadata(directory).is_ok() {
        return Err(format!("{shown} already exists; a module needs a new directory"));
    }
    // Written to a temporary directory and renamed, so that it appears atomically.
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let failed = |error: std::io::Error| format!("could not write {shown}: {error}");
    fs::create_dir_all(parent).map_err(failed)?;
    let draft =
        tempfile::Builder::new().prefix(".orrery-module-").tempdir_in(parent).map_err(failed)?;
    let module = draft.path().join("module");
    for (path, text) in TEMPLATE {
        let target = module.join(target_path(path, name));
        fs::create_dir_all(target.parent().unwrap_or(&module)).map_err(failed)?;
        fs::write(&target, filled_in(text, name)).map_err(failed)?;
    }
    let (link, to) = LINK;
    std::os::unix::fs::symlink(to, module.join(target_path(link, name))).map_err(failed)?;
    fs::rename(&module, directory).map_err(failed)
}

fn target_path(path: &str, name: &str) -> String {
    match path {
        "gitignore" => ".gitignore".into(),
        path => path.replace(TEMPLATE_NAME, name),
    }
}

fn filled_in(text: &str, name: &str) -> String {
    text.replace(TEMPLATE_NAME, name).replace(TEMPLATE_PACKAGE, &name.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_to_be_names_of_packages_and_namespaces() {
        for good in ["shop", "my_shop2", "a1"] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in [
            "", "My", "2a", "a-b", "_a", "a_", "a__b", "a b", "ä", "../a", "class", "entity",
            "std", "exec",
        ] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_template_is_the_whole_example() {
        fn list(directory: &Path, root: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                if name == "__pycache__" || name.starts_with('.') {
                    continue;
                }
                if path.is_dir() {
                    list(&path, root, found);
                } else {
                    found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/new-module");
        let mut found = Vec::new();
        list(&root, &root, &mut found);
        found.sort();
        let mut embedded: Vec<&str> =
            TEMPLATE.iter().map(|(path, _)| *path).chain([LINK.0]).collect();
        embedded.sort_unstable();
        assert_eq!(embedded, found);
        assert_eq!(fs::read_link(root.join(LINK.0)).unwrap(), Path::new(LINK.1));
    }

    #[test]
    fn nothing_of_the_template_name_is_left() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("deep/shop");
        write(&directory, "web_shop").unwrap();
        let setup =
            fs::read_to_string(directory.join("inmanta_plugins/web_shop/setup.cfg")).unwrap();
        assert!(setup.contains("name = inmanta-module-web-shop\n"), "{setup}");
        for (path, _) in TEMPLATE {
            let text = fs::read_to_string(directory.join(target_path(path, "web_shop"))).unwrap();
            assert!(
                !text.contains(TEMPLATE_NAME) && !text.contains(TEMPLATE_PACKAGE),
                "{path}: {text}"
            );
        }
        assert!(write(&directory, "web_shop").unwrap_err().contains("already exists"));
        let left: Vec<_> = fs::read_dir(scratch.path().join("deep")).unwrap().collect();
        assert_eq!(left.len(), 1);
    }
}
