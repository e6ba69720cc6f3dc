//! `orrery cluster ssh`: runs the program ssh with the address and host key that the server knows.

use std::io::Write as _;
use std::process::Command;

use orrery_api::NodeConnection;
use orrery_model::similar_names::closest;

use super::lookup;
use crate::cli::cluster_control::ClusterShell;
use crate::commands::remote::print_json;
use crate::error::CliError;
use crate::{Exit, output, style};

const SSH_PORT: u16 = 22;

pub(super) fn open(options: &ClusterShell) -> Result<Exit, CliError> {
    let found = lookup::find(&options.of)?;
    let connection = found.remote.client.cluster_connection(&found.cluster.id)?;
    let node = choose(&connection.nodes, options.node.as_deref(), &found.name())?;
    if options.of.args.json {
        return print_json(node);
    }
    let Some(address) = &node.address else {
        let error =
            CliError::new(format!("node {} has no address yet", style::sanitize(&node.node)));
        return Err(error.help(format!("orrery cluster watch {}", found.name())));
    };
    // An option in their place would be executed by ssh.
    if [address.as_str(), node.ssh_user.as_str()].iter().any(|text| text.starts_with('-')) {
        return Err(CliError::new(format!("{address} is not an address")));
    }
    let port = node.ssh_port.unwrap_or(SSH_PORT);
    let mut ssh = Command::new("ssh");
    ssh.arg("-p").arg(port.to_string()).arg("-l").arg(&node.ssh_user);
    if let Some(identity) = &options.identity {
        ssh.arg("-i").arg(identity);
    }
    // Exists as long as ssh runs.
    let known_hosts = known_hosts(node, address, port)?;
    if let Some(file) = &known_hosts {
        ssh.arg("-o").arg(format!("UserKnownHostsFile={}", file.path().display()));
        ssh.args(["-o", "GlobalKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=yes"]);
    } else {
        let name = style::sanitize(&node.node);
        let warning = style::warning("warning");
        output::print_status(&format!("{warning}: the host key of {name} is not known"));
    }
    ssh.arg(address).args(&options.command);
    let status = ssh.status().map_err(|error| {
        CliError::new(format!("cannot run ssh: {error}")).help("install an SSH client")
    })?;
    match status.code() {
        Some(0) => Ok(Exit::Done),
        Some(code) => Err(CliError::new(format!("ssh ended with code {code}"))),
        None => Err(CliError::new("ssh was killed")),
    }
}

fn choose<'n>(
    nodes: &'n [NodeConnection],
    name: Option<&str>,
    cluster: &str,
) -> Result<&'n NodeConnection, CliError> {
    let Some(name) = name else {
        let first = nodes.first();
        return first.ok_or_else(|| CliError::new(format!("cluster {cluster} has no nodes")));
    };
    let found = nodes.iter().find(|node| node.node == name || node.hostname == name);
    found.ok_or_else(|| {
        let error = CliError::new(format!("no node {} in {cluster}", style::sanitize(name)));
        match closest(name, nodes.iter().map(|node| node.node.as_str())) {
            Some(close) => error.help(format!("did you mean {}?", style::sanitize(close))),
            None => error.help(format!("`orrery cluster show {cluster}` lists the nodes")),
        }
    })
}

/// A file with the pinned host key of a node.
fn known_hosts(
    node: &NodeConnection,
    address: &str,
    port: u16,
) -> Result<Option<tempfile::NamedTempFile>, CliError> {
    let Some(key) = &node.host_key else { return Ok(None) };
    let host = if port == SSH_PORT { address.to_owned() } else { format!("[{address}]:{port}") };
    let mut file = tempfile::NamedTempFile::new()?;
    writeln!(file, "{host} {}", key.trim())?;
    Ok(Some(file))
}
