//! Warnings for stored templates without a feasible layout.

use std::sync::Arc;
use std::time::Duration;

use orrery_api::{DocumentPlace, DocumentProblem, DocumentSeverity, NewClusterDocument};
use orrery_cluster::document::{Catalog, DocumentKind};
use orrery_cluster::solver::{
    Infeasible, LayoutRequest, SearchLimits, SolveError, smallest_size, solve,
};
use orrery_store::DocumentSnapshot;

use super::Scope;
use super::solving::search_briefly;
use super::view::{CatalogView, Change, SentDocuments};
use crate::services::Services;

/// Time limit for all templates of a request. Templates beyond it are not reported.
const TIME: Duration = Duration::from_secs(3);

/// Finds the templates of a request without a layout of any size, given all documents of their
/// owner.
pub(super) async fn unsolvable(
    services: &Services,
    snapshot: Arc<DocumentSnapshot>,
    scope: Scope,
    documents: Arc<Vec<(DocumentKind, NewClusterDocument)>>,
) -> Vec<DocumentProblem> {
    if !documents.iter().any(|(kind, _)| *kind == DocumentKind::ClusterTemplate) {
        return Vec::new();
    }
    let work = move |stop: &dyn Fn() -> bool| {
        let sent = SentDocuments::new(&documents);
        let view =
            CatalogView::new(&snapshot, scope, &Change { scope, sent: Some(&sent), removed: None });
        let templates = documents.iter().enumerate().filter_map(|(index, (kind, _))| {
            let name = sent.name(index)?;
            (*kind == DocumentKind::ClusterTemplate).then_some((index, name))
        });
        let told = templates.filter_map(|(index, name)| {
            let limits = SearchLimits { stop: Some(stop), ..SearchLimits::default() };
            Some(to_api_problem(&view, index, name, &reason(&view.catalog, name, limits)?))
        });
        told.collect::<Vec<_>>()
    };
    // A warning is optional: a busy server skips it.
    search_briefly(services, TIME, work).await.unwrap_or_default()
}

/// Returns the reason why a complete template has no layout. Partial templates may lack something.
fn reason(catalog: &Catalog, name: &str, limits: SearchLimits<'_>) -> Option<Infeasible> {
    let resolved = catalog.resolve(name).ok().flatten()?;
    let defaults = &resolved.template.defaults;
    if defaults.provider.is_none() || defaults.services.is_empty() {
        return None;
    }
    if !matches!(smallest_size(catalog, &LayoutRequest::new(name, 1), limits), Ok(None)) {
        return None;
    }
    // No size is feasible: the reason is that of the smallest one.
    let size = resolved.template.constraints.size.min.unwrap_or(1).max(1);
    match solve(catalog, &LayoutRequest::new(name, size), limits) {
        Err(SolveError::Infeasible(infeasible)) => Some(*infeasible),
        _ => None,
    }
}

fn to_api_problem(
    view: &CatalogView,
    index: usize,
    name: &str,
    infeasible: &Infeasible,
) -> DocumentProblem {
    let nodes = if infeasible.size == 1 { "node" } else { "nodes" };
    let mut places: Vec<DocumentPlace> = Vec::new();
    for rule in &infeasible.conflict {
        let label = rule.kind.to_string();
        places.push(match &rule.location.source {
            Some(source) => view.location(source, &label),
            None => DocumentPlace { label, ..view.document(index) },
        });
    }
    // The warning refers to a document of the request, if it contains one of the rules.
    let own = places.iter().position(|place| place.index.is_some());
    let place = match own {
        Some(at) => places.remove(at),
        None => view.document(index),
    };
    let advice = infeasible.advice();
    DocumentProblem {
        id: "unsolvable-template".to_owned(),
        severity: DocumentSeverity::Warning,
        message: format!(
            "template {name} has no layout with {} {nodes}, nor with any other number",
            infeasible.size
        ),
        place,
        related: places,
        help: (!advice.is_empty()).then(|| advice.join("\n")),
    }
}
