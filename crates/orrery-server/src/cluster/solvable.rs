//! Templates that are stored although no cluster can be made of them: found as they are stored, for a warning.

use std::sync::Arc;
use std::time::Duration;

use orrery_api::{DocumentPlace, DocumentProblem, NewClusterDocument};
use orrery_cluster::document::{Catalog, DocumentKind};
use orrery_cluster::solver::{Infeasible, Limits, Request, SolveError, smallest_size, solve};
use orrery_store::DocumentSnapshot;

use super::Scope;
use super::solving::search_briefly;
use super::view::{CatalogView, Change, Sent};
use crate::app::App;

/// Time for all templates of a request. What is not found out by then is not told.
const TIME: Duration = Duration::from_secs(3);

/// Finds the templates of a request that have no layout of any size, with all documents that count for their owner.
pub(super) async fn unsolvable(
    app: &App,
    snapshot: Arc<DocumentSnapshot>,
    scope: Scope,
    documents: Arc<Vec<(DocumentKind, NewClusterDocument)>>,
) -> Vec<DocumentProblem> {
    if !documents.iter().any(|(kind, _)| *kind == DocumentKind::ClusterTemplate) {
        return Vec::new();
    }
    let work = move |stop: &dyn Fn() -> bool| {
        let sent = Sent::new(&documents);
        let view =
            CatalogView::new(&snapshot, scope, &Change { scope, sent: Some(&sent), removed: None });
        let templates = documents.iter().enumerate().filter_map(|(index, (kind, _))| {
            let name = sent.name(index)?;
            (*kind == DocumentKind::ClusterTemplate).then_some((index, name))
        });
        let told = templates.filter_map(|(index, name)| {
            let limits = Limits { stop: Some(stop), ..Limits::default() };
            Some(told(&view, index, name, &reason(&view.catalog, name, limits)?))
        });
        told.collect::<Vec<_>>()
    };
    // A warning is not worth a refusal: a server that is busy stores without it.
    search_briefly(app, TIME, work).await.unwrap_or_default()
}

/// Why a template that is meant to be used has no layout. Those that others complete may lack something.
fn reason(catalog: &Catalog, name: &str, limits: Limits<'_>) -> Option<Infeasible> {
    let resolved = catalog.resolve(name).ok().flatten()?;
    let defaults = &resolved.template.defaults;
    if defaults.provider.is_none() || defaults.services.is_empty() {
        return None;
    }
    if !matches!(smallest_size(catalog, &Request::new(name, 1), limits), Ok(None)) {
        return None;
    }
    // No size fits: the reason is that of the smallest allowed.
    let size = resolved.template.constraints.size.min.unwrap_or(1).max(1);
    match solve(catalog, &Request::new(name, size), limits) {
        Err(SolveError::Infeasible(infeasible)) => Some(*infeasible),
        _ => None,
    }
}

fn told(view: &CatalogView, index: usize, name: &str, infeasible: &Infeasible) -> DocumentProblem {
    let nodes = if infeasible.size == 1 { "node" } else { "nodes" };
    let mut places: Vec<DocumentPlace> = Vec::new();
    for rule in &infeasible.conflict {
        let label = rule.kind.to_string();
        places.push(match &rule.place.source {
            Some(source) => view.place(source, &label),
            None => DocumentPlace { label, ..view.document(index) },
        });
    }
    // The warning stands in a document that was sent, if one of the rules does.
    let own = places.iter().position(|place| place.index.is_some());
    let place = match own {
        Some(at) => places.remove(at),
        None => view.document(index),
    };
    let advice = infeasible.advice();
    DocumentProblem {
        id: "unsolvable-template".to_owned(),
        severity: "warning".to_owned(),
        message: format!(
            "template {name} has no layout with {} {nodes}, nor with any other number",
            infeasible.size
        ),
        place,
        related: places,
        help: (!advice.is_empty()).then(|| advice.join("\n")),
    }
}
