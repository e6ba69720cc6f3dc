//! This program as a target host: started by a server, in a sandbox, to act on the machine with the rights of one environment.

use std::path::PathBuf;
use std::process::ExitCode;

use orrery_host::target_host::Confines;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// First argument of such a process. The second one says where it may write; the others are the paths that its sandbox covers.
pub(crate) const ARGUMENT: &str = "__target-host";
pub(crate) const READ_ONLY: &str = "read-only";
pub(crate) const MANAGING: &str = "managing";

/// Serves the server at the other end of standard input if this process was started for that; `None` otherwise.
pub(crate) fn serve_if_asked() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != ARGUMENT {
        return None;
    }
    let read_only = std::env::args_os().nth(2).is_some_and(|given| given == READ_ONLY);
    let covered = std::env::args_os().skip(3).map(PathBuf::from);
    let confines = Confines::new(covered, read_only);
    hide_memory();
    crate::descriptors::raise_limit();
    Some(match orrery_host::target_host::serve(std::io::stdin(), confines) {
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
