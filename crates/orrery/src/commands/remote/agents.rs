//! `orrery agent`.

use orrery_api::{Agent, AgentPlacement};
use serde_json::{Value, json};

use super::table::Table;
use super::{print_json, read_list, remote_agents, show_list, terminal};
use crate::cli_things::{AgentAction, AgentGroup, AgentNames};
use crate::commands::inspect::source::placement_word;
use crate::commands::trouble::{Trouble, finish};
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

pub(crate) fn agent(options: AgentGroup) -> Exit {
    finish(run(options))
}

fn run(options: AgentGroup) -> Result<Exit, Trouble> {
    let AgentGroup { ask, action } = options;
    let of = || ask.in_environment();
    match action {
        AgentAction::Join(join) => crate::commands::agent::join(join, ask.json),
        AgentAction::Run(run) => crate::commands::agent::run(run),
        AgentAction::List => {
            let of = of()?;
            let found = read_list(of.client.list::<Agent>(&of.path(&["agents"])).large(), None)?;
            let table = Table::new("agent", &["NAME", "STATUS", "PLACE", "RESOURCES", "STATES"]);
            show_list(ask.json, &found, table, |agent| {
                let states: Vec<String> =
                    agent.by_status.iter().map(|(word, count)| format!("{count} {word}")).collect();
                let status = match agent.unpause_on_resume {
                    Some(true) => format!("{}, until it resumes", agent.status),
                    _ => agent.status.clone(),
                };
                let place = placement_word(&agent.placement.kind).to_owned();
                let count = agent.resources.to_string();
                vec![agent.name.clone(), status, place, count, states.join(", ")]
            })?;
            if !ask.json {
                found.iter().filter(|agent| agent.status == "unavailable").for_each(tell_reason);
            }
            Ok(Exit::Done)
        }
        AgentAction::Pause(names) => {
            let action = if names.on_resume { "keep-paused-on-resume" } else { "pause" };
            act(&of()?, &names, action, ask.json)
        }
        AgentAction::Unpause(names) => {
            let action = if names.on_resume { "unpause-on-resume" } else { "unpause" };
            act(&of()?, &names, action, ask.json)
        }
        AgentAction::Invite(invite) => remote_agents::invite(&of()?, invite, ask.json),
        AgentAction::Remotes => remote_agents::list(&of()?, ask.json),
        AgentAction::Revoke(revoke) => {
            let what = format!("revoke the remote agent {}", style::harmless(&revoke.remote));
            terminal::confirm(revoke.confirmation.yes, &what)?;
            remote_agents::revoke(&of()?, &revoke, ask.json)
        }
    }
}

/// Says why an agent has no machine, and what helps.
pub(super) fn tell_reason(agent: &Agent) {
    let AgentPlacement { reason, help, .. } = &agent.placement;
    output::say(&format!("{}: {}", style::error("unavailable"), style::harmless(reason)));
    if let Some(help) = help {
        output::say(&format!("  {}: {}", style::help("help"), style::harmless(help)));
    }
}

fn act(
    of: &RemoteEnvironment,
    names: &AgentNames,
    action: &str,
    json: bool,
) -> Result<Exit, Trouble> {
    let word = match action {
        "pause" => "paused",
        "unpause" => "resumed",
        "keep-paused-on-resume" => "stays paused when the environment resumes",
        _ => "resumes with the environment",
    };
    if names.all {
        of.client.act::<Value>(&of.path(&["all-agents", action]))?;
        if json {
            return print_json(&json!({}));
        }
        output::say(&format!("all agents: {word}"));
        return Ok(Exit::Done);
    }
    let mut now = Vec::new();
    for name in &names.names {
        let agent: Agent = of.client.act(&of.path(&["agents", name, action]))?;
        if !json {
            output::say(&format!("{}: {word}", style::harmless(&agent.name)));
        }
        now.push(agent);
    }
    if json { print_json(&json!({ "items": now })) } else { Ok(Exit::Done) }
}
