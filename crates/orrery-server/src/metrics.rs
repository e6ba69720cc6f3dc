//! Metrics of a server, exposed by `/metrics` in the OpenMetrics format.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use orrery_model::OutcomeStatus;
use orrery_store::{PoolStatus, Store};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tracing::Instrument as _;

use crate::app::App;
use crate::error::ServerError;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    /// Route pattern instead of the path, which would create a series per id.
    route: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AgentCallLabels {
    /// Result: `answered`, `not_connected`, `unknown`, …
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    /// Outcome of a handler's run or a compile.
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ConnectionLabels {
    /// `idle` or `used`.
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct IsolationLabels {
    /// `sandboxed`, `shared` or `refused`.
    kind: &'static str,
}

/// Seconds: from a handler that finds no change to a compile of a large model.
const RUN_BUCKETS: [f64; 10] = [0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0];

/// Seconds: from a cached response to a noticeable delay.
const LATENCY_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// All metrics of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    latency: Family<RouteLabels, Histogram>,
    /// Environments whose lease this process holds.
    pub(crate) environments: Gauge,
    /// Versions that engines have applied.
    pub(crate) versions: Counter,
    /// Failures to operate an environment.
    pub(crate) environment_errors: Counter,
    /// Sessions of remote agents with this process.
    pub(crate) agent_sessions: Gauge,
    agent_calls: Family<AgentCallLabels, Counter>,
    handler_runs: Family<OutcomeLabels, Counter>,
    handler_seconds: Histogram,
    compiles: Family<OutcomeLabels, Counter>,
    compile_seconds: Histogram,
    connections: Family<ConnectionLabels, Gauge>,
    connections_max: Gauge,
    isolation: Family<IsolationLabels, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("orrery");
        let requests = Family::default();
        registry.register("http_requests", "Answered requests", requests.clone());
        let latency: Family<RouteLabels, Histogram> =
            Family::new_with_constructor(|| Histogram::new(LATENCY_BUCKETS));
        let help = "Time from the arrival of a request to the start of its response";
        registry.register("http_request_seconds", help, latency.clone());
        let environments = Gauge::default();
        let help = "Environments whose lease this process holds";
        registry.register("environments_held", help, environments.clone());
        let versions = Counter::default();
        registry.register("versions_taken_in", "Versions that engines applied", versions.clone());
        let environment_errors = Counter::default();
        let help = "Failures to operate an environment";
        registry.register("environment_troubles", help, environment_errors.clone());
        let agent_sessions = Gauge::default();
        let help = "Remote agents that are connected to this process";
        registry.register("agent_sessions", help, agent_sessions.clone());
        let agent_calls = Family::default();
        let help = "Commands to remote agents, by result";
        registry.register("agent_calls", help, agent_calls.clone());
        let handler_runs = Family::default();
        let help = "Runs of handlers, by outcome";
        registry.register("handler_runs", help, handler_runs.clone());
        let handler_seconds = Histogram::new(RUN_BUCKETS);
        registry.register(
            "handler_run_seconds",
            "Duration of handler runs",
            handler_seconds.clone(),
        );
        let compiles = Family::default();
        registry.register("compiles", "Compiles, by outcome", compiles.clone());
        let compile_seconds = Histogram::new(RUN_BUCKETS);
        registry.register("compile_seconds", "Duration of compiles", compile_seconds.clone());
        let connections = Family::default();
        let help = "Connections to PostgreSQL that this process has";
        registry.register("database_connections", help, connections.clone());
        let connections_max = Gauge::default();
        let help = "Maximum number of connections; 0 without PostgreSQL";
        registry.register("database_connections_max", help, connections_max.clone());
        let isolation = Family::default();
        let help = "Isolation of tenant code: 1 for the current mode";
        registry.register("isolation", help, isolation.clone());
        Metrics {
            registry,
            requests,
            latency,
            environments,
            versions,
            environment_errors,
            agent_sessions,
            agent_calls,
            handler_runs,
            handler_seconds,
            compiles,
            compile_seconds,
            connections,
            connections_max,
            isolation,
        }
    }
}

impl Metrics {
    /// Sets the isolation mode.
    pub(crate) fn set_isolation(&self, isolation: Option<&'static str>) {
        for kind in ["sandboxed", "shared", "refused"] {
            let is = i64::from(isolation == Some(kind));
            self.isolation.get_or_create(&IsolationLabels { kind }).set(is);
        }
    }

    /// Counts a command to a remote agent.
    pub(crate) fn count_agent_call(&self, result: &'static str) {
        self.agent_calls.get_or_create(&AgentCallLabels { result }).inc();
    }

    /// Counts a run of a handler.
    pub(crate) fn record_handler_run(&self, outcome: OutcomeStatus, took: Duration) {
        self.handler_runs.get_or_create(&OutcomeLabels { outcome: outcome.as_str() }).inc();
        self.handler_seconds.observe(took.as_secs_f64());
    }

    /// Counts a compile.
    pub(crate) fn record_compile(&self, outcome: &'static str, took: Duration) {
        self.compiles.get_or_create(&OutcomeLabels { outcome }).inc();
        self.compile_seconds.observe(took.as_secs_f64());
    }

    /// Updates the gauges that are read on demand.
    fn update_connections(&self, store: &dyn Store) {
        let Some(PoolStatus { open, idle, max }) = store.connections() else { return };
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let states = [("idle", idle), ("used", open.saturating_sub(idle))];
        for (state, number) in states {
            self.connections.get_or_create(&ConnectionLabels { state }).set(count(number));
        }
        self.connections_max.set(count(max));
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Counts requests, measures their latency and opens a trace span for each.
pub(crate) async fn measure(State(app): State<App>, request: Request, next: Next) -> Response {
    let began = Instant::now();
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
    let metrics: &Arc<Metrics> = app.metrics();
    let status = response.status().as_u16();
    metrics
        .latency
        .get_or_create(&RouteLabels { route: route.clone() })
        .observe(began.elapsed().as_secs_f64());
    metrics.requests.get_or_create(&RequestLabels { method, route, status }).inc();
    response
}

/// Metrics of this process, in the OpenMetrics format.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "All meters", body = String, content_type = "application/openmetrics-text"),
        (status = 401, body = orrery_api::Problem, content_type = "application/problem+json"),
        (status = 403, body = orrery_api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn show(State(app): State<App>) -> Result<Response, ServerError> {
    app.metrics().update_connections(&**app.store());
    let text = app.metrics().text().map_err(|error| ServerError::Internal(error.to_string()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response())
}
