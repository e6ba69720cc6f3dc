//! Cluster documents and previews of clusters: rules behind the routes of the API.
//!
//! A change is computed on a snapshot of all documents, must leave all affected catalogs without
//! errors, and is stored only if no document changed since the snapshot.

mod changes;
mod solvable;
mod solving;
mod view;

use orrery_cluster::document::DocumentKind;
use uuid::Uuid;

use crate::error::ServerError;

pub(crate) use changes::{Author, apply, content_of, delete};
pub(crate) use solving::solve;

/// Owner of documents: a project, or the installation.
pub(crate) type Scope = Option<Uuid>;

/// Parses the kind of a request.
pub(crate) fn kind_of(id: &str) -> Result<DocumentKind, ServerError> {
    DocumentKind::from_id(id).ok_or_else(|| {
        let known: Vec<&str> = DocumentKind::ALL.iter().map(DocumentKind::id).collect();
        let reason =
            format!("{id:?} is not a kind of document: expected one of {}", known.join(", "));
        ServerError::field("kind", reason)
    })
}
