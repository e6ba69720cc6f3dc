//! Problems of documents and solver failures, as diagnostics and JSON.

use orrery_api::{ClusterConflict, DocumentPlace, DocumentProblem, DocumentSeverity};
use orrery_cluster::document::{self, Catalog, CatalogProblem, line_column};
use orrery_cluster::planner::PlanError;
use orrery_cluster::preview::PreviewError;
use orrery_cluster::solver::{Infeasible, Invalid, ResizeError, RuleLocation, SolveError};
use orrery_compiler::diagnostic::{self, Diagnostic, Severity};
use orrery_compiler::source::Sources;
use orrery_syntax::ast::{FileId, Loc};
use serde_json::{Value, json};

use crate::pages;

/// Sources of a catalog, with the same file ids.
pub(super) fn sources(catalog: &Catalog) -> Sources {
    let mut sources = Sources::default();
    for file in &catalog.files {
        sources.add(file.name.clone(), file.text.clone());
    }
    sources
}

fn offset(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn source_label(place: &document::DocumentLocation, label: &str) -> diagnostic::SourceLabel {
    let file = FileId(offset(place.file.0));
    let (start, end) = (offset(place.span.start), offset(place.span.end));
    let loc = Loc { file, start, end, column: true };
    diagnostic::SourceLabel { loc, highlight: None, label: label.to_owned() }
}

fn error(id: &'static str, message: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        id: Some(id),
        message,
        details: Vec::new(),
        notes: Vec::new(),
        primary: None,
        related: Vec::new(),
        causes: Vec::new(),
        help: None,
    }
}

pub(super) fn of_problem(problem: &CatalogProblem) -> Diagnostic {
    let mut diagnostic = error(problem.kind.diagnostic_id(), problem.message.clone());
    if problem.severity == document::ProblemSeverity::Warning {
        diagnostic.severity = Severity::Warning;
    }
    diagnostic.primary = Some(source_label(&problem.location, &problem.label));
    let related = problem.related.iter();
    diagnostic.related = related.map(|(at, label)| source_label(at, label)).collect();
    diagnostic.help.clone_from(&problem.help);
    diagnostic
}

/// Diagnostic id of a solver failure.
fn diagnostic_id(error: &PreviewError) -> &'static str {
    match error {
        PreviewError::Solve(SolveError::Invalid(_)) => "unsuitable-request",
        PreviewError::Solve(SolveError::Infeasible(_)) => "unsolvable-template",
        PreviewError::Solve(SolveError::Interrupted(_) | SolveError::TooLarge(_)) => {
            "search-interrupted"
        }
        PreviewError::Plan(PlanError::DependencyCycle(_)) => "dependency-cycle",
        PreviewError::Resize(ResizeError::NoGrowth { .. } | ResizeError::NoShrinking { .. }) => {
            "unsolvable-template"
        }
        PreviewError::Resize(ResizeError::Interrupted(_) | ResizeError::TooLarge(_)) => {
            "search-interrupted"
        }
        PreviewError::Plan(_) | PreviewError::Resize(ResizeError::Broken(_)) => {
            "unsuitable-request"
        }
    }
}

/// Diagnostics for a template without a layout.
pub(super) fn of_error(template: &str, failure: &PreviewError) -> Vec<Diagnostic> {
    let id = diagnostic_id(failure);
    match failure {
        PreviewError::Solve(SolveError::Invalid(all)) => {
            all.iter().map(|invalid| of_invalid(id, template, invalid)).collect()
        }
        PreviewError::Solve(SolveError::Infeasible(infeasible)) => {
            vec![of_infeasible(id, template, infeasible)]
        }
        PreviewError::Resize(resize) => {
            let mut diagnostic = error(id, format!("template {template}: {resize}"));
            diagnostic.help = resize.advice();
            vec![diagnostic]
        }
        other => vec![error(id, format!("template {template}: {other}"))],
    }
}

