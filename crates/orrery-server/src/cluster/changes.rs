//! Changes of documents: computed on a snapshot, and stored if nothing changed since.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_api::{
    DocumentChange, DocumentChangeKind, DocumentChanges, DocumentProblem, DocumentSeverity,
    DocumentsApplied, NewClusterDocument,
};
use orrery_cluster::document::DocumentKind;
use orrery_store::{ClusterDocumentRecord, DocumentSnapshot, DocumentWrite, Store, StoreError};
use serde_json::Value;
use uuid::Uuid;

use super::solvable::unsolvable;
use super::view::{CatalogView, Change, SentDocuments};
use super::{Scope, kind_from_api, kind_to_api};
use crate::error::ServerError;
use crate::services::Services;

/// Maximum number of documents in a request.
const DOCUMENTS_MAX: usize = 5_000;
/// Maximum size of a document in bytes.
const CONTENT_MAX: usize = 1 << 20;
/// Maximum number of attempts under concurrent changes.
const ATTEMPTS_MAX: usize = 8;
/// Maximum number of named references in a refusal.
const REFERRERS_MAX: usize = 10;

/// Author of a change, and owner of the documents.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) name: String,
    pub(crate) scope: Scope,
}

/// A document to write.
struct Write {
    kind: DocumentKind,
    name: String,
    /// `None` for a deletion.
    content: Option<String>,
    expected: Option<i64>,
}

/// A computed change.
struct ComputedChange {
    /// State of the store that it was computed for.
    head: i64,
    writes: Vec<Write>,
    changes: Vec<DocumentChange>,
    warnings: Vec<DocumentProblem>,
}

/// Stores documents, all or none of them. A dry run returns the changes.
pub(crate) async fn apply(
    services: &Services,
    author: &Author,
    changes: DocumentChanges,
) -> Result<DocumentsApplied, ServerError> {
    let DocumentChanges { documents, dry_run } = changes;
    let documents = Arc::new(admit(author.scope, documents)?);
    for _ in 0..ATTEMPTS_MAX {
        let (scope, documents) = (author.scope, Arc::clone(&documents));
        let read = {
            let documents = Arc::clone(&documents);
            move |store: &Store| {
                let snapshot = snapshot_for(store, scope)?;
                let worked = compute_change(&snapshot, scope, &documents)?;
                Ok::<_, ServerError>((worked, Arc::new(snapshot)))
            }
        };
        let (worked, snapshot) = services.try_with_store(read).await?;
        let ComputedChange { head, writes, mut changes, mut warnings } = worked;
        warnings.extend(unsolvable(services, snapshot, scope, documents).await);
        if dry_run {
            return Ok(DocumentsApplied { applied: false, documents: changes, warnings });
        }
        match write(services, author, head, writes).await {
            Err(ServerError::Store(StoreError::DocumentsChanged)) => {}
            Err(error) => return Err(error),
            Ok(written) => {
                for (change, record) in changes.iter_mut().zip(&written) {
                    change.revision = record.revision;
                }
                return Ok(DocumentsApplied { applied: true, documents: changes, warnings });
            }
        }
    }
    Err(contended())
}

/// Deletes a document without references from others. Returns the revision of the deletion.
pub(crate) async fn delete(
    services: &Services,
    author: &Author,
    kind: DocumentKind,
    name: &str,
    expected: Option<i64>,
) -> Result<i64, ServerError> {
    for _ in 0..ATTEMPTS_MAX {
        let (scope, name) = (author.scope, name.to_owned());
        let read = move |store: &Store| {
            let snapshot = snapshot_for(store, scope)?;
            check_deletion(&snapshot, scope, (kind, &name), expected)?;
            let removal = Write { kind, name, content: None, expected };
            Ok::<_, ServerError>((snapshot.head, removal))
        };
        let (head, removal) = services.try_with_store(read).await?;
        match write(services, author, head, vec![removal]).await {
            Err(ServerError::Store(StoreError::DocumentsChanged)) => {}
            Err(error) => return Err(error),
            Ok(written) => return Ok(written.first().map_or(0, |record| record.revision)),
        }
    }
    Err(contended())
}

fn contended() -> ServerError {
    ServerError::Overloaded("too many concurrent changes of cluster documents".to_owned())
}

