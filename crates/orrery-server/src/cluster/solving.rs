//! Previews of clusters: solved on separate threads, a few at a time, until the deadline or until
//! the client disconnects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orrery_api::{ExistingLayout, SolveAnswer, SolveRequest};
use orrery_base::clock::monotonic;
use orrery_cluster::document::{Catalog, DocumentKind};
use orrery_cluster::preview::{
    ExistingCluster, PreviewError, PreviewNode, error_json, preview, preview_from,
};
use orrery_cluster::solver::{
    Invalid, InvalidReason, LayoutRequest, MAX_SIZE, ResizeError, SearchLimits, SolveError,
    SolverMode,
};
use orrery_model::similar_names::closest;
use orrery_store::DocumentSnapshot;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Scope;
use super::changes::snapshot_for;
use super::view::{CatalogView, Change};
use crate::error::ServerError;
use crate::services::Services;

/// Limit of concurrent searches: each takes a processor.
static SOLVERS: Semaphore = Semaphore::const_new(2);
/// Maximum time to wait for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUT_DEFAULT: u64 = 10;
const TIMEOUT_MAX: u64 = 30;

/// Cancels a search when its request is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Solves a request with the documents of the installation, or with those visible to a project.
pub(crate) async fn solve(
    services: &Services,
    scope: Scope,
    request: SolveRequest,
) -> Result<SolveAnswer, ServerError> {
    let timeout = request.timeout.unwrap_or(TIMEOUT_DEFAULT);
    if !(1..=TIMEOUT_MAX).contains(&timeout) {
        let reason = format!("is {timeout}: it must be 1 to {TIMEOUT_MAX} seconds");
        return Err(ServerError::field("timeout", reason));
    }
    let nodes = request.from.as_ref().map_or(0, |from| from.nodes.len());
    if nodes > MAX_SIZE as usize {
        let reason = format!("has {nodes} nodes: at most {MAX_SIZE} are taken");
        return Err(ServerError::field("from", reason));
    }
    let snapshot = services.with_store(move |store| snapshot_for(store, scope)).await?;
    let limit = Duration::from_secs(timeout);
    let work = move |stop: &dyn Fn() -> bool| answer(&snapshot, scope, request, stop);
    search(&SOLVERS, services.stopping().clone(), limit, work).await?
}

/// Timeout of the search of an operation.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the search for the layout of an operation.
pub(crate) async fn search_layout<T: Send + 'static>(
    services: &Services,
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Result<T, ServerError> {
    search(&SOLVERS, services.stopping().clone(), OPERATION_TIMEOUT, work).await
}

/// Limits of a search that `stop` ends.
pub(crate) fn limits(stop: &dyn Fn() -> bool) -> SearchLimits<'_> {
    SearchLimits { stop: Some(stop), ..SearchLimits::default() }
}

/// The documents that are visible to a project or to the installation.
pub(crate) fn catalog(snapshot: &DocumentSnapshot, scope: Scope) -> Catalog {
    CatalogView::new(snapshot, scope, &Change::NONE).catalog
}

/// Runs an optional search for a short time.
pub(super) async fn search_briefly<T: Send + 'static>(
    services: &Services,
    limit: Duration,
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Option<T> {
    let found = search(&SOLVERS, services.stopping().clone(), limit, work);
    // Includes the time to wait for a permit.
    tokio::time::timeout(2 * limit, found).await.ok()?.ok()
}

/// Runs a search on a separate thread, after acquiring a permit. It is cancelled at its timeout,
/// when the server stops, and when the future is dropped.
async fn search<T: Send + 'static>(
    turns: &'static Semaphore,
    stopping: CancellationToken,
    limit: Duration,
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Result<T, ServerError> {
    let turn = tokio::time::timeout(PERMIT_TIMEOUT, turns.acquire()).await;
    let turn = turn
        .map_err(|_| ServerError::Overloaded("other clusters are being solved".to_owned()))?
        .map_err(|_| ServerError::Stopping)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    let guard = CancelOnDrop(Arc::clone(&cancelled));
    let end = monotonic() + limit;
    let work = move || {
        let stop =
            || cancelled.load(Ordering::Relaxed) || stopping.is_cancelled() || monotonic() >= end;
        let found = work(&stop);
        // Only now may another search begin, even if this result is not awaited.
        drop(turn);
        found
    };
    let found = tokio::task::spawn_blocking(work).await;
    drop(guard);
    match found {
        Ok(found) => Ok(found),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ServerError::Stopping),
    }
}

