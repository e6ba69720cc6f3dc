//! `orrery modules list`: modules of a project and their origins.

use orrery_compiler::diagnostic::Diagnostic;
use orrery_compiler::error::CompileError;
use orrery_compiler::files::Disk;
use orrery_compiler::load::{Loader, Module, Origin};
use orrery_compiler::source::Sources;
use serde_json::json;

use crate::cli::modules::ListModules;
use crate::render::{DiagnosticRenderer, path_from_here};
use crate::{Exit, output, style};

use crate::commands::inspect::text;
use crate::commands::report;

pub(super) fn run(options: &ListModules) -> Exit {
    let project = match options.project.compiler_options() {
        Ok(project) => project,
        Err(error) => return refuse(&error),
    };
    let mut loader = match Loader::new(&Disk, &project) {
        Ok(loader) => loader,
        Err(error) => return refuse(&error),
    };
    let loaded = loader.load_all();
    let mut modules = std::mem::take(&mut loader.modules);
    modules.sort_by(|one, other| one.name.cmp(&other.name));
    let printed = if options.json { print_json(&modules) } else { print_table(&modules) };
    if let Err(error) = loaded {
        let errors = match loader.syntax_errors.as_slice() {
            [] => vec![Diagnostic::from(&*error)],
            errors => Diagnostic::all_of(errors),
        };
        let path = |name: &str| path_from_here(&project.project_dir, name);
        let shown =
            DiagnosticRenderer { sources: &loader.sources, path: &path, width: output::width() };
        report::show_errors(&shown, &errors);
        output::print_status(&format!("{}: the list is not complete", style::error("failed")));
        return Exit::Error;
    }
    if printed { Exit::Done } else { Exit::Error }
}

/// Reports an error without a source location.
pub(super) fn refuse(error: &CompileError) -> Exit {
    let sources = Sources::default();
    let path = |name: &str| name.to_owned();
    let shown = DiagnosticRenderer { sources: &sources, path: &path, width: output::width() };
    output::print_status(&shown.long(&Diagnostic::from(error)));
    Exit::Error
}

fn print_json(modules: &[Module]) -> bool {
    let list: Vec<serde_json::Value> = modules
        .iter()
        .map(|module| {
            let (origin, path) = match module.origin {
                Origin::Builtin => ("builtin", None),
                Origin::ModulePath => ("project", Some(module.dir.display().to_string())),
                Origin::Python => ("python", Some(module.dir.display().to_string())),
            };
            json!({ "name": module.name, "version": module.version, "origin": origin, "path": path })
        })
        .collect();
    output::print(|out| {
        serde_json::to_writer_pretty(&mut *out, &list)?;
        writeln!(out)
    })
}

fn print_table(modules: &[Module]) -> bool {
    let mut rows = vec![["NAME", "VERSION", "FROM", "PATH"].map(str::to_owned).to_vec()];
    rows.extend(modules.iter().map(|module| {
        let from = match module.origin {
            Origin::Builtin => "built in",
            Origin::ModulePath => "module path",
            Origin::Python => "virtualenv",
        };
        let path = match module.origin {
            Origin::Builtin => "-".to_owned(),
            _ => module.dir.strip_prefix(".").unwrap_or(&module.dir).display().to_string(),
        };
        let version = module.version.as_deref().unwrap_or("-");
        [module.name.as_str(), version, from, path.as_str()].map(style::sanitize).to_vec()
    }));
    let table = text::heading_table(&rows);
    output::print_styled(&table)
}
