//! The agent through its public interface: commands and results, and sessions with a small gateway
//! over real connections.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod code;
mod commands;
mod drift;
mod gateway;
mod policy;
mod protocol_page;
mod python_agent;
mod runner;
mod sessions;