fn of_invalid(id: &'static str, template: &str, invalid: &Invalid) -> Diagnostic {
    let mut diagnostic = error(id, format!("template {template}: {}", invalid.message));
    let source = invalid.location.as_ref().and_then(|place| place.source.as_ref());
    diagnostic.primary = source.map(|source| source_label(source, ""));
    diagnostic.help.clone_from(&invalid.help);
    diagnostic
}

fn of_infeasible(id: &'static str, template: &str, infeasible: &Infeasible) -> Diagnostic {
    let nodes = if infeasible.size == 1 { "node" } else { "nodes" };
    let message = if infeasible.gave_up {
        format!(
            "the compatible search finds no layout of template {template} with {} {nodes}",
            infeasible.size
        )
    } else {
        format!("template {template} has no layout with {} {nodes}", infeasible.size)
    };
    let mut diagnostic = error(id, message);
    for rule in &infeasible.conflict {
        let RuleLocation { source, .. } = &rule.location;
        let label = rule.kind.to_string();
        match source {
            Some(source) if diagnostic.primary.is_none() => {
                diagnostic.primary = Some(source_label(source, &label));
            }
            Some(source) => diagnostic.related.push(source_label(source, &label)),
            None => diagnostic.notes.push(label),
        }
    }
    let advice = infeasible.advice();
    diagnostic.help = (!advice.is_empty()).then(|| advice.join("\n"));
    diagnostic
}

/// Diagnostic for a conflict that a server found.
pub(super) fn of_conflict(template: &str, conflict: &ClusterConflict) -> Diagnostic {
    let nodes = if conflict.size == 1 { "node" } else { "nodes" };
    let message = format!("template {template} has no layout with {} {nodes}", conflict.size);
    let mut diagnostic = error("unsolvable-template", message);
    let rules = conflict.conflict.iter();
    let rules = rules.map(|rule| format!("{} ({} at {})", rule.rule, rule.document, rule.path));
    diagnostic.notes = rules.collect();
    diagnostic.help = (!conflict.advice.is_empty()).then(|| conflict.advice.join("\n"));
    diagnostic
}

/// Diagnostic for a problem that a server found, in the uploaded documents (in the order of `sent`)
/// or in others.
pub(super) fn of_server(
    catalog: &Catalog,
    sent: &[document::DocumentFileId],
    problem: &DocumentProblem,
) -> Diagnostic {
    let mut diagnostic = error("", problem.message.clone());
    diagnostic.id = pages::known_id(&problem.id);
    if problem.severity == DocumentSeverity::Warning {
        diagnostic.severity = Severity::Warning;
    }
    let own = |at: &DocumentPlace| {
        let file = *sent.get(at.index?)?;
        let span = catalog.span_of(file, &at.path)?;
        Some(source_label(
            &document::DocumentLocation { file, span, path: String::new() },
            &at.label,
        ))
    };
    diagnostic.primary = own(&problem.place);
    if diagnostic.primary.is_none() {
        diagnostic.notes.push(format!("in the {}", problem.place));
    }
    for at in &problem.related {
        match own(at) {
            Some(place) => diagnostic.related.push(place),
            None => diagnostic.notes.push(format!("{}: the {at}", at.label)),
        }
    }
    diagnostic.help.clone_from(&problem.help);
    diagnostic
}

/// JSON form of a problem.
pub(super) fn json_of(catalog: &Catalog, problem: &CatalogProblem) -> Value {
    let located = |place: &document::DocumentLocation| {
        let file = catalog.file(place.file);
        let (line, column) = line_column(&file.text, place.span.start);
        json!({"file": file.name, "line": line, "column": column, "path": place.path})
    };
    let mut value = located(&problem.location);
    value["id"] = json!(problem.kind.diagnostic_id());
    value["severity"] = json!(match problem.severity {
        document::ProblemSeverity::Error => "error",
        document::ProblemSeverity::Warning => "warning",
    });
    value["message"] = json!(problem.message);
    let related = problem.related.iter().map(|(at, label)| {
        let mut value = located(at);
        value["label"] = json!(label);
        value
    });
    value["related"] = related.collect();
    value["help"] = json!(problem.help);
    value
}
