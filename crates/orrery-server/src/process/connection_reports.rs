//! Reports of the connections to machines over SSH, from the process that holds them to the store.
//!
//! One thread for all environments. It costs nothing while no environment uses a machine over SSH,
//! and writes only what changed.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_executor::EngineHandle;
use orrery_model::{SshAddress, Timestamp};
use orrery_ssh::{Circuit, ConnectionState};
use orrery_store::{AgentConnectionRecord, ConnectionPhase, EnvironmentKey, Lease, StoreError};

use super::agent_routing::AgentRouter;
use super::returned_machines::ReturnedMachines;
use super::ssh_machines::EnvironmentMachines;
use crate::state::ServerState;

/// Interval of reports. Together with the time limit, what is shown is less than ten seconds old.
const INTERVAL: Duration = Duration::from_secs(3);
/// Time for the answer of a machine; without one, it is unresponsive.
const PING_TIMEOUT: Duration = Duration::from_secs(4);
/// Differences below these are not reported.
const LATENCY_NOISE: Duration = Duration::from_micros(50);
const RETRY_NOISE: Duration = Duration::from_millis(500);

/// Environments of this process with their last reports.
#[derive(Default)]
pub(super) struct ConnectionReports(Mutex<BTreeMap<EnvironmentKey, Reporter>>);

struct Reporter {
    lease: Lease,
    /// Gone with its engine.
    router: Weak<AgentRouter>,
    reported: BTreeMap<String, AgentConnectionRecord>,
    returned: ReturnedMachines,
}

impl ConnectionReports {
    /// Reports the machines of an engine from now on, until the router is dropped.
    pub(super) fn add(&self, lease: Lease, router: &Arc<AgentRouter>, engine: EngineHandle) {
        let router = Arc::downgrade(router);
        let (reported, returned) = (BTreeMap::new(), ReturnedMachines::new(engine));
        let reporter = Reporter { lease, router, reported, returned };
        self.0.lock().ignore_poison().insert(lease.environment(), reporter);
    }

    fn report(&self, app: &ServerState) {
        let mut reporters = self.0.lock().ignore_poison();
        reporters.retain(|environment, reporter| {
            let Some(router) = reporter.router.upgrade() else { return false };
            let machines = router.machines();
            let states = observe(&router, &machines, reporter.returned.engine());
            reporter.returned.handle_states(&machines, &states, monotonic());
            let changed = reporter.changes(states, app.now());
            if changed.is_empty() {
                return true;
            }
            let store = app.store().under_lease(&reporter.lease);
            match store.agents().record_connections(*environment, &changed) {
                Ok(()) => {
                    reporter.accept(changed);
                    true
                }
                // The next holder of the lease reports its own connections.
                Err(StoreError::StaleEpoch { .. }) => false,
                Err(error) => {
                    tracing::debug!(%error, "connections not reported yet");
                    true
                }
            }
        });
    }
}

/// States of the connections to all machines in use, by agents with resources.
fn observe(
    router: &AgentRouter,
    machines: &EnvironmentMachines,
    engine: &EngineHandle,
) -> Vec<(String, SshAddress, ConnectionState)> {
    let observe = |(agent, address): (String, SshAddress)| {
        let state = machines.observe(&address, PING_TIMEOUT)?;
        Some((agent, address, state))
    };
    let agents = router.agents_over_ssh().into_iter();
    agents.filter(|(agent, _)| engine.has_resources(agent)).filter_map(observe).collect()
}

impl Reporter {
    fn changes(
        &self,
        states: Vec<(String, SshAddress, ConnectionState)>,
        now: Timestamp,
    ) -> Vec<(String, Option<AgentConnectionRecord>)> {
        let record = |(agent, _, state)| (agent, to_record(state, now));
        let current: BTreeMap<String, AgentConnectionRecord> =
            states.into_iter().map(record).collect();
        let gone = self.reported.keys().filter(|agent| !current.contains_key(*agent)).cloned();
        let gone: Vec<_> = gone.map(|agent| (agent, None)).collect();
        let is_new = |(agent, record): &(String, AgentConnectionRecord)| {
            self.reported.get(agent).is_none_or(|known| differs(known, record))
        };
        let changed = current.into_iter().filter(is_new);
        changed.map(|(agent, record)| (agent, Some(record))).chain(gone).collect()
    }

    fn accept(&mut self, changed: Vec<(String, Option<AgentConnectionRecord>)>) {
        for (agent, record) in changed {
            match record {
                Some(record) => drop(self.reported.insert(agent, record)),
                None => drop(self.reported.remove(&agent)),
            }
        }
    }
}

