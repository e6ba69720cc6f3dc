//! `orrery agent invite`, `remotes` and `revoke`.

use orrery_api::client::query;
use orrery_api::{Agent, Invitation, NewInvitation, RemoteAgent};
use serde_json::{Value, json};
use uuid::Uuid;

use super::agents::print_reason;
use super::table::{Table, moment_or};
use super::{print_json, read_list, show_done, show_list};
use crate::cli::agent::{AgentInvite, AgentRevoke};
use crate::error::CliError;
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

pub(super) fn invite(
    of: &RemoteEnvironment,
    invite: AgentInvite,
    json: bool,
) -> Result<Exit, CliError> {
    let AgentInvite { names, expires_in } = invite;
    let new = NewInvitation { names, expires_in: Some(expires_in) };
    let at = of.path(&["remote-agents", "invitations"]);
    let created: Invitation = of.client.post_once(&at, &new)?;
    if json {
        return print_json(&created);
    }
    let (gateway, token) = (style::sanitize(&created.gateway), created.token.expose());
    let until = moment_or(Some(&created.expires), "-");
    output::print_status(&format!(
        "on the machine, before {}, run this command; its token is shown only once:",
        style::sanitize(&until)
    ));
    let line = format!("orrery agent join {gateway} {token} && orrery agent run");
    let written = output::print(|out| writeln!(out, "{line}"));
    Ok(if written { Exit::Done } else { Exit::Error })
}

pub(super) fn list(of: &RemoteEnvironment, json: bool) -> Result<Exit, CliError> {
    let all = of.client.list::<RemoteAgent>(&of.path(&["remote-agents"])).large();
    let headings = ["AGENTS", "STATUS", "HOST", "LAST SEEN", "JOINED", "ID"];
    show_list(json, &read_list(all, None)?, Table::new("remote agent", &headings), |agent| {
        let host = agent.machine.get("host_name").and_then(Value::as_str).unwrap_or("-");
        vec![
            agent.names.join(", "),
            agent.status.to_string(),
            host.to_owned(),
            moment_or(agent.last_seen.as_ref(), "never"),
            moment_or(Some(&agent.joined), "-"),
            agent.id.to_string(),
        ]
    })
}

pub(super) fn revoke(
    of: &RemoteEnvironment,
    revoke: &AgentRevoke,
    json: bool,
) -> Result<Exit, CliError> {
    let found = find(of, &revoke.remote)?;
    let release = if revoke.release { Some("true") } else { None };
    let at = of.path(&["remote-agents", &found.id.to_string()]);
    of.client.delete::<Value>(&query(&at, &[("release", release)]))?;
    let names = style::sanitize(&found.names.join(", "));
    let are = if found.names.len() == 1 { "is" } else { "are" };
    let waits = if revoke.release { "released" } else { "waiting for a replacement" };
    let text = format!("revoked remote agent {}; {names} {are} {waits}", found.id);
    let done = show_done(json, &json!({}), &text)?;
    if revoke.release && !json {
        report_placements(of, &found.names)?;
    }
    Ok(done)
}

/// Reports the new placement of released agent names.
fn report_placements(of: &RemoteEnvironment, names: &[String]) -> Result<(), CliError> {
    for name in names {
        // An agent without resources has no placement.
        let Some(agent) = of.client.find::<Agent>(&of.path(&["agents", name]))? else { continue };
        match agent.placement.has_machine {
            true => output::print_status(&style::sanitize(&agent.placement.reason)),
            false => print_reason(&agent),
        }
    }
    Ok(())
}

/// Finds a remote agent by id or by an agent that it serves.
fn find(of: &RemoteEnvironment, text: &str) -> Result<RemoteAgent, CliError> {
    if let Ok(id) = text.parse::<Uuid>()
        && let Some(found) = of.client.find(&of.path(&["remote-agents", &id.to_string()]))?
    {
        return Ok(found);
    }
    let serving = query(&of.path(&["remote-agents"]), &[("name", Some(text))]);
    of.client.list(&serving).next().transpose()?.ok_or_else(|| {
        CliError::new(format!("no remote agent {text}, and none that serves it"))
            .help("`orrery agent remotes` lists the remote agents")
    })
}
