//! `orrery cluster solve`: solves a template for a number of nodes.

use std::path::Path;

use orrery_api::{ClusterPreview, SolveAnswer, SolveRequest, SolveSettings};
use orrery_cluster::document::{
    Catalog, CatalogProblem, DocumentFileId, DocumentKind, ProblemSeverity,
};
use orrery_cluster::preview::{PreviewError, error_json, preview, preview_from};
use orrery_cluster::solver::{LayoutRequest, SearchLimits, Solution, SolverMode};
use orrery_compiler::diagnostic::Diagnostic;
use orrery_model::similar_names::closest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{deadline, document_commands, documents, preview_text, problems};
use crate::cli::cluster::SolveTemplate;
use crate::commands::report;
use crate::error::CliError;
use crate::remote::Remote;
use crate::render::DiagnosticRenderer;
use crate::{Exit, output, style};

/// The working directory.
const HERE: &str = ".";
/// Maximum search time on a server, in seconds.
const TIMEOUT_MAX: u64 = 30;
const KEYS: [&str; 4] = ["provider", "hardwaretype", "imagetype", "services"];

pub(super) fn run(options: &SolveTemplate) -> Result<Exit, CliError> {
    report_json_error(options.json, solve(options))
}

fn directory_of(options: &SolveTemplate) -> &Path {
    options.documents.as_deref().unwrap_or(Path::new(HERE))
}

/// Writes a failure as JSON to standard output, if requested.
pub(super) fn report_json_error(
    json: bool,
    answer: Result<Exit, CliError>,
) -> Result<Exit, CliError> {
    match answer {
        Err(CliError::Message { message, help }) if json => {
            let report = json!({"status": "error", "message": message, "help": help});
            let _ = output::print(|out| writeln!(out, "{report:#}"));
            Ok(Exit::Error)
        }
        answer => answer,
    }
}

fn solve(options: &SolveTemplate) -> Result<Exit, CliError> {
    if let Some(remote) = server_of(options)? {
        return solve_on(&remote, options);
    }
    let catalog = documents::read(directory_of(options))?;
    let request = request_of(options)?;
    if !catalog.has(DocumentKind::ClusterTemplate, &options.template) {
        let broken = unreadable_templates(&catalog, &options.template);
        if broken.is_empty() {
            return Err(unknown_template(&catalog, options));
        }
        return Ok(refuse_documents(&catalog, options, &broken));
    }
    let broken = broken_documents(&catalog, &request);
    if !broken.is_empty() {
        return Ok(refuse_documents(&catalog, options, &broken));
    }
    let stop = deadline(options.timeout);
    let limits = SearchLimits { stop: Some(&stop), ..SearchLimits::default() };
    let found = match existing_of(options)? {
        Some(existing) => preview_from(&catalog, &request, &existing, limits),
        None => preview(&catalog, &request, limits),
    };
    match found {
        Ok(found) => {
            let report = found.to_json();
            let is_written = if options.json {
                output::print(|out| writeln!(out, "{report:#}"))
            } else {
                let preview: ClusterPreview =
                    serde_json::from_value(report).map_err(|error| CliError::from_error(&error))?;
                output::print_styled(&preview_text::render(&preview))
            };
            Ok(if is_written { Exit::Done } else { Exit::Error })
        }
        Err(error) => Ok(refuse(&catalog, options, &error)),
    }
}

