//! Access to machines over SSH with pinned host keys.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::hex::to_hex;
use orrery_base::lock::IgnorePoison as _;
use orrery_handlers::target::ShellTarget;
use orrery_handlers::{CancelToken, SecretError, SecretSource, Secrets, Target};
use orrery_model::{HostKeyChecking, Privilege, SecretText, SshAddress, SshOptions};
use orrery_ssh::{ConnectionLimits, RouteSource, SshClient, SshRuntime, SshTransport, local_user};
use sha2::{Digest as _, Sha256};

use crate::plugin::{NodeAccess, PluginError, SshLogin};

/// Directory of this program on machines that have one node.
pub(crate) const NODE_HOME: &str = "/var/lib/orrery-node";
/// Name of the private key among the secrets of a client.
const IDENTITY: &str = "identity";
/// Connected machines beyond which unused ones are forgotten.
const MACHINES_MAX: usize = 1024;
/// Time for one attempt to log in.
const ATTEMPT_TIME: Duration = Duration::from_secs(20);
/// Pauses between attempts.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Connections to machines. Clones share them.
#[derive(Clone)]
pub struct SshMachineAccess {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: SshRuntime,
    /// Files of known hosts, one for each machine.
    directory: PathBuf,
    connected: Mutex<HashMap<String, Arc<Connected>>>,
}

/// Connections to one machine with one login.
struct Connected {
    client: SshClient,
    address: SshAddress,
    target: Mutex<Option<Arc<ShellTarget>>>,
}

struct OneIdentity(SecretText);

impl Secrets for OneIdentity {
    fn resolve(&self, source: &SecretSource) -> Result<SecretText, SecretError> {
        match source {
            SecretSource::Stored(name) if name == IDENTITY => Ok(self.0.clone()),
            SecretSource::Stored(name) => Err(SecretError::NotFound(name.clone())),
            other => Err(SecretError::NotFound(format!("{other:?}"))),
        }
    }
}

impl fmt::Debug for SshMachineAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SshMachineAccess")
    }
}

impl SshMachineAccess {
    /// Starts the threads of the connections. Host keys are kept in files below `directory`.
    ///
    /// # Errors
    /// If the system has no threads left, or the directory cannot be created.
    pub fn new(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        fs::create_dir_all(&directory)?;
        let runtime = SshRuntime::new(ConnectionLimits::default())?;
        let inner = Inner { runtime, directory, connected: Mutex::default() };
        Ok(SshMachineAccess { inner: Arc::new(inner) })
    }

