//! `orrery ping`: connects to the hosts of the inventory, all at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_handlers::CancelToken;
use orrery_handlers::target::{ExecLimits, Transport, TransportError};
use orrery_model::{AgentAddress, InventoryHost, MachineFacts, Privilege, SshAddress};
use orrery_ssh::{SshClient, SshTransport, vault_secrets};
use serde::Serialize;

use crate::cli::ping::Ping;
use crate::commands::host_selection;
use crate::commands::hosts::read_inventory;
use crate::commands::remote::show_list;
use crate::commands::remote::table::Table;
use crate::commands::server_ping::{self, KnownAgents, ServerUnknown};
use crate::error::{CliError, finish};
use crate::ssh::user_client;
use crate::{Exit, output, style};

/// Hosts that are checked at once.
const PARALLEL_MAX: usize = 256;

/// State of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HostState {
    Reachable,
    /// This machine, which needs no connection.
    Local,
    /// It is reached, but changes do not get their rights.
    NoPrivilege,
    Unreachable,
    /// Only a server can connect to it, and its state there is not known.
    NotChecked,
    /// The inventory gives it no machine.
    NoMachine,
}

/// Result of one host.
#[derive(Debug, Serialize)]
pub(super) struct PingResult {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) state: HostState,
    pub(super) latency_ms: Option<f64>,
    /// Way to the rights of root: `root`, `sudo`, `sudo with a password`, `doas`, or the user.
    privilege: Option<String>,
    facts: Option<MachineFacts>,
    pub(super) reason: Option<String>,
    pub(super) help: Option<String>,
}

impl PingResult {
    pub(super) fn new(name: String, address: String) -> Self {
        PingResult {
            name,
            address,
            state: HostState::Reachable,
            latency_ms: None,
            privilege: None,
            facts: None,
            reason: None,
            help: None,
        }
    }
}

/// A host of the inventory.
#[derive(Clone, Debug)]
struct Host {
    name: String,
    groups: Vec<String>,
    address: AgentAddress,
}

pub(crate) fn ping(options: &Ping) -> Exit {
    finish(run(options))
}

fn run(options: &Ping) -> Result<Exit, CliError> {
    let inventory = match read_inventory(options.project.as_deref())? {
        Ok(inventory) => inventory,
        Err(exit) => return Ok(exit),
    };
    let host = |(name, host): (&String, &InventoryHost)| Host {
        name: name.clone(),
        groups: host.groups.clone(),
        address: host.address.clone(),
    };
    let hosts: Vec<Host> = inventory.hosts.hosts().map(host).collect();
    let hosts = host_selection::select(options.pattern.as_deref(), hosts, |host| {
        (&host.name, &host.groups)
    })?;
    let client = user_client()?;
    let agents = match hosts.iter().any(|host| vault_secret(&host.address).is_some()) {
        true => agents_of_server(options),
        false => Ok(BTreeMap::new()),
    };
    let limit = Duration::from_secs(options.timeout);
    let results = check_all(hosts, move |host| {
        let Host { name, address, .. } = host;
        match (&address, vault_secret(&address)) {
            (AgentAddress::Ssh(address), Some(secret)) => {
                server_ping::result(name, address, secret, &agents)
            }
            _ => check(name, &address, &client, limit),
        }
    })?;
    let bad = results
        .iter()
        .any(|result| !matches!(result.state, HostState::Reachable | HostState::Local));
    let table = Table::new("host", &["NAME", "STATE", "LATENCY", "OS", "PRIVILEGE", "REASON"]);
    show_list(options.json, &results, table, row)?;
    if !options.json {
        show_help(&results);
    }
    Ok(if bad { Exit::Pending } else { Exit::Done })
}

/// Secret of a server's vault that the connection to an address needs.
fn vault_secret(address: &AgentAddress) -> Option<&str> {
    match address {
        AgentAddress::Ssh(address) => vault_secrets(address).into_iter().next(),
        AgentAddress::Local | AgentAddress::Nowhere => None,
    }
}

/// Agents of the selected environment.
fn agents_of_server(options: &Ping) -> KnownAgents {
    match options.deployment.remote(options.project.as_deref()) {
        Ok(Some(of)) => server_ping::read_agents(&of),
        Ok(None) => Err(ServerUnknown {
            reason: "no server is selected".to_owned(),
            help: Some(
                "log in (`orrery login`) and select the environment (`orrery environment use`)"
                    .to_owned(),
            ),
        }),
        Err(CliError::Message { message, help }) => Err(ServerUnknown { reason: message, help }),
        Err(error) => Err(ServerUnknown { reason: error.to_string(), help: None }),
    }
}

