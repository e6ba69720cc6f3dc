//! `orrery docs`: documentation from the declarations of modules.

#[cfg(test)]
mod page;
mod terminal;

use orrery_compiler::documentation::Documentation;
use orrery_compiler::error::CompileError;
use orrery_compiler::files::{Disk, Files, Memory};
use orrery_compiler::load::Loader;
use orrery_compiler::project::Options;
use serde_json::json;

use crate::cli::Docs;
use crate::error::{CliError, finish};
use crate::{Exit, output};

pub(crate) fn run(options: &Docs) -> Exit {
    finish(show(options))
}

fn show(options: &Docs) -> Result<Exit, CliError> {
    let (found, _) = builtin().map_err(CliError::Project)?;
    let found = match of_project(options) {
        // If the project cannot be read, built-in modules are still shown.
        Some(Ok(own)) => merged(found, own),
        Some(Err(_)) | None => found,
    };
    let Some(name) = &options.name else {
        return printed(options, &terminal::list(&found, None), || {
            terminal::list_json(&found, None)
        });
    };
    if found.entities.contains_key(name) {
        let text = terminal::entity(&found, name);
        return printed(options, &text, || terminal::entity_json(&found, name));
    }
    if let Some(found) = found.types.get(name) {
        let json =
            json!({ "type": found.name, "definition": found.definition, "text": found.text });
        return printed(options, &terminal::refinement(found), || json);
    }
    if found.namespaces.contains_key(name) {
        let text = terminal::list(&found, Some(name));
        return printed(options, &text, || terminal::list_json(&found, Some(name)));
    }
    let error = CliError::new(format!("no type or module {name}"));
    Err(error.help(match found.closest(name) {
        Some(close) => format!("did you mean `orrery docs {close}`?"),
        None => {
            "`orrery docs` lists the types; installed modules appear in a project that imports them"
                .to_owned()
        }
    }))
}

fn printed(
    options: &Docs,
    text: &str,
    json: impl FnOnce() -> serde_json::Value,
) -> Result<Exit, CliError> {
    let written = match options.json {
        true => output::print(|out| writeln!(out, "{:#}", json())),
        false => output::print_styled(text),
    };
    Ok(if written { Exit::Done } else { Exit::Error })
}

/// Documentation of built-in modules, and the names of those with resources.
fn builtin() -> Result<(Documentation, Vec<String>), Box<CompileError>> {
    let registry = orrery_handlers::Registry::native();
    let resources = registry.declarations().map(|one| one.entity.to_string()).collect();
    let mut main = String::new();
    for module in orrery_compiler::builtin::builtin_modules() {
        for (path, _) in module.files {
            let Some(file) = path.strip_prefix("model/").and_then(|p| p.strip_suffix(".cf")) else {
                continue;
            };
            let inner = file.replace('/', "::").replace("_init", "");
            let name = [module.name, &inner].join("::");
            main += &format!("import {}\n", name.trim_end_matches("::"));
        }
    }
    let mut files = Memory::default();
    files.add("p/project.yml", "name: docs\n");
    files.add("p/main.cf", main);
    Ok((read(&files, &Options::new("p"))?, resources))
}

/// Documentation of the current project's modules, if there is a project.
fn of_project(options: &Docs) -> Option<Result<Documentation, Box<CompileError>>> {
    let found = options.project.compiler_options().ok()?;
    (options.project.project.is_some() || found.project_dir.join("project.yml").is_file())
        .then(|| read(&Disk, &found))
}

fn read(files: &dyn Files, options: &Options) -> Result<Documentation, Box<CompileError>> {
    let mut loader = Loader::new(files, options)?;
    let loaded = loader.load_all();
    // An unresolved import still leaves documentation to show.
    if loader.loaded.len() < 2 {
        loaded?;
    }
    Ok(Documentation::from_loader(&loader))
}

/// Modules of the project override built-in ones.
fn merged(mut found: Documentation, own: Documentation) -> Documentation {
    found.extend(own);
    found
}

/// The guide page about resources: its own introduction, followed by generated sections.
#[cfg(test)]
fn guide(own_words: &str) -> String {
    let (found, resources) = builtin().unwrap_or_else(|error| panic!("{}", error.text));
    page::guide(&found, &resources, own_words)
}

/// Root of the repository.
#[cfg(test)]
fn repository() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "docs/guide/resources.md";

    #[test]
    fn the_guide_matches_the_declarations() {
        let path = repository().join(PAGE);
        let text = std::fs::read_to_string(&path).unwrap();
        let (own_words, _) = text.split_once(page::BEGIN).expect("the page has a marker");
        let expected = guide(own_words);
        if std::env::var_os("ORRERY_BLESS").is_some() {
            std::fs::write(&path, expected).unwrap();
            return;
        }
        assert!(text == expected, "{PAGE} is out of date: ORRERY_BLESS=1 regenerates it");
    }

    #[test]
    fn every_resource_has_an_example_and_every_attribute_a_text() {
        let (found, resources) = builtin().unwrap_or_else(|error| panic!("{}", error.text));
        assert!(resources.len() > 10);
        for name in resources {
            let entity = found.with_inherited(&name).unwrap();
            assert!(entity.example.is_some(), "{name} has no example");
            for attribute in entity.attributes {
                assert!(!attribute.text.is_empty(), "{name}.{} has no text", attribute.name);
            }
        }
    }
}
