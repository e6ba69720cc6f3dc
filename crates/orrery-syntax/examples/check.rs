//! Parses model files and prints their errors, one per line.
//!
//! `cargo run -p orrery-syntax --example check -- main.cf …`

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report of an example goes to the terminal"
)]

use std::process::ExitCode;

use orrery_syntax::ast::{FileId, Loc};
use orrery_syntax::{Interner, LineIndex, parse_file};

fn main() -> ExitCode {
    let mut failed = false;
    for name in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&name) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{name}: {error}");
                failed = true;
                continue;
            }
        };
        let parsed = parse_file(&text, FileId(0), &mut Interner::default());
        let lines = LineIndex::new(&text);
        let place = |loc: Loc| {
            let (line, column) = lines.line_col(loc.start);
            if loc.column { format!("{name}:{line}:{column}") } else { format!("{name}:{line}") }
        };
        for error in &parsed.errors {
            failed = true;
            let (end_line, end_column) = lines.line_col(error.loc.end);
            let mut shown = format!("{} {}", error.class, error.message);
            match (&error.reported_in, error.duplicate_of) {
                (Some(statement), _) => {
                    shown += &format!(" (reported in {statement} ({}))", place(error.loc));
                }
                (None, Some(first)) => {
                    let (original, duplicate) = (place(error.loc), place(first));
                    shown += &format!(" (original at ({original})) (duplicate at ({duplicate}))");
                }
                (None, None) => shown += &format!(" ({})", place(error.loc)),
            }
            println!("{shown} to {end_line}:{end_column}");
        }
        for warning in &parsed.warnings {
            println!("{} {} ({})", warning.class, warning.message, place(warning.loc));
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
