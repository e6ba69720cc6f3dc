//! Agentless access to machines over SSH: nothing is needed there but a POSIX shell.
//!
//! Start from [`config::SshConfig`] (where a host is) and [`known_hosts::KnownHosts`] (which key it
//! has). It knows nothing of executors, servers, stores or compilers. Tests are at the end of the
//! files, and those with a real `sshd` in `tests/it`.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")
)]

pub mod config;
pub mod known_hosts;
