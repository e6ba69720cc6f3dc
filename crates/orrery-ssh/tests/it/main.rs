//! Tests with real programs of OpenSSH, and with peers that misbehave.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod commands;
mod hostile_server;
mod hostile_targets;
mod misbehaving;
mod openssh_config;
mod recovery;
mod refusals;
mod support;