    fn connected(&self, machine: &str, login: &SshLogin) -> Result<Arc<Connected>, PluginError> {
        let identity = to_hex(&Sha256::digest(login.identity.expose()));
        let pinned = login.host_key.as_deref().unwrap_or_default();
        let key =
            format!("{machine} {}@{}:{} {identity} {pinned}", login.user, login.host, login.port);
        let mut connected = self.inner.connected.lock().ignore_poison();
        if let Some(found) = connected.get(&key) {
            return Ok(Arc::clone(found));
        }
        if connected.len() >= MACHINES_MAX {
            connected.retain(|_, machine| Arc::strong_count(machine) > 1);
        }
        let known_hosts = self.known_hosts(machine);
        let failed =
            |error: io::Error| PluginError::io(format!("write {}", known_hosts.display()), &error);
        match &login.host_key {
            Some(host_key) => {
                let line = format!("{} {host_key}\n", known_host_name(login));
                fs::write(&known_hosts, line).map_err(failed)?;
            }
            // Nothing is pinned, so a key of an earlier attempt counts for nothing.
            None => match fs::remove_file(&known_hosts) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            },
        }
        let routes = RouteSource::isolated(local_user(), vec![known_hosts]);
        let secrets = Arc::new(OneIdentity(login.identity.clone()));
        let client = SshClient::new(self.inner.runtime.clone(), routes, secrets);
        let checking = match login.host_key {
            Some(_) => HostKeyChecking::Strict,
            None => HostKeyChecking::AcceptNew,
        };
        let options = SshOptions {
            identity_secret: Some(IDENTITY.to_owned()),
            sudo: (login.user != "root").then_some(Privilege::Sudo),
            strict_host_key: Some(checking),
            ..SshOptions::default()
        };
        let address = SshAddress {
            host: login.host.clone(),
            port: Some(login.port),
            user: Some(login.user.clone()),
            options,
        };
        let found = Arc::new(Connected { client, address, target: Mutex::default() });
        connected.insert(key, Arc::clone(&found));
        Ok(found)
    }

    fn known_hosts(&self, machine: &str) -> PathBuf {
        self.inner.directory.join(machine)
    }

    /// Waits until a login succeeds, and returns the key of the machine: type and base64.
    ///
    /// # Errors
    /// If none succeeds in time; at once if the machine has another key than the pinned one.
    pub(crate) fn confirm(
        &self,
        machine: &str,
        login: &SshLogin,
        wait: Duration,
        stop: &CancelToken,
    ) -> Result<String, PluginError> {
        let connected = self.connected(machine, login)?;
        let transport = connected.transport()?;
        let deadline = monotonic() + wait;
        let mut pause = PAUSE;
        while let Err(error) = transport.ping(&stop.within(ATTEMPT_TIME)) {
            let is_over = monotonic() + pause > deadline || stop.reason().is_some();
            let is_final = error.reason.contains("host key");
            if is_over || is_final {
                let text = format!("{machine} does not accept logins: {error}");
                let hint = error.help.clone().unwrap_or_else(|| {
                    "look at the machine, or replace the node: `orrery cluster replace`".to_owned()
                });
                return Err(PluginError::new(text).with_hint(hint));
            }
            let _ = stop.sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        if let Some(host_key) = &login.host_key {
            return Ok(host_key.clone());
        }
        let path = self.known_hosts(machine);
        let text = fs::read_to_string(&path)
            .map_err(|error| PluginError::io(format!("read {}", path.display()), &error))?;
        let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().skip(1).take(2).collect();
        match words[..] {
            [kind, key] => Ok(format!("{kind} {key}")),
            _ => Err(PluginError::new(format!("{} has no host key", path.display()))),
        }
    }

    /// Forgets the connections and the key of a machine that is gone.
    pub(crate) fn disconnect(&self, machine: &str) {
        let start = format!("{machine} ");
        self.inner.connected.lock().ignore_poison().retain(|key, _| !key.starts_with(&start));
        let _ = fs::remove_file(self.known_hosts(machine));
    }

    /// Access to a machine whose key is pinned.
    pub(crate) fn access(&self, machine: &str, login: SshLogin) -> Result<NodeAccess, PluginError> {
        if login.host_key.is_none() {
            return Err(PluginError::new(format!("the host key of {machine} is not known yet")));
        }
        let target = self.connected(machine, &login)?.target()?;
        Ok(NodeAccess {
            target: target as Arc<dyn Target>,
            home: NODE_HOME.to_owned(),
            environment: Vec::new(),
            ssh: Some(login),
        })
    }
}

impl Connected {
    fn transport(&self) -> Result<SshTransport, PluginError> {
        let transport = self.client.transport(&self.address);
        transport.map_err(|error| PluginError::new(error.to_string()))
    }

    fn target(&self) -> Result<Arc<ShellTarget>, PluginError> {
        let mut target = self.target.lock().ignore_poison();
        if let Some(target) = &*target {
            return Ok(Arc::clone(target));
        }
        let new = Arc::new(ShellTarget::new(Arc::new(self.transport()?)));
        *target = Some(Arc::clone(&new));
        Ok(new)
    }
}

/// Name of a host in a file of known hosts.
fn known_host_name(login: &SshLogin) -> String {
    match login.port {
        22 => login.host.clone(),
        port => format!("[{}]:{port}", login.host),
    }
}
