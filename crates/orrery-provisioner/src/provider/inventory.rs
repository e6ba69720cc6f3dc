//! Provider `inventory`: existing machines over SSH. A claim file on a host says which node it
//! serves, so that a host serves one node.

use std::fmt::Write as _;
use std::time::Duration;

use orrery_handlers::CancelToken;
use orrery_handlers::target::{CommandLine, RemovalMode};
use orrery_model::SecretText;
use serde::{Deserialize, Serialize};

use crate::facts::NodeFacts;
use crate::machine_name::MachineName;
use crate::plugin::{
    FieldFormat, FieldSchema, MachineCall, MachineProvider, NodeAccess, PluginError, PluginKind,
    PluginManifest, SshLogin,
};
use crate::ssh_access::{NODE_HOME, SshMachineAccess};
use crate::task::MachineRecord;

/// Directory whose existence claims a host; its file `machine` has the name.
const CLAIM: &str = "/var/lib/orrery-claim";
/// Time to look at one host.
const LOOK_TIME: Duration = Duration::from_secs(10);
/// Largest claim in bytes.
const CLAIM_BYTES_MAX: u64 = 4096;

/// Machines that exist already.
#[derive(Debug)]
pub struct InventoryProvider {
    manifest: PluginManifest,
    ssh: SshMachineAccess,
}

/// A host of the field `hosts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InventoryHost {
    host: String,
    #[serde(default = "default_port")]
    port: u16,
    /// Account, instead of that of the image.
    #[serde(default)]
    user: Option<String>,
    /// Type and base64 of the host's key; the first one seen is pinned otherwise.
    #[serde(default)]
    host_key: Option<String>,
    /// Address on which services listen, if it is another one.
    #[serde(default)]
    bind_address: Option<String>,
    /// Sizes that the host serves; all if it has none.
    #[serde(default)]
    flavors: Vec<String>,
}

fn default_port() -> u16 {
    22
}

/// A host that can be reached.
struct Reached {
    host: InventoryHost,
    login: SshLogin,
    access: NodeAccess,
}

impl InventoryProvider {
    pub fn new(ssh: SshMachineAccess) -> Self {
        let manifest = PluginManifest::new(
            PluginKind::Provider,
            "inventory",
            "Inventory",
            "Existing machines over SSH.",
        )
        .field(
            "hosts",
            FieldSchema::new(
                "Hosts",
                FieldFormat::Json,
                "List of hosts: {host, port, user, host_key, bind_address, flavors}.",
            ),
        )
        .field(
            "identity",
            FieldSchema::new("Private key", FieldFormat::Password, "Private key for logins.")
                .sensitive(),
        )
        .requires(&["hosts", "identity"]);
        InventoryProvider { manifest, ssh }
    }

    fn hosts(call: &MachineCall<'_>) -> Result<Vec<InventoryHost>, PluginError> {
        let failed = |reason: String| {
            PluginError::new(format!("the field hosts of inventory: {reason}"))
                .with_hint("write a list such as [{\"host\": \"192.0.2.7\", \"user\": \"admin\"}]")
        };
        let value = call.fields.get("hosts").cloned().unwrap_or_default();
        let value = match value.as_str() {
            Some(text) => serde_json::from_str(text).map_err(|error| failed(error.to_string()))?,
            None => value,
        };
        let hosts: Vec<InventoryHost> =
            serde_json::from_value(value).map_err(|error| failed(error.to_string()))?;
        if hosts.is_empty() {
            return Err(failed("it has no hosts".to_owned()));
        }
        Ok(hosts)
    }

    fn login(call: &MachineCall<'_>, host: &InventoryHost, key: Option<String>) -> SshLogin {
        let user = host.user.clone().or(Some(call.description().ssh_user.clone()));
        SshLogin {
            host: host.host.clone(),
            port: host.port,
            user: user.filter(|user| !user.is_empty()).unwrap_or_else(|| "root".to_owned()),
            identity: SecretText::new(call.fields.text("identity").unwrap_or_default()),
            host_key: key.or_else(|| host.host_key.clone()),
        }
    }

    /// Name under which the connections to a host are kept.
    fn connection(host: &InventoryHost) -> String {
        let mut name = String::from("inventory-");
        for byte in format!("{}-{}", host.host, host.port).bytes() {
            let is_plain = byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
            match is_plain {
                true => name.push(char::from(byte)),
                // Writing to a string cannot fail.
                false => drop(write!(name, "_{byte:02x}")),
            }
        }
        name
    }

    fn reach(
        &self,
        call: &MachineCall<'_>,
        host: &InventoryHost,
        wait: Duration,
    ) -> Result<Reached, PluginError> {
        let mut login = InventoryProvider::login(call, host, None);
        let name = InventoryProvider::connection(host);
        let key = self.ssh.confirm(&name, &login, wait, call.stop)?;
        login.host_key = Some(key);
        let access = self.ssh.access(&name, login.clone())?;
        Ok(Reached { host: host.clone(), login, access })
    }