fn row(result: &PingResult) -> Vec<String> {
    let state = match result.state {
        HostState::Reachable => "reachable",
        HostState::Local => "this machine",
        HostState::NoPrivilege => "no privilege",
        HostState::Unreachable => "unreachable",
        HostState::NotChecked => "not checked",
        HostState::NoMachine => "none",
    };
    let latency = result.latency_ms.map_or(String::new(), |latency| format!("{latency:.1} ms"));
    let system = result.facts.as_ref().map_or(String::new(), |facts| {
        let os = facts.os_name.as_ref().or(facts.kernel.as_ref());
        let parts = [os, facts.arch.as_ref()];
        parts.into_iter().flatten().cloned().collect::<Vec<_>>().join(", ")
    });
    vec![
        result.name.clone(),
        state.to_owned(),
        latency,
        system,
        result.privilege.clone().unwrap_or_default(),
        result.reason.clone().unwrap_or_default(),
    ]
}

/// Prints each remedy once.
fn show_help(results: &[PingResult]) {
    let mut shown: Vec<&str> = Vec::new();
    for result in results {
        if let Some(help) = result.help.as_deref()
            && !shown.contains(&help)
        {
            output::print_status(&format!("help for {}: {}", result.name, style::sanitize(help)));
            shown.push(help);
        }
    }
}

/// Checks hosts in threads of their own; the result has their order.
fn check_all(
    hosts: Vec<Host>,
    check: impl Fn(Host) -> PingResult + Send + Sync + 'static,
) -> Result<Vec<PingResult>, CliError> {
    let count = hosts.len();
    let queue = Arc::new(Mutex::new(hosts.into_iter().enumerate()));
    let results = Arc::new(Mutex::new(Vec::with_capacity(count)));
    let check = Arc::new(check);
    let mut threads = Vec::new();
    for _ in 0..count.min(PARALLEL_MAX) {
        let (queue, results) = (Arc::clone(&queue), Arc::clone(&results));
        let check = Arc::clone(&check);
        let thread = spawn_named("ping", move || {
            loop {
                let next = queue.lock().ignore_poison().next();
                let Some((at, host)) = next else { return };
                let result = check(host);
                results.lock().ignore_poison().push((at, result));
            }
        });
        threads.push(thread.map_err(|error| CliError::new(format!("no threads left: {error}")))?);
    }
    for thread in threads {
        let _ = thread.join();
    }
    let mut results = std::mem::take(&mut *results.lock().ignore_poison());
    results.sort_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

fn check(name: String, address: &AgentAddress, client: &SshClient, limit: Duration) -> PingResult {
    let mut result = PingResult::new(name, address.to_string());
    let ssh = match address {
        AgentAddress::Local => {
            result.state = HostState::Local;
            return result;
        }
        AgentAddress::Nowhere => {
            result.state = HostState::NoMachine;
            return result;
        }
        AgentAddress::Ssh(address) => address,
    };
    let transport = match client.transport(ssh) {
        Ok(transport) => transport,
        Err(error) => {
            result.state = HostState::Unreachable;
            result.reason = Some(error.to_string());
            return result;
        }
    };
    if let Err(error) = probe(&transport, ssh, limit, &mut result) {
        result.state = match result.latency_ms {
            Some(_) => HostState::NoPrivilege,
            None => HostState::Unreachable,
        };
        result.reason = Some(error.reason);
        result.help = error.help;
    }
    result
}

fn probe(
    transport: &SshTransport,
    address: &SshAddress,
    limit: Duration,
    result: &mut PingResult,
) -> Result<(), TransportError> {
    let stop = CancelToken::never().within(limit);
    let latency = transport.ping(&stop)?;
    let facts = transport.facts(&stop)?;
    result.latency_ms = Some(latency.as_secs_f64() * 1000.0);
    let user = facts.user.clone().unwrap_or_else(|| "user".to_owned());
    let is_root = facts.uid == Some(0);
    result.facts = Some(facts);
    let program = match address.options.sudo {
        Some(Privilege::Sudo) if address.options.sudo_secret.is_some() => "sudo with a password",
        Some(Privilege::Sudo) => "sudo",
        Some(Privilege::Doas) => "doas",
        Some(Privilege::User) | None => {
            result.privilege = Some(if is_root { "root".to_owned() } else { user });
            return Ok(());
        }
    };
    transport.exec("test \"$(id -u)\" = 0", b"", &ExecLimits::default(), &stop)?;
    result.privilege = Some(program.to_owned());
    Ok(())
}
