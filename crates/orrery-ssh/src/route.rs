//! Routes to machines: the jump hosts and the machine itself, with the credentials of each.

use std::path::PathBuf;
use std::time::Duration;

use orrery_handlers::SecretSource;
use orrery_model::{HostKeyChecking, SshAddress};

use crate::config::{
    AgentSocket, ConfigError, Destination, HostKeyPolicy, HostRequest, LocalUser, SshConfig,
};

/// One connection of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) destination: Destination,
    pub(crate) password: Option<SecretSource>,
    pub(crate) identity: Option<SecretSource>,
    pub(crate) passphrase: Option<SecretSource>,
}

/// Resolves addresses to routes.
#[derive(Debug)]
pub struct RouteSource {
    config: SshConfig,
    local: LocalUser,
    /// Files of known hosts instead of those of the user; new keys go to the first.
    known_hosts: Option<Vec<PathBuf>>,
    /// Uses keys of this machine: files, and the user's SSH agent.
    uses_own_keys: bool,
}

impl RouteSource {
    /// Routes of a user, with the configuration, keys and SSH agent of that user.
    pub fn of_user(config: SshConfig, local: LocalUser) -> Self {
        RouteSource { config, local, known_hosts: None, uses_own_keys: true }
    }

    /// Routes that use nothing of this machine but these files of known hosts. New keys go to the
    /// first one.
    pub fn isolated(local: LocalUser, known_hosts: Vec<PathBuf>) -> Self {
        RouteSource {
            config: SshConfig::default(),
            local,
            known_hosts: Some(known_hosts),
            uses_own_keys: false,
        }
    }

    pub(crate) fn uses_own_keys(&self) -> bool {
        self.uses_own_keys
    }

    pub(crate) fn local(&self) -> &LocalUser {
        &self.local
    }

    /// Resolves an address to the connections that lead to it, in their order.
    pub(crate) fn route(&self, address: &SshAddress) -> Result<Vec<Hop>, ConfigError> {
        let options = &address.options;
        let known_hosts = self
            .known_hosts
            .as_ref()
            .map(|files| files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>());
        let request = HostRequest {
            host: address.host.clone(),
            address: None,
            user: address.user.clone(),
            port: address.port,
            identities: options.identity.iter().cloned().collect(),
            // Jump hosts of an address have values of their own, which the configuration lacks.
            jumps: options.jump.is_some().then(Vec::new),
            host_keys: options.strict_host_key.map(|checking| match checking {
                HostKeyChecking::Strict => HostKeyPolicy::Known,
                HostKeyChecking::AcceptNew => HostKeyPolicy::AcceptNew,
            }),
            known_hosts,
            connect_timeout: options
                .connect_timeout_s
                .map(|seconds| Duration::from_secs(seconds.into())),
        };
        let mut hops = match &options.jump {
            Some(jump) => self.route(jump)?,
            None => Vec::new(),
        };
        for destination in self.config.route(&request, &self.local)? {
            hops.push(Hop {
                destination: self.restricted(destination),
                password: None,
                identity: None,
                passphrase: None,
            });
        }
        if let Some(last) = hops.last_mut() {
            last.password = options.password_secret.as_deref().map(secret_source);
            last.identity = options.identity_secret.as_deref().map(secret_source);
            last.passphrase = options.passphrase_secret.as_deref().map(secret_source);
        }
        Ok(hops)
    }

    fn restricted(&self, mut destination: Destination) -> Destination {
        if !self.uses_own_keys {
            destination.agent = AgentSocket::None;
        }
        if self.known_hosts.is_some() {
            destination.global_known_hosts.clear();
        }
        destination
    }
}

/// Parses the name of a secret: `env:VARIABLE`, `file:PATH`, or a name in the server's vault.
pub(crate) fn secret_source(text: &str) -> SecretSource {
    if let Some(variable) = text.strip_prefix("env:") {
        SecretSource::Environment(variable.to_owned())
    } else if let Some(path) = text.strip_prefix("file:") {
        SecretSource::File(PathBuf::from(path))
    } else {
        SecretSource::Stored(text.to_owned())
    }
}

/// Secrets of a server's vault without which nothing connects to an address; also those of its jump
/// hosts.
pub fn vault_secrets(address: &SshAddress) -> Vec<&str> {
    let options = &address.options;
    let own = [&options.identity_secret, &options.passphrase_secret, &options.password_secret];
    let is_stored = |name: &&str| matches!(secret_source(name), SecretSource::Stored(_));
    let mut found: Vec<&str> =
        own.into_iter().flatten().map(String::as_str).filter(is_stored).collect();
    if let Some(jump) = &options.jump {
        found.extend(vault_secrets(jump));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigFile;

    fn local() -> LocalUser {
        LocalUser {
            name: "me".to_owned(),
            uid: 1000,
            home: PathBuf::from("/home/me"),
            host_name: "desk".to_owned(),
            agent_socket: None,
        }
    }

    fn source(text: &str) -> RouteSource {
        let file = ConfigFile { name: "config".to_owned(), text: text.to_owned() };
        let config = SshConfig::parse(&[file], &mut |_| Vec::new()).unwrap();
        RouteSource::of_user(config, local())
    }

    fn addresses(source: &RouteSource, address: &str) -> Vec<String> {
        let hops = source.route(&address.parse().unwrap()).unwrap();
        hops.iter().map(|hop| hop.destination.address()).collect()
    }

    #[test]
    fn jump_hosts_of_an_address_come_before_those_of_the_configuration() {
        let source = source("Host web1\nProxyJump other\nHost bastion\nUser ops\nPort 2200\n");
        assert_eq!(addresses(&source, "ssh://web1"), ["me@other:22", "me@web1:22"]);
        assert_eq!(
            addresses(&source, "ssh://jo@web1?jump=gate,bastion"),
            ["me@gate:22", "ops@bastion:2200", "jo@web1:22"]
        );
    }

    #[test]
    fn an_isolated_route_uses_nothing_of_this_machine() {
        let source = RouteSource::isolated(local(), vec![PathBuf::from("/data/known_hosts")]);
        let hops = source.route(&"ssh://web1?identity_secret=key".parse().unwrap()).unwrap();
        let [hop] = &hops[..] else { panic!("{hops:?}") };
        assert_eq!(hop.destination.agent, AgentSocket::None);
        assert_eq!(hop.destination.user_known_hosts, [PathBuf::from("/data/known_hosts")]);
        assert!(hop.destination.global_known_hosts.is_empty());
        assert_eq!(hop.identity, Some(SecretSource::Stored("key".to_owned())));
    }

    #[test]
    fn secrets_of_a_vault_are_those_of_all_hops() {
        let address = "ssh://web1?identity_secret=key&sudo_secret=root&password_secret=env:PW";
        assert_eq!(vault_secrets(&address.parse().unwrap()), ["key"]);
        let mut address: SshAddress = "ssh://web1?identity_secret=file:/k".parse().unwrap();
        assert!(vault_secrets(&address).is_empty());
        address.options.jump = Some(Box::new("ssh://gate?password_secret=pw".parse().unwrap()));
        assert_eq!(vault_secrets(&address), ["pw"]);
    }

    #[test]
    fn secrets_have_sources() {
        assert_eq!(secret_source("env:PW"), SecretSource::Environment("PW".to_owned()));
        assert_eq!(secret_source("file:/run/pw"), SecretSource::File(PathBuf::from("/run/pw")));
        assert_eq!(secret_source("pw"), SecretSource::Stored("pw".to_owned()));
    }
}
