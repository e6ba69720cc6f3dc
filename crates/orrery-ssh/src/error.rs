//! Errors of connections, with the remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use orrery_handlers::SecretError;

use crate::config::ConfigError;
use crate::known_hosts::LinePlace;

/// Reason for a missing connection. Nothing was started on the machine.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("cannot resolve the host name {host}: {source}")]
    Resolve { host: String, source: io::Error },
    #[error("cannot connect: {source}")]
    Connect { source: io::Error },
    #[error("no answer within {} s while {stage}", .limit.as_secs_f32())]
    Timeout { stage: &'static str, limit: Duration },
    #[error("the connection was closed before authentication")]
    ClosedEarly,
    #[error("it does not speak SSH as expected: {0}")]
    Protocol(String),
    #[error("{0}")]
    HostKey(#[from] HostKeyError),
    #[error("{0}")]
    Credential(#[from] CredentialError),
    #[error("authentication failed for user {user}: {tried}{}", accepted_methods(.accepted))]
    Authentication { user: String, tried: String, accepted: String },
    #[error("jump host {host}: {source}")]
    Jump { host: String, source: Box<ConnectError> },
    #[error("the jump host {host} cannot reach it: {reason}")]
    Tunnel { host: String, reason: String },
    #[error("{last}; next attempt in {} s", .retry_in.as_secs() + 1)]
    Waiting { last: String, help: Option<String>, retry_in: Duration },
    #[error("the client is shutting down")]
    Closed,
}

fn accepted_methods(methods: &str) -> String {
    match methods.is_empty() {
        true => String::new(),
        false => format!("; the machine accepts {methods}"),
    }
}

/// Reason for refusing the key of a host.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    #[error("the host key of {host} is unknown: {algorithm} {fingerprint}")]
    Unknown { host: String, algorithm: String, fingerprint: String, file: Option<PathBuf> },
    #[error(
        "the host key of {host} has changed: {place} has another one, and it now presents {algorithm} {fingerprint}"
    )]
    Changed { host: String, algorithm: String, fingerprint: String, place: LinePlace },
    #[error("the host key of {host} is revoked by {place}")]
    Revoked { host: String, place: LinePlace },
    #[error("the certificate of the host key of {host} is not valid: {reason}")]
    Certificate { host: String, reason: String },
    #[error("cannot read the known hosts in {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot record the host key of {host} in {}: {source}", .path.display())]
    Record { host: String, path: PathBuf, source: io::Error },
}

/// Reason for a missing key or password.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("cannot read the private key {}: {source}", .path.display())]
    ReadKey { path: PathBuf, source: io::Error },
    #[error("cannot read the private key {}: the file does not exist", .path.display())]
    MissingKey { path: PathBuf },
    #[error("the identity {what} is a public key, and the private one is required")]
    PublicKey { what: String, is_file: bool },
    #[error("the private key {what} cannot be read: {reason}")]
    ParseKey { what: String, reason: String },
    #[error("the private key {what} is encrypted")]
    Encrypted { what: String },
    #[error("the passphrase in the secret {secret} does not open the private key {what}")]
    Passphrase { what: String, secret: String },
    #[error("the private key {what} is of the type {algorithm}, which this program does not use")]
    Unsupported { what: String, algorithm: String },
    #[error("the private key {} is not protected: its mode is {mode:o}", .path.display())]
    Unprotected { path: PathBuf, mode: u32 },
    #[error("the path of a private key ({0}) does not count here")]
    PathNotAllowed(String),
    #[error("{0}")]
    Secret(#[from] SecretError),
}

impl ConnectError {
    /// Returns true if another attempt within the next second may succeed.
    pub(crate) fn is_brief(&self) -> bool {
        match self {
            // A server beyond its MaxStartups closes new connections.
            ConnectError::ClosedEarly => true,
            ConnectError::Connect { source } => source.kind() == io::ErrorKind::ConnectionReset,
            _ => false,
        }
    }

