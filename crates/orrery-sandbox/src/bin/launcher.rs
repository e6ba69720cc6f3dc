//! The launcher alone, for the tests of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    orrery_sandbox::run_if_launcher().unwrap_or(ExitCode::FAILURE)
}
