//! The launcher alone, for the tests of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    orrery_sandbox::launch_if_asked().unwrap_or(ExitCode::FAILURE)
}
