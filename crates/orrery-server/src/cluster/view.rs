//! Catalogs: the documents visible to the installation or to one project, stored and sent.

use std::collections::BTreeSet;

use orrery_api::{DocumentPlace, DocumentProblem, DocumentSeverity, NewClusterDocument};
use orrery_cluster::document::{
    Catalog, CatalogProblem, DocumentFileId, DocumentKind, DocumentLocation, ProblemSeverity,
    line_column,
};
use orrery_store::{ClusterDocumentRecord, DocumentSnapshot};
use uuid::Uuid;

use super::Scope;

/// Documents of a request, and their names.
pub(super) struct SentDocuments {
    /// Kind, text and name of each; the name only if it is readable and unique in the request.
    documents: Vec<(DocumentKind, String, Option<String>)>,
    /// The sent documents alone.
    catalog: Catalog,
}

impl SentDocuments {
    pub(super) fn new(documents: &[(DocumentKind, NewClusterDocument)]) -> Self {
        let mut catalog = Catalog::default();
        for (kind, document) in documents {
            catalog.add(*kind, SENT_FILE, document.content.get().to_owned());
        }
        let mut sent: Vec<(DocumentKind, String, Option<String>)> = documents
            .iter()
            .map(|(kind, document)| (*kind, document.content.get().to_owned(), None))
            .collect();
        for kind in DocumentKind::ALL {
            for name in catalog.names(kind) {
                let file = catalog.file_of(kind, name).map(|file| file.0);
                if let Some((_, _, named)) = file.and_then(|file| sent.get_mut(file)) {
                    *named = Some(name.to_owned());
                }
            }
        }
        SentDocuments { documents: sent, catalog }
    }

    pub(super) fn name(&self, index: usize) -> Option<&str> {
        self.documents.get(index).and_then(|(_, _, name)| name.as_deref())
    }

    /// Returns the canonical text of a document.
    pub(super) fn canonical(&self, kind: DocumentKind, name: &str) -> Option<serde_json::Value> {
        self.catalog.canonical(kind, name)
    }

    fn names(&self) -> BTreeSet<(DocumentKind, &str)> {
        let named = self.documents.iter();
        named.filter_map(|(kind, _, name)| Some((*kind, name.as_deref()?))).collect()
    }
}

/// File name of sent documents, which are JSON.
const SENT_FILE: &str = "document.json";

/// Origin of a file of a catalog.
struct Origin {
    kind: DocumentKind,
    name: Option<String>,
    project: Scope,
    /// Index of the document in the request.
    index: Option<usize>,
}

/// Documents visible to the installation or to one project: those of a project override those of
/// the installation with the same kind and name.
pub(super) struct CatalogView {
    pub(super) catalog: Catalog,
    /// By file number.
    origins: Vec<Origin>,
}

/// A change to apply to a catalog.
pub(super) struct Change<'a> {
    /// Owner of the changed documents.
    pub(super) scope: Scope,
    pub(super) sent: Option<&'a SentDocuments>,
    pub(super) removed: Option<(DocumentKind, &'a str)>,
}

impl Change<'_> {
    pub(super) const NONE: Change<'static> = Change { scope: None, sent: None, removed: None };
}

pub(super) fn kind_of(record: &ClusterDocumentRecord) -> Option<DocumentKind> {
    // Kinds are checked when documents are stored; one of a newer program is ignored.
    DocumentKind::from_id(&record.kind)
}

impl CatalogView {
    /// Builds the catalog for `view`, after a change.
    pub(super) fn new(snapshot: &DocumentSnapshot, view: Scope, change: &Change<'_>) -> Self {
        let mut new = CatalogView { catalog: Catalog::default(), origins: Vec::new() };
        // Owners in order of precedence.
        let owners = match view {
            Some(project) => vec![Some(project), None],
            None => vec![None],
        };
        for owner in owners {
            let of_change = change.scope == owner;
            let sent = change.sent.filter(|_| of_change);
            if let Some(sent) = sent {
                new.add_sent(sent, owner);
            }
            let replaced = sent.map(SentDocuments::names).unwrap_or_default();
            let removed = change.removed.filter(|_| of_change);
            for record in &snapshot.documents {
                let (Some(kind), Some(content)) = (kind_of(record), &record.content) else {
                    continue;
                };
                let key = (kind, record.name.as_str());
                let is_meant = record.project.map(Uuid::from) == owner
                    && !replaced.contains(&key)
                    && removed != Some(key)
                    && !new.catalog.has(kind, &record.name);
                if is_meant {
                    new.catalog.add_stored(kind, &record.name, content.clone());
                    let name = Some(record.name.clone());
                    new.origins.push(Origin { kind, name, project: owner, index: None });
                }
            }
        }
        new
    }

    fn add_sent(&mut self, sent: &SentDocuments, owner: Scope) {
        // After documents of a project, the overridden ones are skipped, and those without a name
        // are reported for their owner.
        let is_first = self.origins.is_empty();
        for (index, (kind, text, name)) in sent.documents.iter().enumerate() {
            let is_replaced =
                name.as_ref().is_none_or(|name| self.catalog.has(*kind, name)) && !is_first;
            if is_replaced {
                continue;
            }
            self.catalog.add(*kind, SENT_FILE, text.clone());
            let name = name.clone();
            self.origins.push(Origin { kind: *kind, name, project: owner, index: Some(index) });
        }
    }

    /// Returns the problems of all documents in API form.
    pub(super) fn problems(&self) -> Vec<DocumentProblem> {
        self.catalog.check().iter().map(|problem| self.to_api_problem(problem)).collect()
    }

    /// Returns the references to a document from others.
    pub(super) fn referrers(&self, kind: DocumentKind, name: &str) -> Vec<DocumentProblem> {
        self.catalog
            .referrers(kind, name)
            .iter()
            .map(|problem| self.to_api_problem(problem))
            .collect()
    }

    fn to_api_problem(&self, problem: &CatalogProblem) -> DocumentProblem {
        let related = problem.related.iter();
        DocumentProblem {
            id: problem.kind.diagnostic_id().to_owned(),
            severity: match problem.severity {
                ProblemSeverity::Error => DocumentSeverity::Error,
                ProblemSeverity::Warning => DocumentSeverity::Warning,
            },
            message: problem.message.clone(),
            place: self.location(&problem.location, &problem.label),
            related: related.map(|(place, label)| self.location(place, label)).collect(),
            help: problem.help.clone(),
        }
    }

    /// Location of a whole document of the request.
    pub(super) fn document(&self, index: usize) -> DocumentPlace {
        let origin = self.origins.iter().find(|origin| origin.index == Some(index));
        origin.map_or_else(DocumentPlace::default, |origin| DocumentPlace {
            kind: origin.kind.id().to_owned(),
            name: origin.name.clone(),
            project: origin.project,
            index: Some(index),
            ..DocumentPlace::default()
        })
    }

    pub(super) fn location(&self, place: &DocumentLocation, label: &str) -> DocumentPlace {
        let DocumentFileId(number) = place.file;
        let mut told = DocumentPlace {
            path: place.path.clone(),
            label: label.to_owned(),
            ..DocumentPlace::default()
        };
        if let Some(origin) = self.origins.get(number) {
            origin.kind.id().clone_into(&mut told.kind);
            told.name.clone_from(&origin.name);
            told.project = origin.project;
            told.index = origin.index;
            if origin.index.is_some() {
                let text = &self.catalog.file(place.file).text;
                let (line, column) = line_column(text, place.span.start);
                (told.line, told.column) = (Some(line), Some(column));
            }
        }
        told
    }
}