fn to_record(state: ConnectionState, now: Timestamp) -> AgentConnectionRecord {
    let ConnectionState { circuit, connected_for, latency, problem, unresponsive, lost, .. } =
        state;
    // Until an attempt to reach it again has succeeded or failed.
    let problem = problem.or_else(|| lost.then(|| "the connection was lost".to_owned()));
    let phase = match (connected_for, &problem) {
        (Some(_), _) if unresponsive => ConnectionPhase::Unresponsive,
        (Some(_), _) => ConnectionPhase::Connected,
        (None, _) if circuit.is_open() => ConnectionPhase::CircuitOpen,
        (None, Some(_)) => ConnectionPhase::BackingOff,
        (None, None) => ConnectionPhase::Idle,
    };
    let retry_at = match circuit {
        Circuit::Open { retry_in, .. } if connected_for.is_none() => Some(now + retry_in),
        _ => None,
    };
    let problem = problem.filter(|_| connected_for.is_none()).unwrap_or_default();
    AgentConnectionRecord { phase, latency, retry_at, problem }
}

/// Returns true if a record differs by more than the noise of measuring.
fn differs(known: &AgentConnectionRecord, new: &AgentConnectionRecord) -> bool {
    let is_near = match (known.latency, new.latency) {
        (Some(known), Some(new)) => known.abs_diff(new) <= LATENCY_NOISE.max(known / 10),
        (known, new) => known == new,
    };
    let is_same_retry = match (known.retry_at, new.retry_at) {
        (Some(known), Some(new)) => known.since(new).max(new.since(known)) <= RETRY_NOISE,
        (known, new) => known == new,
    };
    !is_near || !is_same_retry || known.phase != new.phase || known.problem != new.problem
}

/// Thread of the reports; ends with this.
#[derive(Debug)]
pub(super) struct ConnectionReporter {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ConnectionReporter {
    /// Starts the thread.
    pub(super) fn start(
        app: ServerState,
        reports: Arc<ConnectionReports>,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = spawn_named("connections", move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                reports.report(&app);
            }
        })?;
        Ok(ConnectionReporter { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ConnectionReporter {
    fn drop(&mut self) {
        self.stop = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the reports of connections crashed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(circuit: Circuit, connected: bool, problem: Option<&str>) -> ConnectionState {
        ConnectionState {
            destination: "deploy@web1:22".to_owned(),
            circuit,
            connected_for: connected.then_some(Duration::from_secs(9)),
            latency: Some(Duration::from_micros(800)),
            problem: problem.map(str::to_owned),
            commands: 0,
            unresponsive: false,
            recoveries: 0,
            lost: false,
            attempt_due: None,
        }
    }

    #[test]
    fn states_name_the_next_attempt() {
        let now = Timestamp(1_000_000);
        let record = to_record(state(Circuit::Closed, true, None), now);
        assert_eq!((record.phase, record.retry_at), (ConnectionPhase::Connected, None));
        let stalled = ConnectionState { unresponsive: true, ..state(Circuit::Closed, true, None) };
        assert_eq!(to_record(stalled, now).phase, ConnectionPhase::Unresponsive);
        assert_eq!(
            to_record(state(Circuit::Closed, false, None), now).phase,
            ConnectionPhase::Idle
        );
        let lost = ConnectionState { lost: true, ..state(Circuit::Closed, false, None) };
        let record = to_record(lost, now);
        assert_eq!(record.phase, ConnectionPhase::BackingOff);
        assert_eq!((&*record.problem, record.retry_at), ("the connection was lost", None));
        let retry_in = Duration::from_secs(2);
        let open = |failures| state(Circuit::Open { failures, retry_in }, false, Some("refused"));
        let record = to_record(open(1), now);
        assert_eq!((record.phase, &*record.problem), (ConnectionPhase::BackingOff, "refused"));
        assert_eq!(record.retry_at, Some(Timestamp(3_000_000)));
        assert_eq!(to_record(open(3), now).phase, ConnectionPhase::CircuitOpen);
        let half = state(Circuit::HalfOpen { failures: 4 }, false, Some("refused"));
        let record = to_record(half, now);
        assert_eq!((record.phase, record.retry_at), (ConnectionPhase::CircuitOpen, None));
    }

    #[test]
    fn noise_is_not_reported() {
        let now = Timestamp(1_000_000);
        let known = to_record(state(Circuit::Closed, true, None), now);
        let with = |micros| {
            let latency = Some(Duration::from_micros(micros));
            AgentConnectionRecord { latency, ..known.clone() }
        };
        assert!(!differs(&known, &with(860)), "80 of 800 microseconds");
        assert!(differs(&known, &with(1_600)));
        let idle = AgentConnectionRecord { phase: ConnectionPhase::Idle, ..known.clone() };
        assert!(differs(&known, &idle));
    }
}
