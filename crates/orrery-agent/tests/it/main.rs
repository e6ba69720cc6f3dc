//! The agent through its public interface: commands and results, and sessions with a small gateway
//! over real connections.

mod commands;
mod gateway;
mod runner;
mod sessions;
