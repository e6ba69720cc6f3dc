//! What holds for all handlers, and what each of them does: on a machine in memory, and in a directory of
//! this one.

mod accounts;
mod commands;
mod documents;
mod files;
mod harness;
mod laws;
mod packages;
mod partial;
mod requests;
mod services;
mod this_machine;

/// The target that tests with real files and commands use. The same tests are run for other targets that stand for a machine.
fn this_machine() -> orrery_handlers::LocalTarget {
    orrery_handlers::LocalTarget::default()
}
