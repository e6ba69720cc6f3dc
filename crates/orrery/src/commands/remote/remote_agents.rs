//! `orrery agent invite`, `install-script`, `remotes` and `revoke`.

use std::fs::{OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use orrery_agent::GatewayAddress;
use orrery_agent::token::JoinToken;
use orrery_api::client::query;
use orrery_api::{Agent, Invitation, NewInvitation, RemoteAgent};
use orrery_model::{InstallScript, ProgramSource};
use serde_json::{Value, json};
use uuid::Uuid;

use super::agents::print_reason;
use super::table::{Table, moment_or};
use super::{print_json, read_list, show_done, show_list};
use crate::cli::agent::{AgentInstallScript, AgentInvite, AgentRevoke};
use crate::commands::agent::runtime;
use crate::error::CliError;
use crate::remote::RemoteEnvironment;
use crate::{Exit, output, style};

pub(super) fn invite(
    of: &RemoteEnvironment,
    invite: AgentInvite,
    json: bool,
) -> Result<Exit, CliError> {
    let created = create_invitation(of, invite)?;
    if json {
        return print_json(&created);
    }
    print_notes(&created);
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

/// Prints what happens to names that already have a place.
fn print_notes(created: &Invitation) {
    for note in &created.notes {
        output::print_status(&format!("{}: {}", style::warning("warning"), style::sanitize(note)));
    }
}

fn create_invitation(of: &RemoteEnvironment, invite: AgentInvite) -> Result<Invitation, CliError> {
    let AgentInvite { names, expires_in } = invite;
    let new = NewInvitation { names, expires_in: Some(expires_in) };
    let at = of.path(&["remote-agents", "invitations"]);
    Ok(of.client.post_once(&at, &new)?)
}

pub(super) fn install_script(
    of: &RemoteEnvironment,
    options: AgentInstallScript,
    json: bool,
) -> Result<Exit, CliError> {
    let AgentInstallScript { invite, cloud_init, program, sha256, user, output } = options;
    let program = match (program, sha256) {
        (None, _) => None,
        (Some(url), Some(sha256)) if url.contains("://") => {
            Some(ProgramSource::Url { url, sha256 })
        }
        (Some(url), None) if url.contains("://") => {
            let error = CliError::new(format!("the SHA-256 of {url} is missing"));
            return Err(error.help("add --sha256 DIGEST: the script accepts no other content"));
        }
        (Some(path), sha256) => Some(ProgramSource::Path { path, sha256 }),
    };
    let created = create_invitation(of, invite)?;
    print_notes(&created);
    let program = match program {
        Some(program) => program,
        None => program_of_gateway(&created)?,
    };
    let token = created.token.clone();
    let script = InstallScript { gateway: created.gateway.clone(), token, program, user };
    let text = if cloud_init { script.cloud_init() } else { script.shell() };
    let text = text.map_err(|error| CliError::from_error(&error))?;
    if let Some(path) = output {
        write_private(&path, &text)
            .map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))?;
        let until = moment_or(Some(&created.expires), "-");
        let shown = json!({"file": path.display().to_string(), "expires": created.expires});
        let done = format!("wrote {}; its token is valid until {until}", path.display());
        return show_done(json, &shown, &style::sanitize(&done));
    }
    if json {
        let shown = json!({"script": text, "names": created.names, "expires": created.expires});
        return print_json(&shown);
    }
    let written = output::print(|out| out.write_all(text.as_bytes()));
    Ok(if written { Exit::Done } else { Exit::Error })
}

/// The program that the gateway of an invitation offers.
fn program_of_gateway(created: &Invitation) -> Result<ProgramSource, CliError> {
    let from_error = |error: &dyn std::error::Error| {
        CliError::from_error(error).help(
            "name another source with --program URL --sha256 DIGEST, or --program PATH for a machine that has the program",
        )
    };
    let gateway: GatewayAddress = created.gateway.parse().map_err(|error| from_error(&error))?;
    let token = JoinToken::parse(created.token.expose()).map_err(|error| from_error(&error))?;
    let offered = runtime()?.block_on(orrery_agent::offered_program(&gateway, &token));
    let offered = offered.map_err(|error| from_error(&error))?;
    Ok(ProgramSource::Gateway { architecture: offered.architecture, sha256: offered.sha256 })
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())
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
