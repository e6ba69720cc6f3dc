//! What can be measured of a server, in one place; `/metrics` shows it in the format of OpenMetrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use orrery_model::OutcomeStatus;
use orrery_store::{Connections, Store};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tracing::Instrument as _;

use crate::app::App;
use crate::problem::ServerError;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Call {
    method: String,
    /// The pattern of the path, not the path: ids would make a series each.
    route: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Route {
    route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AgentCall {
    /// How it ended: `answered`, `not_connected`, `unknown`, …
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ended {
    /// How a handler's run or a compile ended.
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ConnectionState {
    /// `idle` or `used`.
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct IsolationKind {
    /// `sandboxed`, `shared` or `refused`.
    kind: &'static str,
}

/// Seconds of work: from a handler that finds all as wanted to a compile of a large model.
const WORK_BUCKETS: [f64; 10] = [0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0];

/// Seconds: from what a cache answers to what makes people wait.
const BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// All meters of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Call, Counter>,
    latency: Family<Route, Histogram>,
    /// Environments that this process holds.
    pub(crate) environments: Gauge,
    /// Versions that engines have taken in.
    pub(crate) versions: Counter,
    /// Times that an environment could not be worked on.
    pub(crate) troubles: Counter,
    /// Remote agents that have a session with this process.
    pub(crate) agent_sessions: Gauge,
    agent_calls: Family<AgentCall, Counter>,
    handler_runs: Family<Ended, Counter>,
    handler_seconds: Histogram,
    compiles: Family<Ended, Counter>,
    compile_seconds: Histogram,
    connections: Family<ConnectionState, Gauge>,
    connections_max: Gauge,
    isolation: Family<IsolationKind, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("orrery");
        let requests = Family::default();
        registry.register("http_requests", "Requests that were answered", requests.clone());
        let latency: Family<Route, Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let help = "Time from the arrival of a request to the beginning of its answer";
        registry.register("http_request_seconds", help, latency.clone());
        let environments = Gauge::default();
        let help = "Environments that this process works for";
        registry.register("environments_held", help, environments.clone());
        let versions = Counter::default();
        registry.register("versions_taken_in", "Versions that engines took in", versions.clone());
        let troubles = Counter::default();
        let help = "Times that an environment could not be worked on";
        registry.register("environment_troubles", help, troubles.clone());
        let agent_sessions = Gauge::default();
        let help = "Remote agents that are connected to this process";
        registry.register("agent_sessions", help, agent_sessions.clone());
        let agent_calls = Family::default();
        let help = "Commands to remote agents, by how they ended";
        registry.register("agent_calls", help, agent_calls.clone());
        let handler_runs = Family::default();
        let help = "Runs of handlers, by what they came to";
        registry.register("handler_runs", help, handler_runs.clone());
        let handler_seconds = Histogram::new(WORK_BUCKETS);
        registry.register("handler_run_seconds", "How long they took", handler_seconds.clone());
        let compiles = Family::default();
        registry.register("compiles", "Compiles, by how they ended", compiles.clone());
        let compile_seconds = Histogram::new(WORK_BUCKETS);
        registry.register("compile_seconds", "How long they took", compile_seconds.clone());
        let connections = Family::default();
        let help = "Connections to PostgreSQL that this process has";
        registry.register("database_connections", help, connections.clone());
        let connections_max = Gauge::default();
        let help = "How many of them it may have; 0 without PostgreSQL";
        registry.register("database_connections_max", help, connections_max.clone());
        let isolation = Family::default();
        let help =
            "How code of environments is isolated from this process: 1 for the one that holds";
        registry.register("isolation", help, isolation.clone());
        Metrics {
            registry,
            requests,
            latency,
            environments,
            versions,
            troubles,
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
    /// Says how code of environments is isolated.
    pub(crate) fn isolated(&self, isolation: Option<&'static str>) {
        for kind in ["sandboxed", "shared", "refused"] {
            let is = i64::from(isolation == Some(kind));
            self.isolation.get_or_create(&IsolationKind { kind }).set(is);
        }
    }

    /// Counts a command to a remote agent.
    pub(crate) fn agent_called(&self, result: &'static str) {
        self.agent_calls.get_or_create(&AgentCall { result }).inc();
    }

    /// Counts a run of a handler.
    pub(crate) fn handler_ran(&self, outcome: OutcomeStatus, took: Duration) {
        self.handler_runs.get_or_create(&Ended { outcome: outcome.as_str() }).inc();
        self.handler_seconds.observe(took.as_secs_f64());
    }

    /// Counts a compile.
    pub(crate) fn compiled(&self, outcome: &'static str, took: Duration) {
        self.compiles.get_or_create(&Ended { outcome }).inc();
        self.compile_seconds.observe(took.as_secs_f64());
    }

    /// Takes a look at what is not counted as it happens.
    fn look(&self, store: &dyn Store) {
        let Some(Connections { open, idle, max }) = store.connections() else { return };
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let states = [("idle", idle), ("used", open.saturating_sub(idle))];
        for (state, number) in states {
            self.connections.get_or_create(&ConnectionState { state }).set(count(number));
        }
        self.connections_max.set(count(max));
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Counts requests and measures how long they take; each is a span of traces.
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
        .get_or_create(&Route { route: route.clone() })
        .observe(began.elapsed().as_secs_f64());
    metrics.requests.get_or_create(&Call { method, route, status }).inc();
    response
}

/// Numbers about this process, in the format of OpenMetrics.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "All meters", body = String, content_type = "application/openmetrics-text"),
        (status = 401, body = orrery_api::Problem, content_type = "application/problem+json"),
        (status = 403, body = orrery_api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn show(State(app): State<App>) -> Result<Response, ServerError> {
    app.metrics().look(&**app.store());
    let text = app.metrics().text().map_err(|error| ServerError::Internal(error.to_string()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response())
}
