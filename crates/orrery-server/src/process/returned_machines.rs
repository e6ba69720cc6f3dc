//! Machines over SSH that were lost: attempts to reach them again, and a deploy of what waits for them
//! when they are back.
//!
//! The connection itself has the backoff, the circuit breaker and the limits of attempts. Which
//! attempts are due is its decision; which are worth it is decided here. They also keep the shown
//! states true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_executor::EngineHandle;
use orrery_model::SshAddress;
use orrery_scheduler::{Event, Filter};
use orrery_ssh::ConnectionState;

use super::ssh_machines::EnvironmentMachines;

/// Shortest time between two deploys of an agent because its machine returned, at first. It doubles
/// up to the maximum while the machine is lost again and again.
const PAUSE_FIRST: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_mins(10);
/// The same for attempts to reach a machine that is lost as soon as it is reached.
const PROBE_PAUSE_FIRST: Duration = Duration::from_secs(2);
const PROBE_PAUSE_MAX: Duration = Duration::from_mins(1);

/// Agents over SSH of one environment.
pub(super) struct ReturnedMachines {
    engine: EngineHandle,
    agents: BTreeMap<String, AgentReturns>,
}

impl ReturnedMachines {
    pub(super) fn new(engine: EngineHandle) -> Self {
        ReturnedMachines { engine, agents: BTreeMap::new() }
    }

    pub(super) fn engine(&self) -> &EngineHandle {
        &self.engine
    }

    /// Deploys what waits for machines that are back, and tries to reach those that are not.
    pub(super) fn handle_states(
        &mut self,
        machines: &EnvironmentMachines,
        states: &[(String, SshAddress, ConnectionState)],
        now: Instant,
    ) {
        let known: BTreeSet<&String> = states.iter().map(|(agent, ..)| agent).collect();
        self.agents.retain(|agent, _| known.contains(agent));
        for (agent, _, state) in states {
            let is_usable = state.problem.is_none() && state.attempt_due.is_none();
            let returns = self.agents.entry(agent.clone()).or_default();
            if !returns.observe(state.recoveries, is_usable, now) {
                continue;
            }
            let ids = self.engine.waiting_resources(agent);
            if ids.is_empty() {
                continue;
            }
            tracing::info!(agent, resources = ids.len(), "machine reached again; deploying");
            let agents = Some(vec![Arc::from(&**agent)]);
            self.engine.handle_event(Event::DeployDirty(Filter { agents, ids: Some(ids) }));
            returns.record_deploy(now);
        }
        // The longest due first: with many machines away, each has its turn.
        let mut due: Vec<(Duration, &String, &SshAddress)> = states
            .iter()
            .filter_map(|(agent, address, state)| Some((state.attempt_due?, agent, address)))
            .collect();
        due.sort_by_key(|(since, ..)| std::cmp::Reverse(*since));
        let mut tried = BTreeSet::new();
        for (_, agent, address) in due {
            let Some(returns) = self.agents.get_mut(agent) else { continue };
            // Agents may share a machine.
            if returns.probes.is_over(now)
                && tried.insert(address.to_string())
                && machines.probe(address)
            {
                returns.probes.begin(now, PROBE_PAUSE_FIRST, PROBE_PAUSE_MAX);
            }
        }
    }
}

/// Returns of the machine of one agent.
#[derive(Debug, Default)]
struct AgentReturns {
    /// Recoveries of the connection, as seen last.
    recoveries: u64,
    /// The machine returned, and its resources are not deployed yet.
    is_pending: bool,
    deploys: Pause,
    probes: Pause,
}

/// Pause between two actions, which doubles while they are repeated.
#[derive(Debug, Default)]
struct Pause {
    began: Option<Instant>,
    lasts: Duration,
}

impl Pause {
    fn is_over(&self, now: Instant) -> bool {
        self.began.is_none_or(|at| now.saturating_duration_since(at) >= self.lasts)
    }

    /// Begins after an action. After a quiet time it has its first length again.
    fn begin(&mut self, now: Instant, first: Duration, max: Duration) {
        let is_repeated =
            self.began.is_some_and(|at| now.saturating_duration_since(at) < PAUSE_MAX);
        self.lasts = match is_repeated {
            true => self.lasts.saturating_mul(2).min(max),
            false => first,
        };
        self.began = Some(now);
    }
}

impl AgentReturns {
    /// Records the state of the connection; returns true if resources are to be deployed now.
    fn observe(&mut self, recoveries: u64, is_usable: bool, now: Instant) -> bool {
        if recoveries != self.recoveries {
            self.is_pending |= recoveries > 0;
            self.recoveries = recoveries;
        }
        let is_due = self.is_pending && is_usable && self.deploys.is_over(now);
        self.is_pending &= !is_due;
        is_due
    }

    fn record_deploy(&mut self, now: Instant) {
        self.deploys.begin(now, PAUSE_FIRST, PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_return_is_seen_once_and_not_before_the_machine_is_usable() {
        let (mut returns, now) = (AgentReturns::default(), Instant::now());
        assert!(!returns.observe(0, true, now), "it was never lost");
        assert!(!returns.observe(1, false, now), "lost again in the same moment");
        assert!(returns.observe(1, true, now));
        assert!(!returns.observe(1, true, now));
        // A new connection of an agent that moved.
        assert!(!returns.observe(0, true, now));
    }

    #[test]
    fn a_machine_that_comes_and_goes_is_deployed_to_ever_less_often() {
        let (mut returns, began) = (AgentReturns::default(), Instant::now());
        let mut deploys = Vec::new();
        for second in 0..3600 {
            let now = began + Duration::from_secs(second);
            if returns.observe(second + 1, true, now) {
                returns.record_deploy(now);
                deploys.push(second);
            }
        }
        assert_eq!(deploys[..7], [0, 10, 30, 70, 150, 310, 630]);
        assert!(deploys.windows(2).all(|pair| pair[1] - pair[0] <= 600), "{deploys:?}");
        // After a quiet time, a return counts at once again.
        let later = began + Duration::from_secs(3600 + 600);
        assert!(returns.observe(9999, true, later));
        returns.record_deploy(later);
        assert_eq!(returns.deploys.lasts, PAUSE_FIRST);
    }
}
