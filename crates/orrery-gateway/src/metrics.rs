//! Metrics of a gateway.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AgentCallLabels {
    /// Result: `answered`, `not_connected`, `unknown`, …
    result: &'static str,
}

/// Metrics of the sessions of remote agents. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct GatewayMetrics {
    /// Sessions of remote agents with this process.
    pub(crate) sessions: Gauge,
    calls: Family<AgentCallLabels, Counter>,
}

impl GatewayMetrics {
    /// Adds the metrics to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Remote agents that are connected to this process";
        registry.register("agent_sessions", help, self.sessions.clone());
        let help = "Commands to remote agents, by result";
        registry.register("agent_calls", help, self.calls.clone());
    }

    /// Counts a command by its result.
    pub(crate) fn count_call(&self, result: &'static str) {
        self.calls.get_or_create(&AgentCallLabels { result }).inc();
    }
}
