//! `orrery parse`: checks the syntax of one file.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::Path;

use orrery_compiler::CompileWarning;
use orrery_compiler::diagnostic::Diagnostic;
use orrery_compiler::error::CompileError;
use orrery_compiler::files::{Disk, Files};
use orrery_compiler::load;
use orrery_compiler::source::Sources;
use orrery_syntax::Interner;
use orrery_syntax::ast::{File, FileId, Item};

use crate::cli::Parse;
use crate::render::DiagnosticRenderer;
use crate::{Exit, output, style};

use super::report;

/// Result of parsing a file.
#[derive(Default)]
struct Outcome {
    sources: Sources,
    file: File,
    errors: Vec<CompileError>,
    /// Errors as diagnostics.
    diagnostics: Vec<Diagnostic>,
    warnings: Vec<CompileWarning>,
}

pub(crate) fn run(options: &Parse) -> Exit {
    let name = if is_stdin(&options.file) {
        "standard input".to_owned()
    } else {
        options.file.display().to_string()
    };
    let outcome = parse(&options.file, &name);
    if !options.report.json {
        print_summary(&name, &outcome);
    }
    let delivered = report::deliver(&options.report, &|out| {
        let Outcome { sources, errors, warnings, .. } = &outcome;
        orrery_compiler::report::write_errors(sources, errors, warnings, out)
    });
    if delivered && outcome.errors.is_empty() { Exit::Done } else { Exit::Error }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Reads a file, or standard input for `-`.
pub(super) fn read(path: &Path, name: &str) -> Result<String, Box<CompileError>> {
    let mut bytes = Vec::new();
    let read = if is_stdin(path) {
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        Disk.read(path)
    };
    load::decode(name, read.map_err(|error| load::unreadable(name, &error))?)
}

fn parse(path: &Path, name: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let text = match read(path, name) {
        Ok(text) => text,
        Err(error) => {
            outcome.diagnostics.push(Diagnostic::from(&*error));
            outcome.errors.push(*error);
            return outcome;
        }
    };
    let parsed = orrery_syntax::parse_file(&text, FileId(0), &mut Interner::default());
    outcome.sources.add(name.to_owned(), text);
    outcome.diagnostics = Diagnostic::all_of(&parsed.errors);
    outcome.errors = parsed.errors.iter().map(|error| *CompileError::from_syntax(error)).collect();
    outcome.warnings = parsed.warnings.into_iter().map(CompileWarning::from).collect();
    outcome.file = parsed.file;
    outcome
}

fn print_summary(name: &str, outcome: &Outcome) {
    let path = |name: &str| name.to_owned();
    let shown =
        DiagnosticRenderer { sources: &outcome.sources, path: &path, width: output::width() };
    let warnings: Vec<Diagnostic> = outcome.warnings.iter().map(Diagnostic::from).collect();
    report::show_warnings(&shown, &warnings);
    report::show_errors(&shown, &outcome.diagnostics);
    let name = style::sanitize(name);
    output::print_status(&match outcome.errors.len() {
        0 => format!("{} {name}: {}", style::good("parsed"), contents(&outcome.file)),
        count => format!("{} {name}: {}", style::error("failed"), style::count(count, "error")),
    });
}

/// `2 entities, 1 relation and 4 statements`
fn contents(file: &File) -> String {
    const NOUNS: [(&str, &str); 8] = [
        ("import", "imports"),
        ("entity", "entities"),
        ("relation", "relations"),
        ("typedef", "typedefs"),
        ("index", "indexes"),
        ("implementation", "implementations"),
        ("implement statement", "implement statements"),
        ("statement", "statements"),
    ];
    let mut counts = [0_usize; NOUNS.len()];
    for item in &file.items {
        counts[match item {
            Item::Import(_) => 0,
            Item::Entity(_) => 1,
            Item::Relation(_) => 2,
            Item::Typedef(_) => 3,
            Item::Index(_) => 4,
            Item::Implementation(_) => 5,
            Item::Implement(_) => 6,
            Item::Stmt(_) => 7,
        }] += 1;
    }
    let there: Vec<(usize, &str)> = counts
        .into_iter()
        .zip(NOUNS)
        .filter(|(count, _)| *count > 0)
        .map(|(count, (one, many))| (count, if count == 1 { one } else { many }))
        .collect();
    let mut text = String::new();
    for (number, (count, noun)) in there.iter().enumerate() {
        let glue = match number {
            0 => "",
            _ if number + 1 == there.len() => " and ",
            _ => ", ",
        };
        let _ = write!(text, "{glue}{count} {noun}");
    }
    if text.is_empty() { "empty".to_owned() } else { text }
}
