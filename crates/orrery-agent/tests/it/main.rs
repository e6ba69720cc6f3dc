//! The agent through its public interface: commands and their answers, and sessions with a small gateway over real connections.

mod commands;
mod gateway;
mod running;
mod sessions;
