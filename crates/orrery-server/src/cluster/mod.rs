//! Clusters: their documents, intents and operations, and what engines need for them.
//!
//! | module | contents |
//! |---|---|
//! | `changes`, `view`, `solvable` | documents |
//! | `solving` | searches for layouts, and previews |
//! | `intents`, `lease`, `operations`, `plans` | operations, computed |
//! | `storing`, `roll_up`, `progress` | operations, stored and followed |
//! | `runtime` | handlers, slots and views of clusters |
//!
//! A change of documents is computed on a snapshot of all documents, must leave all affected catalogs without
//! errors, and is stored only if no document changed since the snapshot.

mod changes;
mod intents;
pub(crate) mod lease;
mod operations;
mod plans;
mod progress;
mod roll_up;
mod runtime;
mod solvable;
mod solving;
mod storing;
mod view;

use orrery_api::ClusterDocumentKind;
use orrery_cluster::document::{DocumentKind, Tenant};
use orrery_store::{DocumentName, Store, StoreError};
use uuid::Uuid;

use crate::error::ServerError;

pub(crate) use changes::{Author, apply, content_of, delete};
#[cfg(test)]
pub(crate) use intents::encode as encode_intent;
pub(crate) use intents::{ClusterState, load, read as read_intent};
pub(crate) use operations::{
    ComputedOperation, OperationInputs, check, create, operate, previous_intent,
};
pub(crate) use plans::layout;
pub(crate) use progress::{count, of_environment as progress, service_of};
pub(crate) use roll_up::{RollUp, expire, failed_status, roll_up};
pub(crate) use runtime::{ClusterRuntime, SLOTS, manifests, node_facts};
pub(crate) use solving::{catalog, limits, search_layout as search, solve};
pub(crate) use storing::{Attempt, begin, create as store_creation};

/// The tenant document with the name of a project; one without limits if there is none.
pub(crate) fn tenant_of(store: &Store, project: &str) -> Result<Tenant, StoreError> {
    let kind = DocumentKind::Tenant.id();
    let document = DocumentName { project: None, kind, name: project };
    let content = match store.cluster_documents().get(document, None) {
        Ok(record) => record.content.unwrap_or_default(),
        Err(StoreError::NotFound { .. }) => return Ok(Tenant::default()),
        Err(error) => return Err(error),
    };
    serde_json::from_str(&content)
        .map_err(|error| StoreError::Unreadable(format!("the tenant {project}: {error}")))
}

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