/// Returns all documents, if the project exists.
pub(super) fn snapshot_for(store: &Store, scope: Scope) -> Result<DocumentSnapshot, StoreError> {
    if let Some(project) = scope {
        store.projects().get(project.into())?;
    }
    store.cluster_documents().snapshot()
}

async fn write(
    services: &Services,
    author: &Author,
    head: i64,
    writes: Vec<Write>,
) -> Result<Vec<ClusterDocumentRecord>, ServerError> {
    let (Author { name, scope }, now) = (author.clone(), services.now());
    let written = services.change(move |store| {
        let writes: Vec<DocumentWrite<'_>> = writes
            .iter()
            .map(|write| DocumentWrite {
                kind: write.kind.id(),
                name: &write.name,
                content: write.content.as_deref(),
                expected: write.expected,
            })
            .collect();
        let project = scope.map(Into::into);
        store.cluster_documents().write(project, head, &writes, &name, now)
    });
    Ok(written.await?)
}

/// Checks the documents without parsing their contents.
fn admit(
    scope: Scope,
    documents: Vec<NewClusterDocument>,
) -> Result<Vec<(DocumentKind, NewClusterDocument)>, ServerError> {
    if documents.len() > DOCUMENTS_MAX {
        let reason = format!("are {}: at most {DOCUMENTS_MAX} are taken", documents.len());
        return Err(ServerError::field("documents", reason));
    }
    let admit = |document: NewClusterDocument| {
        let kind = kind_from_api(document.kind);
        if kind == DocumentKind::Tenant && scope.is_some() {
            let reason = "tenants belong to the installation: a project does not set its quotas";
            return Err(ServerError::field("kind", reason));
        }
        if document.content.get().len() > CONTENT_MAX {
            let reason = format!("must have at most {CONTENT_MAX} bytes");
            return Err(ServerError::field("content", reason));
        }
        Ok((kind, document))
    };
    documents.into_iter().map(admit).collect()
}

/// Finds the stored document of exactly this scope.
fn find<'s>(
    snapshot: &'s DocumentSnapshot,
    scope: Scope,
    (kind, name): (DocumentKind, &str),
) -> Option<&'s ClusterDocumentRecord> {
    snapshot.documents.iter().find(|record| {
        record.kind == kind.id() && record.name == name && record.project.map(Uuid::from) == scope
    })
}

/// Returns the catalogs that a change affects: that of its owner and, for the installation, those
/// of all projects with documents.
fn views(snapshot: &DocumentSnapshot, scope: Scope) -> Vec<Scope> {
    let mut views = vec![scope];
    if scope.is_none() {
        let projects: BTreeSet<Uuid> =
            snapshot.documents.iter().filter_map(|record| record.project.map(Uuid::from)).collect();
        views.extend(projects.into_iter().map(Some));
    }
    views
}

/// Returns the distinct problems of all affected catalogs: errors and warnings.
fn problems(
    snapshot: &DocumentSnapshot,
    change: &Change<'_>,
) -> (Vec<DocumentProblem>, Vec<DocumentProblem>) {
    let mut all: Vec<DocumentProblem> = Vec::new();
    for view in views(snapshot, change.scope) {
        for problem in CatalogView::new(snapshot, view, change).problems() {
            if !all.contains(&problem) {
                all.push(problem);
            }
        }
    }
    all.into_iter().partition(|problem| problem.severity == DocumentSeverity::Error)
}

