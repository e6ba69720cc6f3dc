//! This program as a target host: started by a server, in a sandbox, to act on the machine with the rights of one environment.

use std::process::ExitCode;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// First argument of such a process.
pub(crate) const ARGUMENT: &str = "__target-host";

/// Serves the server at the other end of standard input if this process was started for that; `None` otherwise.
pub(crate) fn serve_if_asked() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != ARGUMENT {
        return None;
    }
    hide_memory();
    crate::descriptors::raise_limit();
    Some(match orrery_host::target_host::serve(std::io::stdin()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::output::say(&format!("the target host cannot go on: {error}"));
            ExitCode::FAILURE
        }
    })
}

/// Closes memory, variables and descriptors of this process to others of the same user, and to dumps: there are secrets in them.
pub(crate) fn hide_memory() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "other processes of this user can read the memory of this one");
    }
}