/// Nodes of the existing cluster.
fn existing_of<T: DeserializeOwned>(options: &SolveTemplate) -> Result<Option<T>, CliError> {
    let Some(path) = &options.from else { return Ok(None) };
    let wrong = |error: &dyn std::fmt::Display| {
        let error = CliError::new(format!("{} is not a layout: {error}", path.display()));
        error.help("expected the output of `orrery cluster solve --json`")
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    serde_json::from_str(&text).map(Some).map_err(|error| wrong(&error))
}

/// Server that solves the template, unless documents of a directory are used: the given ones, or those of the
/// working directory if no server is selected by an option.
fn server_of(options: &SolveTemplate) -> Result<Option<Remote>, CliError> {
    let is_here = documents::has_documents(Path::new(HERE)) && options.project.is_none();
    let is_local = options.local || options.documents.is_some();
    if is_local || (is_here && !options.server.is_named()) {
        return Ok(None);
    }
    let found = options.server.find()?;
    if found.is_none() && options.project.is_some() {
        return options.server.open(None).map(Some);
    }
    Ok(found)
}

fn solve_on(remote: &Remote, options: &SolveTemplate) -> Result<Exit, CliError> {
    let LayoutRequest { template, size, services, provider, hardware, image, .. } =
        request_of(options)?;
    let settings = SolveSettings { provider, hardwaretype: hardware, imagetype: image, services };
    let request = SolveRequest {
        template,
        size,
        settings,
        from: existing_of(options)?,
        compatible: options.compatible,
        timeout: Some(options.timeout.clamp(1, TIMEOUT_MAX)),
    };
    let scope = document_commands::scope_of(remote, options.project.as_deref())?;
    let answer: Value = remote.client.post_once(&scope.path(&["solve"]), &request)?;
    let read: SolveAnswer =
        serde_json::from_value(answer.clone()).map_err(|error| CliError::from_error(&error))?;
    if options.json {
        let _ = output::print(|out| writeln!(out, "{answer:#}"));
    }
    match read {
        SolveAnswer::Solved(preview) => {
            let is_written = options.json || output::print_styled(&preview_text::render(&preview));
            Ok(if is_written { Exit::Done } else { Exit::Error })
        }
        SolveAnswer::Unsolvable(conflict) => {
            if !options.json {
                show(&Catalog::default(), &[problems::of_conflict(&options.template, &conflict)]);
            }
            Ok(Exit::Error)
        }
        SolveAnswer::Interrupted { message } => match options.json {
            true => Ok(Exit::Error),
            false => Err(CliError::new(format!("template {}: {message}", options.template))),
        },
    }
}

/// Errors of files that may contain a missing template: the file with its name, or else all
/// template files without a readable name, unless a similar name makes a typo more likely.
fn unreadable_templates(catalog: &Catalog, template: &str) -> Vec<CatalogProblem> {
    let mut files: Vec<DocumentFileId> = catalog.unnamed(DocumentKind::ClusterTemplate).collect();
    let is_called_so = |file: &DocumentFileId| {
        let stem = Path::new(&catalog.file(*file).name).file_stem();
        stem.is_some_and(|stem| stem == template)
    };
    if files.iter().any(is_called_so) {
        files.retain(is_called_so);
    } else if closest(template, catalog.names(DocumentKind::ClusterTemplate)).is_some() {
        return Vec::new();
    }
    let is_meant = |problem: &CatalogProblem| {
        problem.severity == ProblemSeverity::Error && files.contains(&problem.location.file)
    };
    catalog.check().into_iter().filter(is_meant).collect()
}

/// Errors of the documents that the request uses; errors elsewhere do not matter.
fn broken_documents(catalog: &Catalog, request: &LayoutRequest) -> Vec<CatalogProblem> {
    let mut used = documents::files_of(catalog, &request.template);
    let resolved = catalog.resolve(&request.template).ok().flatten();
    let defaults = resolved.iter().flat_map(|one| one.template.defaults.service_names());
    let asked = request.services.iter().flatten().map(String::as_str);
    let services = defaults.filter(|_| request.services.is_none()).chain(asked);
    let services = services.filter_map(|name| catalog.services.get(name));
    used.extend(services.map(|document| document.file));
    used.extend(catalog.hardware_types.values().map(|document| document.file));
    used.extend(catalog.image_types.values().map(|document| document.file));
    used.extend(catalog.providers.values().map(|document| document.file));
    let is_meant = |problem: &CatalogProblem| {
        problem.severity == ProblemSeverity::Error && used.contains(&problem.location.file)
    };
    catalog.check().into_iter().filter(is_meant).collect()
}

fn refuse_documents(catalog: &Catalog, options: &SolveTemplate, broken: &[CatalogProblem]) -> Exit {
    if options.json {
        let problems: Vec<Value> =
            broken.iter().map(|problem| problems::json_of(catalog, problem)).collect();
        let report = json!({"status": "invalid", "problems": problems});
        let _ = output::print(|out| writeln!(out, "{report:#}"));
        return Exit::Error;
    }
    let diagnostics: Vec<Diagnostic> = broken.iter().map(problems::of_problem).collect();
    show(catalog, &diagnostics);
    Exit::Error
}

pub(super) fn show(catalog: &Catalog, diagnostics: &[Diagnostic]) {
    let sources = problems::sources(catalog);
    let path = |name: &str| name.to_owned();
    let shown = DiagnosticRenderer { sources: &sources, path: &path, width: output::width() };
    report::show_errors(&shown, diagnostics);
}

fn unknown_template(catalog: &Catalog, options: &SolveTemplate) -> CliError {
    let directory = directory_of(options).display();
    let name = style::sanitize(&options.template);
    let error = CliError::new(format!("no template {name} in {directory}"));
    let names: Vec<&str> = catalog.names(DocumentKind::ClusterTemplate).collect();
    match (closest(&options.template, names.iter().copied()), names.as_slice()) {
        (Some(name), _) => error.help(format!("did you mean `{name}`?")),
        (None, []) => error,
        (None, names) => error.help(format!("available templates: {}", names.join(", "))),
    }
}

fn request_of(options: &SolveTemplate) -> Result<LayoutRequest, CliError> {
    let mut request = LayoutRequest::new(&*options.template, options.size);
    if options.compatible {
        request.mode = SolverMode::Compatible;
    }
    for setting in &options.set {
        let wrong = |text: String| {
            CliError::new(text).help(format!("settings are KEY=VALUE with {}", KEYS.join(", ")))
        };
        let setting = style::sanitize(setting);
        let Some((key, value)) = setting.split_once('=') else {
            return Err(wrong(format!("--set {setting} has no value")));
        };
        let value = value.trim().to_owned();
        match key.trim() {
            "provider" => request.provider = Some(value),
            "hardwaretype" => request.hardware = Some(value),
            "imagetype" => request.image = Some(value),
            "services" => {
                let names = value.split(',').map(|name| name.trim().to_owned());
                request.services = Some(names.filter(|name| !name.is_empty()).collect());
            }
            key => return Err(wrong(format!("no setting {key}"))),
        }
    }
    Ok(request)
}

fn refuse(catalog: &Catalog, options: &SolveTemplate, error: &PreviewError) -> Exit {
    if options.json {
        let report = error_json(catalog, error);
        let _ = output::print(|out| writeln!(out, "{report:#}"));
        return Exit::Error;
    }
    show(catalog, &problems::of_error(&options.template, error));
    Exit::Error
}

/// `1 large (base, postgresql), 2 small (app, base)`
pub(super) fn layout_summary(solution: &Solution) -> String {
    let groups = solution.groups.iter().map(|group| {
        let services: Vec<&str> = group.layout.services.iter().map(String::as_str).collect();
        format!("{} {} ({})", group.count, group.layout.hardware, services.join(", "))
    });
    groups.collect::<Vec<_>>().join(", ")
}
