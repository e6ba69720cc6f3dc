//! `orrery new`: writes the project of `examples/new-project`, which is part of the binary.

use std::fs;
use std::io;
use std::path::Path;

use orrery_model::shell_word;

use crate::cli::New;
use crate::{Exit, output, style};

macro_rules! template {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../examples/new-project/", $path)))),*]
    };
}

/// Path and text of every file.
const TEMPLATE: &[(&str, &str)] =
    template!["project.yml", "main.cf", "libs/README.md", "README.md", "gitignore"];

const TEMPLATE_NAME: &str = "my-project";

pub(crate) fn run(options: &New) -> Exit {
    let directory = &options.directory;
    let shown = style::sanitize(&directory.display().to_string());
    if let Err(problem) = write_project(directory) {
        output::print_status(&format!("{}: {}", style::error("error"), style::sanitize(&problem)));
        return Exit::Error;
    }
    let files: Vec<&str> = TEMPLATE.iter().map(|(path, _)| target_path(path)).collect();
    let enter = if directory == Path::new(".") {
        String::new()
    } else {
        format!("    cd {}\n", shell_word(&shown))
    };
    let written = format!("{} {shown} with {}", style::good("created"), files.join(", "));
    let printed = output::print_styled(&format!(
        "{written}\n\nNext:\n{enter}    orrery plan       show what main.cf would create\n    orrery deploy     create it\n"
    ));
    if printed { Exit::Done } else { Exit::Error }
}

fn write_project(directory: &Path) -> Result<(), String> {
    let shown = directory.display();
    match fs::read_dir(directory) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(format!(
                    "{shown} is not empty; `orrery new` only writes to a new or an empty directory"
                ));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let what = if directory.exists() { "is a file" } else { "is below a file" };
            return Err(format!("{shown} {what}; `orrery new` needs a directory"));
        }
        Err(error) => return Err(format!("cannot read {shown}: {error}")),
    }
    let name = project_name(directory);
    for (path, text) in TEMPLATE {
        let target = directory.join(target_path(path));
        let text = match *path {
            "project.yml" => text.replacen(TEMPLATE_NAME, &name, 1),
            // A name that needs quotes in YAML is not used in paths.
            "main.cf" if !name.starts_with('"') => text.replace(TEMPLATE_NAME, &name),
            _ => (*text).to_owned(),
        };
        let parent = target.parent().unwrap_or(directory);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&target, text))
            .map_err(|error| format!("could not write {}: {error}", target.display()))?;
    }
    Ok(())
}

/// Path of a template file in a project. The ignore file has another name here, so that git does
/// not apply it.
fn target_path(path: &'static str) -> &'static str {
    if path == "gitignore" { ".gitignore" } else { path }
}

/// The directory's name in the form of a YAML value.
fn project_name(directory: &Path) -> String {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf());
    let Some(name) = directory.file_name() else { return TEMPLATE_NAME.to_owned() };
    let name = name.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain) {
        return name.into_owned();
    }
    // A JSON string is a YAML string.
    serde_json::Value::String(name.into_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_the_whole_example() {
        fn list(directory: &Path, root: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    list(&path, root, found);
                } else {
                    found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/new-project");
        let mut found = Vec::new();
        list(&root, &root, &mut found);
        found.sort();
        let mut embedded: Vec<&str> = TEMPLATE.iter().map(|(path, _)| *path).collect();
        embedded.sort_unstable();
        assert_eq!(embedded, found);
        let (_, description) = TEMPLATE[0];
        assert!(description.contains(&format!("name: {TEMPLATE_NAME}\n")), "{description}");
    }

    #[test]
    fn a_project_is_called_like_its_directory() {
        assert_eq!(project_name(Path::new("no/such/web-shop")), "web-shop");
        assert_eq!(project_name(Path::new("no/such/a: #b")), r#""a: #b""#);
        assert_eq!(project_name(Path::new("no/such/1.5")), r#""1.5""#);
    }

    #[test]
    fn paths_are_quoted_where_a_shell_needs_it() {
        assert_eq!(shell_word("a/b-c.d"), "a/b-c.d");
        assert_eq!(shell_word("it's here"), r"'it'\''s here'");
    }
}