    /// Hosts that serve the node, with the names of their machines. A host that is down matters
    /// only if no other one serves the node: it might be that one.
    fn claimed(&self, call: &MachineCall<'_>) -> Result<Vec<(Reached, MachineName)>, PluginError> {
        let mut found = Vec::new();
        let mut failure = None;
        for host in InventoryProvider::hosts(call)? {
            let claim = self.reach(call, &host, LOOK_TIME).and_then(|reached| {
                let name = read_claim(&reached)?;
                Ok(name.map(|name| (reached, name)))
            });
            match claim {
                Ok(Some((reached, name))) if name.is_same_node(call.name) => {
                    found.push((reached, name));
                }
                Ok(_) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }
}

/// Machine that a host serves.
fn read_claim(reached: &Reached) -> Result<Option<MachineName>, PluginError> {
    let text = reached.access.target.read_file(&format!("{CLAIM}/machine"), CLAIM_BYTES_MAX)?;
    let Some(text) = text else { return Ok(None) };
    let text = String::from_utf8_lossy(&text);
    text.trim().parse().map(Some).map_err(|_| {
        PluginError::new(format!("{CLAIM}/machine on {} is damaged", reached.host.host))
            .with_hint(format!("remove {CLAIM} on the host if no cluster uses it"))
    })
}

/// Claims a host; returns false if it serves another node.
fn claim(reached: &Reached, name: &MachineName, stop: &CancelToken) -> Result<bool, PluginError> {
    // One step: `mkdir` or `mv` onto an existing directory fails.
    let script = format!(
        "set -e; umask 022; new={CLAIM}.{name}; rm -rf \"$new\"; mkdir -p \"$new\"; \
         echo {name} >\"$new/machine\"; \
         if [ -e {CLAIM} ] || ! mv -T \"$new\" {CLAIM} 2>/dev/null; then rm -rf \"$new\"; fi"
    );
    let output = reached.access.target.run(&CommandLine::shell(&script), stop)?;
    if !output.success() {
        let text = format!("cannot claim {}: {}", reached.host.host, output.error_excerpt());
        return Err(PluginError::new(text));
    }
    Ok(read_claim(reached)?.as_ref() == Some(name))
}

/// Ends the service of a host for a node. Files of services stay: their `remove` actions know them.
fn release(reached: &Reached) -> Result<(), PluginError> {
    let target = &reached.access.target;
    target.remove_directory(NODE_HOME, RemovalMode::WithContent)?;
    target.remove_directory(CLAIM, RemovalMode::WithContent)?;
    Ok(())
}

fn facts(name: &MachineName, reached: &Reached) -> NodeFacts {
    let host = &reached.host;
    let bind = host.bind_address.as_ref().unwrap_or(&host.host);
    let addresses = [("access_v4", &host.host), ("bind_v4", bind)];
    NodeFacts {
        incarnation: Some(name.incarnation),
        provider_id: Some(format!("{}:{}", host.host, host.port)),
        addresses: addresses.map(|(kind, address)| (kind.to_owned(), address.clone())).into(),
        ssh_port: Some(host.port),
        ssh_user: Some(reached.login.user.clone()),
        ssh_host_key: reached.login.host_key.clone(),
        port_base: None,
    }
}

impl MachineProvider for InventoryProvider {
    fn manifest(&self) -> &PluginManifest {
        &self.manifest
    }

    fn create(&self, call: &MachineCall<'_>) -> Result<NodeFacts, PluginError> {
        if let Some((reached, _)) =
            self.claimed(call)?.into_iter().find(|(_, name)| name == call.name)
        {
            return Ok(facts(call.name, &reached));
        }
        let flavor = &call.description().flavor;
        for host in InventoryProvider::hosts(call)? {
            if !host.flavors.is_empty() && !host.flavors.contains(flavor) {
                continue;
            }
            let reached = self.reach(call, &host, LOOK_TIME)?;
            if read_claim(&reached)?.is_none() && claim(&reached, call.name, call.stop)? {
                // What an earlier node left counts for nothing.
                reached.access.target.remove_directory(NODE_HOME, RemovalMode::WithContent)?;
                return Ok(facts(call.name, &reached));
            }
        }
        Err(PluginError::new(format!("no host of the inventory is free for {}", call.name))
            .with_hint("add a host of this flavor to the provider, or shrink another cluster"))
    }

    fn confirm(&self, call: &MachineCall<'_>, wait: Duration) -> Result<NodeFacts, PluginError> {
        let id = call.facts().provider_id.clone();
        for host in InventoryProvider::hosts(call)? {
            let is_known =
                id.as_ref().is_none_or(|id| *id == format!("{}:{}", host.host, host.port));
            if !is_known {
                continue;
            }
            let mut host = host;
            host.host_key = call.facts().ssh_host_key.clone().or(host.host_key);
            let wait = if id.is_some() { wait } else { LOOK_TIME };
            let reached = self.reach(call, &host, wait)?;
            if read_claim(&reached)?.as_ref() == Some(call.name) {
                return Ok(facts(call.name, &reached));
            }
        }
        Err(PluginError::new(format!("no host of the inventory serves {}", call.name)))
    }

    fn delete(&self, call: &MachineCall<'_>, machine: &MachineName) -> Result<(), PluginError> {
        for (reached, name) in self.claimed(call)? {
            if name == *machine {
                release(&reached)?;
            }
        }
        Ok(())
    }

    fn list(&self, call: &MachineCall<'_>) -> Result<Vec<MachineRecord>, PluginError> {
        let record = |(reached, name): (Reached, MachineName)| MachineRecord {
            name: name.to_string(),
            provider_id: Some(format!("{}:{}", reached.host.host, reached.host.port)),
            is_running: true,
        };
        Ok(self.claimed(call)?.into_iter().map(record).collect())
    }

    fn access(&self, call: &MachineCall<'_>) -> Result<NodeAccess, PluginError> {
        let facts = call.facts();
        let host = InventoryHost {
            host: facts.access_address().unwrap_or_default().to_owned(),
            port: facts.ssh_port.unwrap_or(22),
            user: facts.ssh_user.clone(),
            host_key: facts.ssh_host_key.clone(),
            bind_address: None,
            flavors: Vec::new(),
        };
        let login = InventoryProvider::login(call, &host, facts.ssh_host_key.clone());
        self.ssh.access(&InventoryProvider::connection(&host), login)
    }
}
