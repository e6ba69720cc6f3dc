//! What `compile` and `parse` have in common: JSON reports, and a list of diagnostics with a
//! closing line.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use orrery_compiler::diagnostic::Diagnostic;

use crate::cli::ReportOptions;
use crate::render::Shown;
use crate::{output, style};

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

/// Shows errors in full.
pub(crate) fn show_errors(shown: &Shown<'_>, errors: &[Diagnostic]) {
    for error in errors.iter().take(SHOWN_MAX) {
        output::say(&shown.long(error));
        output::say("");
    }
    show_rest(errors.len(), "error");
}

/// Shows warnings in a line each.
pub(crate) fn show_warnings(shown: &Shown<'_>, warnings: &[Diagnostic]) {
    for warning in warnings.iter().take(SHOWN_MAX) {
        output::say(&shown.short(warning));
    }
    show_rest(warnings.len(), "warning");
}

fn show_rest(count: usize, noun: &str) {
    if count > SHOWN_MAX {
        let more = style::count(count - SHOWN_MAX, noun);
        output::say(&format!("… and {more} more; --report FILE writes all of them"));
    }
}
