//! A client with a configuration of its own, and time limits for tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orrery_handlers::target::{ExecLimits, Output, Transport, TransportError};
use orrery_handlers::{CancelToken, SecretError, SecretSource, Secrets};
use orrery_model::SecretText;
use orrery_ssh::config::{ConfigFile, LocalUser, SshConfig};
use orrery_ssh::{ConnectionLimits, RouteSource, SshClient, SshRuntime, SshTransport};
use orrery_testing::TestSshd;

/// Secrets by name.
#[derive(Default)]
pub(crate) struct NamedSecrets(pub(crate) BTreeMap<&'static str, String>);

impl Secrets for NamedSecrets {
    fn resolve(&self, source: &SecretSource) -> Result<SecretText, SecretError> {
        let SecretSource::Stored(name) = source else { panic!("{source:?}") };
        let found = self.0.get(name.as_str());
        found.map(SecretText::new).ok_or_else(|| SecretError::NotFound(name.clone()))
    }
}

/// Limits that let tests of refusals end soon.
pub(crate) fn quick_limits() -> ConnectionLimits {
    ConnectionLimits {
        connect: Duration::from_secs(5),
        handshake: Duration::from_secs(5),
        authentication: Duration::from_secs(10),
        channel: Duration::from_secs(10),
        keepalive: Duration::from_millis(500),
        ..ConnectionLimits::default()
    }
}

pub(crate) fn user(home: &Path, name: &str) -> LocalUser {
    LocalUser {
        name: name.to_owned(),
        uid: 0,
        home: home.to_owned(),
        host_name: "desk".to_owned(),
        agent_socket: None,
    }
}

/// A client of a user with this configuration.
pub(crate) fn client(config: &str, local: LocalUser, limits: ConnectionLimits) -> SshClient {
    client_with_secrets(config, local, limits, NamedSecrets::default())
}

pub(crate) fn client_with_secrets(
    config: &str,
    local: LocalUser,
    limits: ConnectionLimits,
    secrets: NamedSecrets,
) -> SshClient {
    let file = ConfigFile { name: "config".to_owned(), text: config.to_owned() };
    let config = SshConfig::parse(&[file], &mut |_| Vec::new()).unwrap();
    let runtime = SshRuntime::new(limits).unwrap();
    SshClient::new(runtime, RouteSource::of_user(config, local), Arc::new(secrets))
}

/// A client that knows a server and has its key.
pub(crate) fn client_of(sshd: &TestSshd, limits: ConnectionLimits) -> SshClient {
    client(&config_of(sshd), user(&PathBuf::from(sshd.path("home")), sshd.user()), limits)
}

pub(crate) fn config_of(sshd: &TestSshd) -> String {
    let known = sshd.known_hosts();
    format!(
        "IdentityFile {}\nUserKnownHostsFile {}\nGlobalKnownHostsFile none\n",
        sshd.identity(),
        known.display()
    )
}

/// Transport to a server of a test.
pub(crate) fn transport(client: &SshClient, port: u16, options: &str) -> SshTransport {
    let address = format!("ssh://127.0.0.1:{port}{options}");
    client.transport(&address.parse().unwrap()).unwrap()
}

pub(crate) fn connected(sshd: &TestSshd) -> (SshClient, SshTransport) {
    let client = client_of(sshd, quick_limits());
    let transport = transport(&client, sshd.port(), "");
    (client, transport)
}

pub(crate) fn exec(transport: &dyn Transport, command: &str) -> Result<Output, TransportError> {
    exec_with(transport, command, b"")
}

pub(crate) fn exec_with(
    transport: &dyn Transport,
    command: &str,
    input: &[u8],
) -> Result<Output, TransportError> {
    let stop = CancelToken::never().within(Duration::from_secs(60));
    transport.exec(command, input, &ExecLimits::default(), &stop)
}

/// Waits for a condition.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