fn answer(
    snapshot: &DocumentSnapshot,
    scope: Scope,
    request: SolveRequest,
    stop: &dyn Fn() -> bool,
) -> Result<SolveAnswer, ServerError> {
    let view = CatalogView::new(snapshot, scope, &Change::NONE);
    let catalog = &view.catalog;
    let mut wanted = LayoutRequest::new(request.template, request.size);
    if request.compatible {
        wanted.mode = SolverMode::Compatible;
    }
    wanted.provider = request.settings.provider;
    wanted.hardware = request.settings.hardwaretype;
    wanted.image = request.settings.imagetype;
    wanted.services = request.settings.services;
    if !catalog.has(DocumentKind::ClusterTemplate, &wanted.template) {
        let mut name = wanted.template.clone();
        if let Some(close) = closest(&name, catalog.names(DocumentKind::ClusterTemplate)) {
            name += &format!("; did you mean {close}?");
        }
        return Err(ServerError::NotFound { kind: "template", name });
    }
    let limits = SearchLimits { stop: Some(stop), ..SearchLimits::default() };
    let found = match request.from.map(existing) {
        Some(existing) => preview_from(catalog, &wanted, &existing, limits),
        None => preview(catalog, &wanted, limits),
    };
    let told = match found {
        Ok(found) => found.to_json(),
        Err(PreviewError::Solve(SolveError::Invalid(all))) => return Err(unsuitable(&all)),
        Err(
            error @ (PreviewError::Solve(SolveError::Infeasible(_) | SolveError::Interrupted(_))
            | PreviewError::Resize(
                ResizeError::NoGrowth { .. }
                | ResizeError::NoShrinking { .. }
                | ResizeError::Interrupted(_),
            )),
        ) => error_json(catalog, &error),
        Err(error) => return Err(refused(error.to_string())),
    };
    serde_json::from_value(told).map_err(|error| ServerError::Internal(error.to_string()))
}

fn existing(layout: ExistingLayout) -> ExistingCluster {
    let node = |node: orrery_api::PreviewedNode| PreviewNode {
        name: node.name,
        number: node.number,
        hardwaretype: node.hardwaretype,
        imagetype: node.imagetype,
        services: node.services,
    };
    ExistingCluster { nodes: layout.nodes.into_iter().map(node).collect(), next: layout.next }
}

fn unsuitable(all: &[Invalid]) -> ServerError {
    let message = |invalid: &Invalid| {
        let mut text = invalid.message.clone();
        if let Some(place) = &invalid.location {
            text += &format!(" ({} at {})", place.document, place.path);
        }
        if let Some(help) = &invalid.help {
            text += &format!("; {help}");
        }
        text
    };
    debug_assert!(
        all.iter().all(|invalid| invalid.reason != InvalidReason::TemplateNotFound),
        "looked for before"
    );
    refused(all.iter().map(message).collect::<Vec<_>>().join("; "))
}

fn refused(detail: String) -> ServerError {
    ServerError::rule("unsuitable-request", detail)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Longer than any of these tests takes.
    const LONG: Duration = Duration::from_secs(600);

    /// Searches until it is cancelled, and reports its start and end.
    fn endless(tell: mpsc::Sender<&'static str>) -> impl FnOnce(&dyn Fn() -> bool) + Send {
        move |stop| {
            tell.send("begun").unwrap();
            while !stop() {
                std::thread::sleep(Duration::from_millis(1));
            }
            tell.send("ended").unwrap();
        }
    }

    #[tokio::test]
    async fn a_search_ends_with_its_request() {
        static TURNS: Semaphore = Semaphore::const_new(1);
        let (tell, told) = mpsc::channel();
        let request = search(&TURNS, CancellationToken::new(), LONG, endless(tell.clone()));
        // The client disconnects.
        assert!(tokio::time::timeout(Duration::from_millis(50), request).await.is_err());
        assert_eq!(told.recv_timeout(LONG), Ok("begun"));
        assert_eq!(told.recv_timeout(Duration::from_secs(30)), Ok("ended"));
        // The permit is free again.
        let next = search(&TURNS, CancellationToken::new(), LONG, |_| 7).await;
        assert_eq!(next.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_search_ends_with_its_time_and_with_the_server() {
        static TURNS: Semaphore = Semaphore::const_new(1);
        let (tell, _told) = mpsc::channel();
        let short = Duration::from_millis(20);
        search(&TURNS, CancellationToken::new(), short, endless(tell.clone())).await.unwrap();
        let stopping = CancellationToken::new();
        let ends = stopping.clone();
        tokio::spawn(async move {
            tokio::time::sleep(short).await;
            ends.cancel();
        });
        search(&TURNS, stopping, LONG, endless(tell)).await.unwrap();
    }

    #[tokio::test]
    async fn concurrent_searches_are_limited() {
        static TURNS: Semaphore = Semaphore::const_new(2);
        static RUNNING: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        static MOST: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let work = |_: &dyn Fn() -> bool| {
            MOST.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            RUNNING.fetch_sub(1, Ordering::SeqCst);
        };
        let all = (0..8).map(|_| search(&TURNS, CancellationToken::new(), LONG, work));
        for done in futures_util::future::join_all(all).await {
            done.unwrap();
        }
        assert_eq!(MOST.load(Ordering::SeqCst), 2);
    }
}
