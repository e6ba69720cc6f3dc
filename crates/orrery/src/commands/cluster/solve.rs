//! `orrery cluster solve`: the cluster that a template gives for a size.

use std::fmt::Write as _;
use std::path::Path;

use orrery_cluster::document::{Catalog, DocumentKind, FileId, Problem, Severity};
use orrery_cluster::preview::{Preview, PreviewError, cost, error_json, preview};
use orrery_cluster::solver::{Limits, Mode, Request, Solution};
use orrery_compiler::diagnostic::Diagnostic;
use orrery_model::similar_names::closest;
use serde_json::{Value, json};

use super::{deadline, documents, drawing, problems, stages};
use crate::cli_cluster::SolveTemplate;
use crate::commands::inspect::text;
use crate::commands::report;
use crate::commands::trouble::Trouble;
use crate::render::Shown;
use crate::{Exit, output, style};

const KEYS: [&str; 4] = ["provider", "hardwaretype", "imagetype", "services"];

pub(super) fn run(options: &SolveTemplate) -> Result<Exit, Trouble> {
    tell_programs(options.json, solve(options))
}

/// Writes a failure to standard output, if programs read it.
pub(super) fn tell_programs(json: bool, answer: Result<Exit, Trouble>) -> Result<Exit, Trouble> {
    match answer {
        Err(Trouble::Said { message, help }) if json => {
            let report = json!({"status": "error", "message": message, "help": help});
            let _ = output::print(|out| writeln!(out, "{report:#}"));
            Ok(Exit::Error)
        }
        answer => answer,
    }
}

fn solve(options: &SolveTemplate) -> Result<Exit, Trouble> {
    let catalog = documents::read(&options.documents)?;
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
    let limits = Limits { stop: Some(&stop), ..Limits::default() };
    match preview(&catalog, &request, limits) {
        Ok(found) => {
            let is_written = if options.json {
                let report = found.to_json();
                output::print(|out| writeln!(out, "{report:#}"))
            } else {
                output::print_styled(&shown(&found, &catalog))
            };
            Ok(if is_written { Exit::Done } else { Exit::Error })
        }
        Err(error) => Ok(refuse(&catalog, options, &error)),
    }
}

/// Errors of the files that may hold a template which is not found: the one that is called like it, or else all template files
/// without a readable name, unless a similar name shows that a spelling mistake is more likely.
fn unreadable_templates(catalog: &Catalog, template: &str) -> Vec<Problem> {
    let mut files: Vec<FileId> = catalog.unnamed(DocumentKind::ClusterTemplate).collect();
    let is_called_so = |file: &FileId| {
        let stem = Path::new(&catalog.file(*file).name).file_stem();
        stem.is_some_and(|stem| stem == template)
    };
    if files.iter().any(is_called_so) {
        files.retain(is_called_so);
    } else if closest(template, catalog.names(DocumentKind::ClusterTemplate)).is_some() {
        return Vec::new();
    }
    let is_meant = |problem: &Problem| {
        problem.severity == Severity::Error && files.contains(&problem.place.file)
    };
    catalog.check().into_iter().filter(is_meant).collect()
}

/// Errors of the documents that the request uses. What is wrong elsewhere is no matter here.
fn broken_documents(catalog: &Catalog, request: &Request) -> Vec<Problem> {
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
    let is_meant = |problem: &Problem| {
        problem.severity == Severity::Error && used.contains(&problem.place.file)
    };
    catalog.check().into_iter().filter(is_meant).collect()
}

fn refuse_documents(catalog: &Catalog, options: &SolveTemplate, broken: &[Problem]) -> Exit {
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

fn show(catalog: &Catalog, diagnostics: &[Diagnostic]) {
    let sources = problems::sources(catalog);
    let path = |name: &str| name.to_owned();
    let shown = Shown { sources: &sources, path: &path, width: output::width() };
    report::show_errors(&shown, diagnostics);
}

fn unknown_template(catalog: &Catalog, options: &SolveTemplate) -> Trouble {
    let directory = options.documents.display();
    let name = style::harmless(&options.template);
    let trouble = Trouble::said(format!("there is no template {name} in {directory}"));
    let names: Vec<&str> = catalog.names(DocumentKind::ClusterTemplate).collect();
    match (closest(&options.template, names.iter().copied()), names.as_slice()) {
        (Some(name), _) => trouble.help(format!("did you mean `{name}`?")),
        (None, []) => trouble,
        (None, names) => trouble.help(format!("the templates there are {}", names.join(", "))),
    }
}

fn request_of(options: &SolveTemplate) -> Result<Request, Trouble> {
    let mut request = Request::new(&*options.template, options.size);
    if options.compatible {
        request.mode = Mode::Compatible;
    }
    for setting in &options.set {
        let wrong = |text: String| {
            Trouble::said(text).help(format!("settings are KEY=VALUE with {}", KEYS.join(", ")))
        };
        let setting = style::harmless(setting);
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
            key => return Err(wrong(format!("there is no setting {key}"))),
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
pub(super) fn in_words(solution: &Solution) -> String {
    let groups = solution.groups.iter().map(|group| {
        let services: Vec<&str> = group.layout.services.iter().map(String::as_str).collect();
        format!("{} {} ({})", group.count, group.layout.hardware, services.join(", "))
    });
    groups.collect::<Vec<_>>().join(", ")
}

fn shown(found: &Preview, catalog: &Catalog) -> String {
    let mut out = format!("{}: ", style::heading(&found.template));
    out += &style::count(found.nodes.len(), "node");
    if let Some(millionths) = found.solution.cost {
        let _ = write!(out, ", cost {}", cost(millionths));
    }
    out.push('\n');
    if !found.solution.unplaced.is_empty() {
        let names = found.solution.unplaced.join(", ");
        let _ = writeln!(out, "{}: on no node: {names}", style::warning("warning"));
    }
    out.push('\n');
    let headings = ["NODES", "HARDWARE", "IMAGE", "SERVICES"];
    let mut rows = vec![headings.iter().map(|&text| text.to_owned()).collect::<Vec<_>>()];
    for group in &found.solution.groups {
        let services: Vec<&str> = group.layout.services.iter().map(String::as_str).collect();
        rows.push(vec![
            group.count.to_string(),
            group.layout.hardware.clone(),
            group.layout.image.clone(),
            services.join(", "),
        ]);
    }
    for (number, line) in text::table(&rows).iter().enumerate() {
        out += &if number == 0 { style::heading(line) } else { line.clone() };
        out.push('\n');
    }
    out.push('\n');
    out += &drawing::draw(found, catalog);
    out.push('\n');
    out += &stages::in_words(&found.plan);
    out
}
