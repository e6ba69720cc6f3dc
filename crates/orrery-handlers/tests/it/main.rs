//! Laws of all handlers, and tests of each: on a machine in memory, and in a directory of this one.

#![allow(clippy::disallowed_methods, reason = "tests and measurements run in real time")]

mod accounts;
mod commands;
mod documents;
mod files;
mod harness;
mod laws;
mod lost_changes;
mod machine_facts;
mod machines;
mod packages;
mod partial;
mod requests;
mod services;
mod shell;
mod this_machine;

/// Target for tests that only this process runs.
fn this_machine() -> orrery_handlers::LocalTarget {
    orrery_handlers::LocalTarget::default()
}
