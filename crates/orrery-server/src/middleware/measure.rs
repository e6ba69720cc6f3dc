//! Metrics and traces of requests.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use orrery_base::clock::monotonic;
use tracing::Instrument as _;

use crate::metrics::Metrics;

/// Counts requests, measures their latency and opens a trace span for each.
pub(crate) async fn measure(
    State(metrics): State<Arc<Metrics>>,
    request: Request,
    next: Next,
) -> Response {
    let began = monotonic();
    let method = request.method().as_str().to_owned();
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let span = tracing::info_span!(
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        http.request.method = method,
        http.route = route,
        http.response.status_code = tracing::field::Empty,
    );
    let response = next.run(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    let status = response.status().as_u16();
    metrics.record_request((method, route), status, began.elapsed());
    response
}
