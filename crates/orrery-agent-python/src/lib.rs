//! Python handlers on the machine of a remote agent or a helper: fetches their code, creates
//! virtualenvs, and runs the handler hosts.
//!
//! Start from [`PythonRunner`], which the binaries give to an agent. One `code_handler` serves one
//! set of code; `fetch` gets its files from the server of a run. Everything below the directory of
//! the runner is a cache: it can be removed while no agent runs, and is created again.

mod code_handler;
mod directories;
mod fetch;
mod runner;

pub use runner::{PythonRunner, cache_directory};
