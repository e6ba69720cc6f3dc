//! Metrics of a server, exposed by `/metrics` in the OpenMetrics format.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use orrery_gateway::GatewayMetrics;
use orrery_model::OutcomeStatus;
use orrery_store::{PoolStatus, Store};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::task_status::{TaskStatus, TaskStatuses};

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

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TaskLabels {
    task: &'static str,
}

/// Metrics of maintenance tasks, set from their statuses.
#[derive(Debug, Default)]
struct TaskMetrics {
    last_success: Family<TaskLabels, Gauge<f64, AtomicU64>>,
    seconds: Family<TaskLabels, Gauge<f64, AtomicU64>>,
    runs: Family<TaskLabels, Counter>,
    failures: Family<TaskLabels, Counter>,
}

impl TaskMetrics {
    fn register(&self, registry: &mut Registry) {
        let help = "Start of the latest successful run of a maintenance task in this process";
        let name = "maintenance_last_success_timestamp_seconds";
        registry.register(name, help, self.last_success.clone());
        let help = "Duration of the latest run of a maintenance task in this process";
        registry.register("maintenance_last_run_seconds", help, self.seconds.clone());
        let help = "Runs of maintenance tasks in this process";
        registry.register("maintenance_runs", help, self.runs.clone());
        let help = "Failed runs of maintenance tasks in this process";
        registry.register("maintenance_failures", help, self.failures.clone());
    }

    fn update(&self, status: &TaskStatus) {
        let labels = TaskLabels { task: status.name };
        if let Some(at) = status.last_success {
            let since_epoch = Duration::from_micros(u64::try_from(at.0).unwrap_or(0));
            self.last_success.get_or_create(&labels).set(since_epoch.as_secs_f64());
        }
        if let Some((_, took)) = status.last_run {
            self.seconds.get_or_create(&labels).set(took.as_secs_f64());
        }
        for (family, total) in [(&self.runs, status.runs), (&self.failures, status.failures)] {
            let counter = family.get_or_create(&labels);
            counter.inc_by(total.saturating_sub(counter.get()));
        }
    }
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
    pub(crate) gateway: GatewayMetrics,
    handler_runs: Family<OutcomeLabels, Counter>,
    handler_seconds: Histogram,
    compiles: Family<OutcomeLabels, Counter>,
    compile_seconds: Histogram,
    connections: Family<ConnectionLabels, Gauge>,
    connections_max: Gauge,
    isolation: Family<IsolationLabels, Gauge>,
    tasks: TaskMetrics,
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
        let tasks = TaskMetrics::default();
        tasks.register(&mut registry);
        let gateway = GatewayMetrics::default();
        gateway.register(&mut registry);
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
            gateway,
            handler_runs,
            handler_seconds,
            compiles,
            compile_seconds,
            connections,
            connections_max,
            isolation,
            tasks,
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
    pub(crate) fn update_connections(&self, store: &Store) {
        let Some(PoolStatus { open, idle, max }) = store.connections() else { return };
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let states = [("idle", idle), ("used", open.saturating_sub(idle))];
        for (state, number) in states {
            self.connections.get_or_create(&ConnectionLabels { state }).set(count(number));
        }
        self.connections_max.set(count(max));
    }

    /// Records an answered request. The latency runs from its arrival to the start of its response.
    pub(crate) fn record_request(
        &self,
        (method, route): (String, String),
        status: u16,
        latency: Duration,
    ) {
        self.latency
            .get_or_create(&RouteLabels { route: route.clone() })
            .observe(latency.as_secs_f64());
        self.requests.get_or_create(&RequestLabels { method, route, status }).inc();
    }

    /// Takes over the statuses of maintenance tasks.
    pub(crate) fn update_tasks(&self, statuses: &TaskStatuses) {
        for status in statuses.all() {
            self.tasks.update(&status);
        }
    }

    /// Returns all metrics in the OpenMetrics format.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