    /// Returns true if nothing was sent: a correction here takes effect at once.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            ConnectError::Config(_) | ConnectError::Credential(_) => true,
            ConnectError::HostKey(HostKeyError::Read { .. }) => true,
            ConnectError::Jump { source, .. } => source.is_local(),
            _ => false,
        }
    }

    /// Returns true if the machine was not reached: a later attempt may succeed by itself. A refusal
    /// stays one until it is corrected, and attempts that fail to authenticate may be punished.
    pub(crate) fn is_unreached(&self) -> bool {
        match self {
            ConnectError::Resolve { .. }
            | ConnectError::Connect { .. }
            | ConnectError::Timeout { .. }
            | ConnectError::ClosedEarly
            | ConnectError::Protocol(_)
            | ConnectError::Tunnel { .. }
            | ConnectError::Waiting { .. } => true,
            ConnectError::Jump { source, .. } => source.is_unreached(),
            ConnectError::Config(_)
            | ConnectError::HostKey(_)
            | ConnectError::Credential(_)
            | ConnectError::Authentication { .. }
            | ConnectError::Closed => false,
        }
    }

    /// Remedy for people.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            ConnectError::Config(_) => {
                "correct the configuration of the SSH client, or the address".to_owned()
            }
            ConnectError::Resolve { .. } => {
                "correct the host in its address, or give it an `address` in inventory.yml"
                    .to_owned()
            }
            ConnectError::Connect { source } => match source.kind() {
                io::ErrorKind::ConnectionRefused => {
                    "start its SSH server, or correct the port in its address".to_owned()
                }
                _ => "check that the machine runs and that the network and its firewalls let SSH pass"
                    .to_owned(),
            },
            ConnectError::Timeout { .. } => {
                "check that the machine runs and that nothing drops its packets; raise `connect_timeout` if it is slow".to_owned()
            }
            ConnectError::ClosedEarly => {
                "its SSH server refuses connections: see its log, and MaxStartups and AllowUsers of its configuration".to_owned()
            }
            ConnectError::Protocol(_) => {
                "check that an SSH server listens on this port".to_owned()
            }
            ConnectError::HostKey(error) => return error.help(),
            ConnectError::Credential(error) => return error.help(),
            ConnectError::Authentication { user, .. } => format!(
                "add the public key to ~/.ssh/authorized_keys of {user} there, or name another key (`identity`) or user in its address"
            ),
            ConnectError::Jump { source, .. } => return source.help(),
            ConnectError::Tunnel { .. } => {
                "check the address, and AllowTcpForwarding of the jump host's SSH server".to_owned()
            }
            ConnectError::Waiting { help, .. } => return help.clone(),
            ConnectError::Closed => return None,
        })
    }
}

impl HostKeyError {
    fn help(&self) -> Option<String> {
        Some(match self {
            HostKeyError::Unknown { host, file, .. } => {
                let file = file
                    .as_ref()
                    .map_or("known_hosts".to_owned(), |file| file.display().to_string());
                let (name, port) = split_host(host);
                let port = port.map_or(String::new(), |port| format!("-p {port} "));
                format!(
                    "compare the fingerprint with the machine's own (`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`), then run `ssh-keyscan {port}{name} >> {file}`, or set strict_host_key to accept-new for first connections"
                )
            }
            HostKeyError::Changed { host, place, .. } => format!(
                "if the machine was reinstalled, remove the old key with `ssh-keygen -f {} -R '{host}'`; otherwise another machine answers in its place",
                place.file
            ),
            HostKeyError::Revoked { .. } => {
                "the key may be stolen: give the machine a new host key".to_owned()
            }
            HostKeyError::Certificate { .. } => {
                "renew the certificate of the host key, or correct its principals".to_owned()
            }
            HostKeyError::Read { .. } | HostKeyError::Record { .. } => {
                "correct the permissions of the file".to_owned()
            }
        })
    }
}

impl CredentialError {
    fn help(&self) -> Option<String> {
        Some(match self {
            CredentialError::ReadKey { .. } => "correct `identity` of its address".to_owned(),
            CredentialError::MissingKey { path } => format!(
                "correct `identity` of its address, or create the key (`ssh-keygen -t ed25519 -f {}`) and add the public one to ~/.ssh/authorized_keys there",
                path.display()
            ),
            CredentialError::PublicKey { what, is_file: true } => match what.strip_suffix(".pub") {
                Some(private) => format!("name the private key instead: {private}"),
                None => "name the private key instead, the file of the pair without `.pub`".to_owned(),
            },
            CredentialError::PublicKey { what, is_file: false } => {
                format!("store the private key in it instead: `orrery secret set {what} < FILE`")
            }
            CredentialError::ParseKey { .. } => {
                "it must be a private key of OpenSSH, PKCS#8 or PuTTY".to_owned()
            }
            CredentialError::Encrypted { .. } => {
                "add it to the SSH agent (`ssh-add`), or name the secret with its passphrase (`passphrase_secret`)".to_owned()
            }
            CredentialError::Passphrase { secret, .. } => format!("correct the secret {secret}"),
            CredentialError::Unsupported { .. } => {
                "create one with `ssh-keygen -t ed25519`".to_owned()
            }
            CredentialError::Unprotected { path, .. } => {
                format!("run `chmod 600 {}`", path.display())
            }
            CredentialError::PathNotAllowed(_) => {
                "store the private key with `orrery secret set` and name it by `identity_secret`".to_owned()
            }
            CredentialError::Secret(_) => return None,
        })
    }
}

/// Splits `[name]:port`.
fn split_host(host: &str) -> (&str, Option<&str>) {
    let inner = host.strip_prefix('[').and_then(|rest| rest.split_once("]:"));
    inner.map_or((host, None), |(name, port)| (name, Some(port)))
}
