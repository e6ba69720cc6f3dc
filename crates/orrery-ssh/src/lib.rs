//! Agentless access to machines over SSH: nothing is needed there but a POSIX shell.
//!
//! Start from [`SshClient`], which has the connections of one owner of credentials, and
//! [`SshTransport`], over which targets run commands. [`config::SshConfig`] resolves where a host
//! is, and [`known_hosts::KnownHosts`] which key it has. It knows nothing of servers, stores or
//! compilers. Tests are at the end of the
//! files, and those with a real `sshd` in `tests/it`.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")
)]

mod admission;
mod authenticate;
mod breaker;
mod client;
mod command;
pub mod config;
mod credentials;
mod error;
mod facts;
mod guarded_stream;
mod host_key;
pub mod known_hosts;
mod limits;
mod link;
mod machines;
mod peer;
mod privilege;
mod process;
mod route;
mod runtime;
mod session;
mod transport;
mod tunnel;
mod user_config;

pub use breaker::Circuit;
pub use client::SshClient;
pub use error::{ConnectError, CredentialError, HostKeyError};
pub use limits::ConnectionLimits;
pub use machines::{MachineDrift, SshMachines};
pub use orrery_agent::protocol::Drift;
pub use route::{RouteSource, vault_secrets};
pub use runtime::SshRuntime;
pub use session::ConnectionState;
pub use transport::SshTransport;
pub use user_config::{local_user, user_routes};
