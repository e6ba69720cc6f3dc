//! `orrery cluster check`: problems of documents, and the smallest layout of each template.

use std::collections::BTreeSet;

use orrery_cluster::document::{
    Catalog, CatalogProblem, DocumentFileId, DocumentKind, ProblemSeverity,
};
use orrery_cluster::preview::{PreviewError, cost, error_json, layout_json, preview};
use orrery_cluster::solver::{LayoutRequest, SearchLimits, Solution, smallest_size};
use orrery_compiler::diagnostic::Diagnostic;
use serde_json::{Value, json};

use super::{deadline, documents, problems, solve as solving};
use crate::cli::cluster::CheckDocuments;
use crate::commands::inspect::text;
use crate::commands::report;
use crate::error::CliError;
use crate::render::DiagnosticRenderer;
use crate::{Exit, output, style};

/// Result of checking one template.
struct TemplateCheck<'c> {
    name: &'c str,
    /// The smallest size that fits, and its layout.
    smallest: Option<(u32, Solution)>,
    /// With `--size`.
    sized: Option<(u32, Result<Solution, PreviewError>)>,
    failure: Option<PreviewError>,
}

pub(super) fn run(options: &CheckDocuments) -> Result<Exit, CliError> {
    solving::report_json_error(options.json, check(options))
}

fn check(options: &CheckDocuments) -> Result<Exit, CliError> {
    let catalog = documents::read(&options.directory)?;
    let problems = catalog.check();
    let broken: BTreeSet<DocumentFileId> = problems
        .iter()
        .filter(|problem| problem.severity == ProblemSeverity::Error)
        .map(|problem| problem.location.file)
        .collect();
    let names = catalog.templates.keys().map(String::as_str);
    let solvable = names.filter(|name| can_be_solved(&catalog, name, &broken));
    let checked: Vec<TemplateCheck<'_>> =
        solvable.map(|name| check_template(&catalog, name, options)).collect();
    let is_failure = |one: &TemplateCheck<'_>| {
        one.failure.is_some() || one.sized.as_ref().is_some_and(|(_, solved)| solved.is_err())
    };
    let is_good = broken.is_empty() && !checked.iter().any(is_failure);
    if options.json {
        let report = report_of(&catalog, &problems, &checked, is_good);
        if !output::print(|out| writeln!(out, "{report:#}")) {
            return Ok(Exit::Error);
        }
    } else if !show(&catalog, &problems, &checked, options) {
        return Ok(Exit::Error);
    }
    Ok(if is_good { Exit::Done } else { Exit::Error })
}

/// True for complete templates without problems. Abstract templates may lack something.
fn can_be_solved(catalog: &Catalog, name: &str, broken: &BTreeSet<DocumentFileId>) -> bool {
    if !documents::files_of(catalog, name).is_disjoint(broken) {
        return false;
    }
    let resolved = catalog.resolve(name).ok().flatten();
    resolved.is_some_and(|resolved| {
        let defaults = &resolved.template.defaults;
        defaults.provider.is_some() && !defaults.services.is_empty()
    })
}

fn check_template<'c>(
    catalog: &Catalog,
    name: &'c str,
    options: &CheckDocuments,
) -> TemplateCheck<'c> {
    let stop = deadline(options.timeout);
    let limits = SearchLimits { stop: Some(&stop), ..SearchLimits::default() };
    let at = |size: u32| -> Result<Solution, PreviewError> {
        Ok(preview(catalog, &LayoutRequest::new(name, size), limits)?.solution)
    };
    let mut checked = TemplateCheck { name, smallest: None, sized: None, failure: None };
    match smallest_size(catalog, &LayoutRequest::new(name, 1), limits) {
        Ok(Some(size)) => match at(size) {
            Ok(solution) => checked.smallest = Some((size, solution)),
            Err(error) => checked.failure = Some(error),
        },
        // No size fits: reports the reason for the smallest allowed size.
        Ok(None) => {
            let resolved = catalog.resolve(name).ok().flatten();
            let size = resolved.and_then(|one| one.template.constraints.size.min).unwrap_or(1);
            checked.failure = at(size.max(1)).err();
        }
        Err(error) => checked.failure = Some(error.into()),
    }
    if let Some(size) = options.size
        && checked.failure.is_none()
    {
        checked.sized = Some((size, at(size)));
    }
    checked
}

