//! Cluster documents and previews of clusters: rules behind the routes of the API.
//!
//! A change is computed on a snapshot of all documents, must leave all affected catalogs without
//! errors, and is stored only if no document changed since the snapshot.

mod changes;
mod solvable;
mod solving;
mod view;

use orrery_api::ClusterDocumentKind;
use orrery_cluster::document::DocumentKind;
use uuid::Uuid;

use crate::error::ServerError;

pub(crate) use changes::{Author, apply, content_of, delete};
pub(crate) use solving::solve;

/// Owner of documents: a project, or the installation.
pub(crate) type Scope = Option<Uuid>;

/// Returns the kind of documents that a request names.
pub(crate) fn kind_from_api(kind: ClusterDocumentKind) -> DocumentKind {
    match kind {
        ClusterDocumentKind::Provider => DocumentKind::Provider,
        ClusterDocumentKind::Hardware => DocumentKind::HardwareType,
        ClusterDocumentKind::Image => DocumentKind::ImageType,
        ClusterDocumentKind::Service => DocumentKind::Service,
        ClusterDocumentKind::Partial => DocumentKind::PartialTemplate,
        ClusterDocumentKind::Template => DocumentKind::ClusterTemplate,
        ClusterDocumentKind::Tenant => DocumentKind::Tenant,
    }
}

/// Returns the API name of a kind of documents.
pub(crate) fn kind_to_api(kind: DocumentKind) -> ClusterDocumentKind {
    match kind {
        DocumentKind::Provider => ClusterDocumentKind::Provider,
        DocumentKind::HardwareType => ClusterDocumentKind::Hardware,
        DocumentKind::ImageType => ClusterDocumentKind::Image,
        DocumentKind::Service => ClusterDocumentKind::Service,
        DocumentKind::PartialTemplate => ClusterDocumentKind::Partial,
        DocumentKind::ClusterTemplate => ClusterDocumentKind::Template,
        DocumentKind::Tenant => ClusterDocumentKind::Tenant,
    }
}

/// Parses the kind in a path or a filter.
pub(crate) fn kind_of(id: &str) -> Result<DocumentKind, ServerError> {
    DocumentKind::from_id(id).ok_or_else(|| {
        let known: Vec<&str> = DocumentKind::ALL.iter().map(DocumentKind::id).collect();
        let reason =
            format!("{id:?} is not a kind of document: expected one of {}", known.join(", "));
        ServerError::field("kind", reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_same_names_in_documents_and_in_the_api() {
        for kind in ClusterDocumentKind::ALL {
            assert_eq!(kind_from_api(*kind).id(), kind.as_str());
            assert_eq!(kind_to_api(kind_from_api(*kind)), *kind);
        }
        assert_eq!(ClusterDocumentKind::ALL.len(), DocumentKind::ALL.len());
    }
}
