//! Sandboxes: processes for code that must not have the identity, files or environment of the
//! program that runs it.
//!
//! A [`SandboxPolicy`] defines the view and limits of a sandbox, and [`Sandbox::command`] creates a
//! command that runs a program in one; a [`Confinement`] is both, for one tenant. There is no
//! unsafe code here, so nothing can happen between `fork` and `exec`: the program runs itself again
//! as a launcher instead ([`run_if_launcher`], the first call in `main`).
//!
//! ```text
//!   server ──► launcher (outside: cgroup, user and pid namespace, watches the disk and the server)
//!                 └──► init (pid 1 inside: mounts, identity, limits, reaps orphans, watches memory)
//!                         └──► program ──► whatever it starts
//! ```
//!
//! When init ends, the kernel ends everything in the namespace, and init ends with the program, the
//! launcher or the server. The crate knows nothing of servers, compiles or Python. Tests:
//! `tests/it`. Reasons for the design: `docs/decisions/0008-sandbox.md`.

#[cfg(target_os = "linux")]
mod bubblewrap;
#[cfg(target_os = "linux")]
mod cgroup;
mod confinement;
#[cfg(target_os = "linux")]
mod init;
#[cfg(target_os = "linux")]
mod launcher;
#[cfg(target_os = "linux")]
mod mounts;
mod policy;
#[cfg(target_os = "linux")]
mod privileges;
mod sandbox;
#[cfg(target_os = "linux")]
mod setup_error;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(target_os = "linux")]
mod usage;

use std::process::ExitCode;

pub use confinement::Confinement;
pub use policy::{Method, SandboxLimits, SandboxPolicy};
pub use sandbox::{Sandbox, Unavailable};

/// First argument of a launcher process.
const LAUNCHER: &str = "__sandbox";
/// First argument of the process that is pid 1 of a sandbox.
#[cfg(target_os = "linux")]
const INIT: &str = "__sandbox-init";
/// Exit status of a sandbox that could not be set up.
pub const SETUP_FAILED: u8 = 125;
/// Exit status of a sandbox that exceeded a limit.
pub const LIMIT_EXCEEDED: u8 = 124;
/// Prefix of every line that the sandbox itself writes to standard error.
pub const MESSAGE_PREFIX: &str = "sandbox: ";

/// Runs this process as launcher or init if it was started as one; `None` otherwise.
///
/// Must be the first call in `main`, while the process has one thread and has read nothing.
pub fn run_if_launcher() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next()?;
    #[cfg(target_os = "linux")]
    {
        if first == LAUNCHER {
            return Some(launcher::run(arguments.collect()));
        }
        if first == INIT {
            return Some(init::run(arguments.collect()));
        }
    }
    #[cfg(not(target_os = "linux"))]
    if first == LAUNCHER {
        return Some(ExitCode::from(SETUP_FAILED));
    }
    None
}

/// Writes a line to standard error, distinguishable from the program's output.
#[cfg(target_os = "linux")]
fn report(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{MESSAGE_PREFIX}{text}");
}