fn report_of(
    catalog: &Catalog,
    problems: &[CatalogProblem],
    checked: &[TemplateCheck<'_>],
    is_good: bool,
) -> Value {
    let counts = DocumentKind::ALL
        .iter()
        .map(|kind| (kind.directory().to_owned(), json!(catalog.names(*kind).count())));
    let solution = |solution: &Solution| {
        json!({
            "status": "solved",
            "size": solution.size(),
            "cost": solution.cost.map(cost),
            "layout": layout_json(solution),
        })
    };
    let templates = checked.iter().map(|one| {
        let mut value = json!({
            "name": one.name,
            "smallest": one.smallest.as_ref().map(|(size, _)| size),
            "solution": one.smallest.as_ref().map(|(_, found)| solution(found)),
            "failure": one.failure.as_ref().map(|error| error_json(catalog, error)),
        });
        if let Some((_, sized)) = &one.sized {
            value["sized"] = match sized {
                Ok(found) => solution(found),
                Err(error) => error_json(catalog, error),
            };
        }
        value
    });
    json!({
        "status": if is_good { "ok" } else { "error" },
        "documents": counts.collect::<serde_json::Map<_, _>>(),
        "problems": problems.iter().map(|one| problems::json_of(catalog, one)).collect::<Vec<_>>(),
        "templates": templates.collect::<Vec<_>>(),
    })
}

fn show(
    catalog: &Catalog,
    problems: &[CatalogProblem],
    checked: &[TemplateCheck<'_>],
    options: &CheckDocuments,
) -> bool {
    let sources = problems::sources(catalog);
    let path = |name: &str| name.to_owned();
    let shown = DiagnosticRenderer { sources: &sources, path: &path, width: output::width() };
    let of = |severity: ProblemSeverity| -> Vec<Diagnostic> {
        let of_severity = problems.iter().filter(|problem| problem.severity == severity);
        of_severity.map(problems::of_problem).collect()
    };
    let (mut errors, warnings) = (of(ProblemSeverity::Error), of(ProblemSeverity::Warning));
    for one in checked {
        let sized = one.sized.as_ref().and_then(|(_, solved)| solved.as_ref().err());
        for failure in one.failure.iter().chain(sized) {
            errors.extend(problems::of_error(one.name, failure));
        }
    }
    report::show_warnings(&shown, &warnings);
    report::show_errors(&shown, &errors);
    let mut rows = vec![vec!["TEMPLATE".to_owned(), "SIZE".to_owned(), "LAYOUT".to_owned()]];
    for one in checked {
        let sized =
            one.sized.as_ref().and_then(|(size, solved)| Some((size, solved.as_ref().ok()?)));
        let smallest = one.smallest.as_ref().map(|(size, solution)| (size, solution));
        let is_same =
            |(size, _): &(&u32, &Solution)| smallest.is_some_and(|(least, _)| least == *size);
        for (size, solution) in smallest.into_iter().chain(sized.filter(|sized| !is_same(sized))) {
            rows.push(vec![
                one.name.to_owned(),
                size.to_string(),
                solving::layout_summary(solution),
            ]);
        }
    }
    let mut out = String::new();
    if rows.len() > 1 {
        out += &text::heading_table(&rows);
    }
    let is_written = out.is_empty() || output::print_styled(&out);
    let verdict = match errors.len() {
        0 => style::good("checked"),
        _ => style::error("failed"),
    };
    let directory = style::sanitize(&options.directory.display().to_string());
    let mut line =
        format!("{verdict} {directory}: {}", style::count(catalog.files.len(), "document"));
    for (count, noun) in [(errors.len(), "error"), (warnings.len(), "warning")] {
        if count > 0 {
            line += &format!(", {}", style::count(count, noun));
        }
    }
    output::print_status(&line);
    is_written
}
