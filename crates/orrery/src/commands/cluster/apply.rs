//! Stores documents from files on a server: diff, confirmation, and one atomic request.

use orrery_api::client::ClientError;
use orrery_api::{
    DocumentChange, DocumentChangeKind, DocumentChanges, DocumentsApplied, NewClusterDocument,
    UnknownVariant,
};
use orrery_base::line_diff::hunks;
use orrery_cluster::document::{
    Catalog, CatalogProblem, DocumentFileId, DocumentKind, ProblemKind, ProblemSeverity,
};
use orrery_compiler::diagnostic::Diagnostic;
use serde_json::Value;
use serde_json::value::to_raw_value;

use super::document_commands::{self, Scope};
use super::{documents, problems, solve as solving};
use crate::cli::cluster::{ChangeOptions, ImportDocuments};
use crate::commands::remote::{print_json, terminal};
use crate::commands::report;
use crate::error::CliError;
use crate::remote::Remote;
use crate::render::DiagnosticRenderer;
use crate::{Exit, output, style};

/// `orrery cluster import`
pub(super) fn import(options: &ImportDocuments) -> Result<Exit, CliError> {
    let catalog = documents::read(&options.directory)?;
    let remote = options.server.open(None)?;
    let scope = document_commands::scope_of(&remote, options.project.as_deref())?;
    apply(&remote, &scope, &catalog, &options.change, options.json)
}

/// Stores the documents of a catalog, all or none of them.
pub(super) fn apply(
    remote: &Remote,
    scope: &Scope,
    catalog: &Catalog,
    options: &ChangeOptions,
    json: bool,
) -> Result<Exit, CliError> {
    let broken: Vec<CatalogProblem> = catalog.check().into_iter().filter(is_own_error).collect();
    if !broken.is_empty() {
        let diagnostics: Vec<Diagnostic> = broken.iter().map(problems::of_problem).collect();
        solving::show(catalog, &diagnostics);
        return Ok(Exit::Error);
    }
    let (files, mut documents) = documents_of(catalog)?;
    let at = scope.path(&["apply"]);
    let send = |documents: Vec<NewClusterDocument>, dry_run: bool| {
        let changes = DocumentChanges { documents, dry_run };
        remote.client.post::<DocumentsApplied>(&at, &changes)
    };
    let planned = match send(documents.clone(), true) {
        Ok(planned) => planned,
        Err(error) => return refuse(catalog, &files, error),
    };
    show_warnings(catalog, &files, &planned);
    let changed = count(&planned, |change| change != DocumentChangeKind::Unchanged);
    if !json {
        let text: String = planned.documents.iter().map(difference).collect();
        if !text.is_empty() && !output::print_styled(&text) {
            return Ok(Exit::Error);
        }
    }
    if changed == 0 || options.dry_run {
        print_summary(&planned, "would be ", json)?;
        return Ok(if changed == 0 { Exit::Done } else { Exit::Pending });
    }
    terminal::agree(options.yes, &format!("change {}", style::count(changed, "document")))?;
    // Apply exactly the change that was shown, or fail.
    for (document, change) in documents.iter_mut().zip(&planned.documents) {
        document.revision = Some(change.revision);
    }
    match send(documents, false) {
        Ok(applied) => print_summary(&applied, "", json),
        Err(error) => refuse(catalog, &files, error),
    }
}

/// True for errors that no document on the server can resolve.
fn is_own_error(problem: &CatalogProblem) -> bool {
    let is_own = matches!(
        problem.kind,
        ProblemKind::DocumentSyntax
            | ProblemKind::UnknownField
            | ProblemKind::MissingField
            | ProblemKind::InvalidField
            | ProblemKind::DuplicateField
            | ProblemKind::DuplicateDocument
    );
    is_own && problem.severity == ProblemSeverity::Error
}

/// Documents in the order of their files.
fn documents_of(
    catalog: &Catalog,
) -> Result<(Vec<DocumentFileId>, Vec<NewClusterDocument>), CliError> {
    let mut found: Vec<(DocumentFileId, DocumentKind, Value)> = Vec::new();
    for kind in DocumentKind::ALL {
        for name in catalog.names(kind) {
            let content = catalog.file_of(kind, name).zip(catalog.canonical(kind, name));
            found.extend(content.map(|(file, content)| (file, kind, content)));
        }
    }
    found.sort_by_key(|(file, ..)| *file);
    let mut documents = Vec::with_capacity(found.len());
    for (_, kind, content) in &found {
        let content = to_raw_value(content).map_err(|error| CliError::from_error(&error))?;
        let kind =
            kind.id().parse().map_err(|error: UnknownVariant| CliError::from_error(&error))?;
        documents.push(NewClusterDocument { kind, content, revision: None });
    }
    Ok((found.into_iter().map(|(file, ..)| file).collect(), documents))
}

