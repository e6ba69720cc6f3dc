//! `orrery agent`.

use orrery_api::{Agent, AgentConnection, AgentConnectionState, AgentPlacement, AgentStatus};
use serde_json::{Value, json};

use super::table::{Table, counts_by_name, moment_or};
use super::{print_json, read_list, remote_agents, show_list, terminal};
use crate::cli::agent::{AgentAction, AgentGroup, AgentNames};
use crate::commands::inspect::deployment::placement_word;
use crate::error::{CliError, finish};
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

pub(crate) fn agent(options: AgentGroup) -> Exit {
    finish(run(options))
}

fn run(options: AgentGroup) -> Result<Exit, CliError> {
    let AgentGroup { args, action } = options;
    let of = || args.in_environment();
    match action {
        AgentAction::Join(join) => crate::commands::agent::join(join, args.json),
        AgentAction::Run(run) => crate::commands::agent::run(run),
        AgentAction::Once => crate::commands::agent::once(),
        AgentAction::List => {
            let of = of()?;
            let found = read_list(of.client.list::<Agent>(&of.path(&["agents"])).large(), None)?;
            let headings = [
                "NAME",
                "STATUS",
                "PLACEMENT",
                "ADDRESS",
                "CONNECTION",
                "LATENCY",
                "RESOURCES",
                "STATES",
                "REASON",
            ];
            let table = Table::new("agent", &headings);
            show_list(args.json, &found, table, |agent| {
                let states = counts_by_name(&agent.by_status);
                let status = match agent.unpause_on_resume {
                    Some(true) => format!("{}, until it resumes", agent.status),
                    _ => agent.status.to_string(),
                };
                let place = placement_word(agent.placement.kind).to_owned();
                let count = agent.resources.to_string();
                let AgentPlacement { address, reason, .. } = &agent.placement;
                let address = address.as_deref().unwrap_or_default();
                let address = address.split('?').next().unwrap_or_default().to_owned();
                let (connection, latency) = match &agent.connection {
                    Some(connection) => (connection_text(connection), latency_text(connection)),
                    None => (String::new(), String::new()),
                };
                let problem = agent.connection.as_ref().and_then(|now| now.problem.as_deref());
                let reason = match problem {
                    Some(problem) => format!("{reason}: {problem}"),
                    None => reason.clone(),
                };
                let name = agent.name.clone();
                vec![name, status, place, address, connection, latency, count, states, reason]
            })?;
            if !args.json {
                found
                    .iter()
                    .filter(|agent| agent.status == AgentStatus::Unavailable)
                    .for_each(print_reason);
            }
            Ok(Exit::Done)
        }
        AgentAction::Pause(names) => {
            let action = if names.on_resume { "keep-paused-on-resume" } else { "pause" };
            change_state(&of()?, &names, action, args.json)
        }
        AgentAction::Unpause(names) => {
            let action = if names.on_resume { "unpause-on-resume" } else { "unpause" };
            change_state(&of()?, &names, action, args.json)
        }
        AgentAction::Invite(invite) => remote_agents::invite(&of()?, invite, args.json),
        AgentAction::InstallScript(options) => {
            remote_agents::install_script(&of()?, options, args.json)
        }
        AgentAction::Remotes => remote_agents::list(&of()?, args.json),
        AgentAction::Revoke(revoke) => {
            let what = format!("revoke remote agent {}", style::sanitize(&revoke.remote));
            terminal::confirm(revoke.confirmation.yes, &what)?;
            remote_agents::revoke(&of()?, &revoke, args.json)
        }
    }
}

/// State of a connection, with the time of the next attempt.
fn connection_text(connection: &AgentConnection) -> String {
    let word = match connection.state {
        AgentConnectionState::BackingOff => "backing off",
        AgentConnectionState::CircuitOpen => "circuit open",
        other => other.as_str(),
    };
    match (&connection.retry_at, &connection.last_seen, connection.state) {
        (Some(at), _, _) => format!("{word} until {}", moment_or(Some(at), "-")),
        (None, Some(seen), AgentConnectionState::Disconnected) => {
            format!("{word} since {}", moment_or(Some(seen), "-"))
        }
        _ => word.to_owned(),
    }
}

fn latency_text(connection: &AgentConnection) -> String {
    connection.latency_ms.map_or(String::new(), |latency| format!("{latency:.1} ms"))
}

/// Prints the reason for a missing machine, and help.
pub(super) fn print_reason(agent: &Agent) {
    let AgentPlacement { reason, help, .. } = &agent.placement;
    output::print_status(&format!("{}: {}", style::error("unavailable"), style::sanitize(reason)));
    if let Some(help) = help {
        output::print_status(&format!("  {}: {}", style::help("help"), style::sanitize(help)));
    }
}

fn change_state(
    of: &RemoteEnvironment,
    names: &AgentNames,
    action: &str,
    json: bool,
) -> Result<Exit, CliError> {
    let word = match action {
        "pause" => "paused",
        "unpause" => "resumed",
        "keep-paused-on-resume" => "stays paused when the environment resumes",
        _ => "resumes with the environment",
    };
    if names.all {
        of.client.post_empty::<Value>(&of.path(&["all-agents", action]))?;
        if json {
            return print_json(&json!({}));
        }
        output::print_status(&format!("all agents: {word}"));
        return Ok(Exit::Done);
    }
    let mut now = Vec::new();
    for name in &names.names {
        let agent: Agent = of.client.post_empty(&of.path(&["agents", name, action]))?;
        if !json {
            output::print_status(&format!("agent {} {word}", style::sanitize(&agent.name)));
        }
        now.push(agent);
    }
    if json { print_json(&json!({ "items": now })) } else { Ok(Exit::Done) }
}
