//! Formats a model file to standard output.
//!
//! `cargo run -p orrery-syntax --example format -- main.cf`

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report of an example goes to the terminal"
)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        eprintln!("usage: format FILE");
        return ExitCode::FAILURE;
    };
    let text = match std::fs::read_to_string(&name) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{name}: {error}");
            return ExitCode::FAILURE;
        }
    };
    match orrery_syntax::format(&text) {
        Ok(formatted) => {
            print!("{formatted}");
            ExitCode::SUCCESS
        }
        Err(errors) => {
            for error in errors {
                eprintln!("{name}: {}", error.message);
            }
            ExitCode::FAILURE
        }
    }
}
