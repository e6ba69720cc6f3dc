//! What `compile` and `parse` have in common: JSON reports, and a list of diagnostics with a
//! closing line.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use orrery_compiler::diagnostic::Diagnostic;

use crate::cli::ReportOptions;
use crate::render::Shown;
use crate::{output, pages, style};

/// More than this of one kind tell nothing new; the report has them all.
const SHOWN_MAX: usize = 20;

/// Writes a report wherever it was asked for. True if that worked.
#[must_use]
pub(crate) fn deliver(
    options: &ReportOptions,
    write: &dyn Fn(&mut dyn Write) -> io::Result<()>,
) -> bool {
    let mut delivered = true;
    if let Some(path) = &options.report
        && let Err(error) = write_file(path, write)
    {
        let path = style::harmless(&path.display().to_string());
        let noun = style::error("error");
        output::say(&format!("{noun}: could not write the report to {path}: {error}"));
        delivered = false;
    }
    if options.json {
        delivered &= output::print(write);
    }
    delivered
}

fn write_file(path: &Path, write: &dyn Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, File::create(path)?);
    write(&mut out)?;
    out.flush()
}

/// Shows errors in full, and how to learn more about them.
pub(crate) fn show_errors(shown: &Shown<'_>, errors: &[Diagnostic]) {
    list_errors(shown, errors);
    let mut ids: Vec<&str> = Vec::new();
    for id in errors.iter().filter_map(|error| error.id).filter(|id| pages::find(id).is_some()) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    match ids.as_slice() {
        [] => {}
        [id] => output::say(&format!("for more about this error: orrery explain {id}\n")),
        [first, ..] => output::say(&format!(
            "for more about these errors ({}): orrery explain ID, such as {first}\n",
            ids.join(", ")
        )),
    }
}

/// Shows errors in full. A loop makes the same mistake many times: it is shown once.
pub(crate) fn list_errors(shown: &Shown<'_>, errors: &[Diagnostic]) {
    let mut left = errors.len();
    for same in errors.chunk_by(|one, other| one == other).take(SHOWN_MAX) {
        output::say(&shown.long(&same[0]));
        if same.len() > 1 {
            output::say(&format!("… and {} like it", style::count(same.len() - 1, "error")));
        }
        output::say("");
        left -= same.len();
    }
    show_rest(left, "error");
}

/// Shows warnings in a line each.
pub(crate) fn show_warnings(shown: &Shown<'_>, warnings: &[Diagnostic]) {
    for warning in warnings.iter().take(SHOWN_MAX) {
        output::say(&shown.short(warning));
    }
    show_rest(warnings.len().saturating_sub(SHOWN_MAX), "warning");
}

fn show_rest(left: usize, noun: &str) {
    if left > 0 {
        let more = style::count(left, &format!("more {noun}"));
        output::say(&format!("… and {more}; --report FILE writes all of them"));
    }
}
