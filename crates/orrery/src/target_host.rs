//! Target host mode: a process that a server starts in a sandbox to apply resources on its own
//! machine with the rights of one environment.

use std::path::PathBuf;
use std::process::ExitCode;

use orrery_handler_host::target_host::SandboxBoundary;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// First argument of a target host. The second is its write mode; the others are paths that its
/// sandbox hides.
pub(crate) const ARGUMENT: &str = "__target-host";
pub(crate) const READ_ONLY: &str = "read-only";
pub(crate) const MANAGING: &str = "managing";

/// Runs as a target host if the arguments request it; `None` otherwise.
pub(crate) fn serve_if_requested() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != ARGUMENT {
        return None;
    }
    let read_only = std::env::args_os().nth(2).is_some_and(|given| given == READ_ONLY);
    let covered = std::env::args_os().skip(3).map(PathBuf::from);
    let confines = SandboxBoundary::new(covered, read_only);
    hide_memory();
    crate::descriptors::raise_limit();
    Some(match orrery_handler_host::target_host::serve(std::io::stdin(), confines) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::output::print_status(&format!("target host failed: {error}"));
            ExitCode::FAILURE
        }
    })
}

/// Protects the memory of this process, which contains secrets, from other processes of the same
/// user and from core dumps.
pub(crate) fn hide_memory() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "cannot protect memory from other processes of this user");
    }
}