/// Shows problems that the server found, at their locations in the files.
fn refuse(
    catalog: &Catalog,
    files: &[DocumentFileId],
    error: ClientError,
) -> Result<Exit, CliError> {
    let found = error.problem().filter(|problem| !problem.documents.is_empty());
    let Some(problem) = found else { return Err(error.into()) };
    let all = problem.documents.iter();
    let diagnostics: Vec<Diagnostic> =
        all.map(|one| problems::of_server(catalog, files, one)).collect();
    solving::show(catalog, &diagnostics);
    Err(CliError::new(problem.detail.clone()))
}

fn show_warnings(catalog: &Catalog, files: &[DocumentFileId], planned: &DocumentsApplied) {
    let all = planned.warnings.iter();
    let warnings: Vec<Diagnostic> =
        all.map(|one| problems::of_server(catalog, files, one)).collect();
    let sources = problems::sources(catalog);
    let path = |name: &str| name.to_owned();
    let shown = DiagnosticRenderer { sources: &sources, path: &path, width: output::width() };
    // Conflicting rules need more than a line.
    let (unsolvable, others): (Vec<Diagnostic>, Vec<Diagnostic>) =
        warnings.into_iter().partition(|one| one.id == Some("unsolvable-template"));
    report::show_warnings(&shown, &others);
    for warning in &unsolvable {
        output::print_status(&shown.long(warning));
        output::print_status("");
    }
}

fn count(applied: &DocumentsApplied, is_meant: impl Fn(DocumentChangeKind) -> bool) -> usize {
    applied.documents.iter().filter(|one| is_meant(one.change)).count()
}

/// `2 documents created, 1 updated, 5 unchanged`
fn print_summary(applied: &DocumentsApplied, would: &str, json: bool) -> Result<Exit, CliError> {
    if json {
        return print_json(applied);
    }
    let kinds = [
        (DocumentChangeKind::Created, "created"),
        (DocumentChangeKind::Updated, "updated"),
        (DocumentChangeKind::Unchanged, "unchanged"),
    ];
    let mut parts = Vec::new();
    for (kind, word) in kinds {
        let number = count(applied, |change| change == kind);
        if number == 0 {
            continue;
        }
        let would = if kind == DocumentChangeKind::Unchanged { "" } else { would };
        parts.push(match parts.is_empty() {
            true => format!("{} {would}{word}", style::count(number, "document")),
            false => format!("{} {would}{word}", style::grouped(number)),
        });
    }
    if parts.is_empty() {
        parts.push("no documents".to_owned());
    }
    output::print_status(&parts.join(", "));
    Ok(Exit::Done)
}

/// Styled diff of one document; empty if it is unchanged.
fn difference(change: &DocumentChange) -> String {
    let name = style::sanitize(&change.name);
    let noun = DocumentKind::from_id(change.kind.as_str())
        .map_or(change.kind.as_str(), |kind| kind.noun());
    let pretty = |content: &Option<Value>| {
        let text = content.as_ref().map(|content| format!("{content:#}\n"));
        style::sanitize(&text.unwrap_or_default())
    };
    let (old, new) = (pretty(&change.before), pretty(&change.after));
    let mut text = match change.change {
        DocumentChangeKind::Unchanged => return String::new(),
        DocumentChangeKind::Created => style::added(&format!("+ {noun} {name}")),
        DocumentChangeKind::Updated => style::changed(&format!("~ {noun} {name}")),
    };
    text.push('\n');
    if change.change == DocumentChangeKind::Created {
        return text;
    }
    for line in hunks(&old, &new, None).iter().flat_map(|hunk| &hunk.lines) {
        let shown = format!("    {}{}", line.kind.sign(), line.text.trim_end_matches('\n'));
        text += &style::in_diff_color(line.kind, shown);
        text.push('\n');
    }
    text
}