fn compute_change(
    snapshot: &DocumentSnapshot,
    scope: Scope,
    documents: &[(DocumentKind, NewClusterDocument)],
) -> Result<ComputedChange, ServerError> {
    let sent = SentDocuments::new(documents);
    let change = Change { scope, sent: Some(&sent), removed: None };
    let (errors, mut warnings) = problems(snapshot, &change);
    if !errors.is_empty() {
        return Err(ServerError::InvalidDocuments(errors));
    }
    // Warnings in other documents existed before.
    warnings.retain(|problem| problem.place.index.is_some());
    let (mut writes, mut changes) = (Vec::new(), Vec::new());
    for (index, (kind, document)) in documents.iter().enumerate() {
        let content = sent.name(index).and_then(|name| Some((name, sent.canonical(*kind, name)?)));
        let Some((name, after)) = content else {
            return Err(ServerError::Internal("a valid document without a name".to_owned()));
        };
        let old = find(snapshot, scope, (*kind, name));
        let current = old.map_or(0, |record| record.revision);
        if let Some(expected) = document.revision.filter(|expected| *expected != current) {
            return Err(outdated(*kind, name, expected, current));
        }
        let text = after.to_string();
        let before = old.and_then(|record| record.content.as_ref());
        let kind_of_change = match before {
            None => DocumentChangeKind::Created,
            Some(before) if *before == text => DocumentChangeKind::Unchanged,
            Some(_) => DocumentChangeKind::Updated,
        };
        let is_changed = kind_of_change != DocumentChangeKind::Unchanged;
        changes.push(DocumentChange {
            kind: kind_to_api(*kind),
            name: name.to_owned(),
            change: kind_of_change,
            revision: current,
            before: before.filter(|_| is_changed).and_then(|text| serde_json::from_str(text).ok()),
            after: Some(after).filter(|_| is_changed),
        });
        let expected = Some(current);
        writes.push(Write { kind: *kind, name: name.to_owned(), content: Some(text), expected });
    }
    Ok(ComputedChange { head: snapshot.head, writes, changes, warnings })
}

fn outdated(kind: DocumentKind, name: &str, expected: i64, current: i64) -> ServerError {
    let noun = kind.noun();
    ServerError::PreconditionFailed(match current {
        0 => {
            format!("the {noun} {name} does not exist: the change is based on revision {expected}")
        }
        current => format!(
            "the {noun} {name} was changed concurrently: it has revision {current}, not {expected}; read it again"
        ),
    })
}

fn check_deletion(
    snapshot: &DocumentSnapshot,
    scope: Scope,
    (kind, name): (DocumentKind, &str),
    expected: Option<i64>,
) -> Result<(), ServerError> {
    let Some(record) = find(snapshot, scope, (kind, name)) else {
        return Err(ServerError::NotFound { kind: kind.noun(), name: name.to_owned() });
    };
    if let Some(expected) = expected.filter(|expected| *expected != record.revision) {
        return Err(outdated(kind, name, expected, record.revision));
    }
    let mut referrers: Vec<DocumentProblem> = Vec::new();
    for view in views(snapshot, scope) {
        // If another document replaces it, references lead to that one.
        let others = match (scope, view) {
            (Some(_), _) => find(snapshot, None, (kind, name)),
            (None, Some(_)) => find(snapshot, view, (kind, name)),
            (None, None) => None,
        };
        if others.is_some() {
            continue;
        }
        for one in CatalogView::new(snapshot, view, &Change::NONE).referrers(kind, name) {
            if !referrers.contains(&one) {
                referrers.push(one);
            }
        }
    }
    if !referrers.is_empty() {
        return Err(in_use(kind, name, referrers));
    }
    let change = Change { scope, sent: None, removed: Some((kind, name)) };
    let (errors, _) = problems(snapshot, &change);
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ServerError::InvalidDocuments(errors)),
    }
}

fn in_use(kind: DocumentKind, name: &str, mut referrers: Vec<DocumentProblem>) -> ServerError {
    let mut names: Vec<String> = Vec::new();
    for one in &mut referrers {
        let place = orrery_api::DocumentPlace { path: String::new(), ..one.place.clone() };
        let place = place.to_string();
        if !names.contains(&place) {
            names.push(place);
        }
        // The message about a missing document does not apply yet.
        one.message = format!("refers to the {} {name}", kind.noun());
        one.help = None;
    }
    let more = names.len().saturating_sub(REFERRERS_MAX);
    names.truncate(REFERRERS_MAX);
    let mut names = names.join(", ");
    if more > 0 {
        names += &format!(" and {more} more");
    }
    let noun = kind.noun();
    ServerError::DocumentInUse {
        detail: format!("the {noun} {name} is in use by {names}: change or delete them first"),
        documents: referrers,
    }
}

/// Returns the document as canonical JSON.
pub(crate) fn content_of(record: &ClusterDocumentRecord) -> Option<Value> {
    serde_json::from_str(record.content.as_deref()?).ok()
}
