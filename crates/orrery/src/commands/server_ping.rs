//! Hosts that only a server can connect to, because their keys are secrets in its vault: what its own
//! connections say.

use std::collections::BTreeMap;

use orrery_api::{Agent, AgentConnectionState};
use orrery_model::SshAddress;

use super::ping::{HostState, PingResult};
use super::remote::read_list;
use crate::remote::RemoteEnvironment;

/// Agents of the selected environment, or the reason why they are not known.
pub(super) type KnownAgents = Result<BTreeMap<String, Agent>, ServerUnknown>;

/// Reason for a missing environment, with the remedy.
#[derive(Clone, Debug)]
pub(super) struct ServerUnknown {
    pub(super) reason: String,
    pub(super) help: Option<String>,
}

/// Reads the agents of an environment, with the connections to their machines.
pub(super) fn read_agents(of: &RemoteEnvironment) -> KnownAgents {
    let agents = read_list(of.client.list::<Agent>(&of.path(&["agents"])).large(), None);
    match agents {
        Ok(agents) => Ok(agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect()),
        Err(error) => Err(ServerUnknown { reason: error.to_string(), help: None }),
    }
}

/// Result of a host that needs a secret of a vault.
pub(super) fn result(
    name: String,
    address: &SshAddress,
    secret: &str,
    agents: &KnownAgents,
) -> PingResult {
    let mut result = PingResult::new(name, address.to_string());
    result.state = HostState::NotChecked;
    let unchecked = |why: &str| format!("its secret {secret} is in the vault of a server: {why}");
    let elsewhere = "to check it from here, name a key of yours (`identity`, or `identity_secret: env:NAME` or `file:PATH`)";
    let agents = match agents {
        Ok(agents) => agents,
        Err(unknown) => {
            result.reason = Some(unchecked(&unknown.reason));
            result.help = match &unknown.help {
                Some(help) => Some(format!("{help}; {elsewhere}")),
                None => Some(elsewhere.to_owned()),
            };
            return result;
        }
    };
    let Some(agent) = agents.get(&result.name) else {
        result.reason = Some(unchecked("its environment has no agent of this name yet"));
        result.help = Some(format!(
            "deploy a resource of {} (`orrery deploy`), which connects; {elsewhere}",
            result.name
        ));
        return result;
    };
    if agent.placement.address.as_deref() != Some(&*result.address) {
        let there = agent.placement.address.as_deref().unwrap_or("none");
        let there = there.split('?').next().unwrap_or_default();
        result.reason =
            Some(unchecked(&format!("its environment has another address or options, {there}")));
        result.help =
            Some(format!("`orrery deploy` sends the inventory of this project; {elsewhere}"));
        return result;
    }
    let connection = agent.connection.as_ref();
    let latency = connection.and_then(|connection| connection.latency_ms);
    let problem = || connection.and_then(|connection| connection.problem.clone());
    match connection.map(|connection| connection.state) {
        Some(AgentConnectionState::Connected) => {
            result.state = HostState::Reachable;
            result.latency_ms = latency;
            result.reason = Some("as its server sees it".to_owned());
        }
        Some(AgentConnectionState::Unresponsive) => {
            result.state = HostState::Unreachable;
            result.reason = Some("it does not answer its server".to_owned());
        }
        Some(AgentConnectionState::BackingOff | AgentConnectionState::CircuitOpen) => {
            result.state = HostState::Unreachable;
            result.reason = Some(match problem() {
                Some(problem) => format!("from its server: {problem}"),
                None => "its server does not reach it".to_owned(),
            });
            result.help = Some("`orrery agent list` shows the next attempt".to_owned());
        }
        Some(AgentConnectionState::Idle | AgentConnectionState::Disconnected) | None => {
            result.reason = Some(unchecked("which has no connection to it now"));
            result.help = Some(format!(
                "`orrery plan` connects, and `orrery agent list` shows the result; {elsewhere}"
            ));
        }
    }
    result
}
