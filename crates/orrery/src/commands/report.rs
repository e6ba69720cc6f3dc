//! Shared output of `compile` and `parse`: JSON reports and lists of diagnostics.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use orrery_compiler::diagnostic::Diagnostic;

use crate::cli::ReportOptions;
use crate::render::DiagnosticRenderer;
use crate::{output, pages, style};

/// Maximum number of diagnostics of one kind; the report has all of them.
const SHOWN_MAX: usize = 20;

/// Writes a report to the requested destinations. Returns false on errors.
#[must_use]
pub(crate) fn deliver(
    options: &ReportOptions,
    write: &dyn Fn(&mut dyn Write) -> io::Result<()>,
) -> bool {
    let mut delivered = true;
    if let Some(path) = &options.report
        && let Err(error) = write_file(path, write)
    {
        let path = style::sanitize(&path.display().to_string());
        let noun = style::error("error");
        output::print_status(&format!("{noun}: could not write the report to {path}: {error}"));
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

/// Shows errors in full, with a hint to `orrery explain`.
pub(crate) fn show_errors(shown: &DiagnosticRenderer<'_>, errors: &[Diagnostic]) {
    list_errors(shown, errors);
    let mut ids: Vec<&str> = Vec::new();
    for id in errors.iter().filter_map(|error| error.id).filter(|id| pages::find(id).is_some()) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    match ids.as_slice() {
        [] => {}
        [id] => output::print_status(&format!("more about this error: orrery explain {id}\n")),
        [first, ..] => output::print_status(&format!(
            "more about these errors ({}): orrery explain ID, such as {first}\n",
            ids.join(", ")
        )),
    }
}

/// Shows errors in full; repeated errors, as from a loop, are shown once.
pub(crate) fn list_errors(shown: &DiagnosticRenderer<'_>, errors: &[Diagnostic]) {
    let mut left = errors.len();
    for same in errors.chunk_by(|one, other| one == other).take(SHOWN_MAX) {
        output::print_status(&shown.long(&same[0]));
        if same.len() > 1 {
            output::print_status(&format!(
                "… and {} like it",
                style::count(same.len() - 1, "error")
            ));
        }
        output::print_status("");
        left -= same.len();
    }
    show_rest(left, "error");
}

/// Shows warnings, one line each.
pub(crate) fn show_warnings(shown: &DiagnosticRenderer<'_>, warnings: &[Diagnostic]) {
    for warning in warnings.iter().take(SHOWN_MAX) {
        output::print_status(&shown.short(warning));
    }
    show_rest(warnings.len().saturating_sub(SHOWN_MAX), "warning");
}

fn show_rest(left: usize, noun: &str) {
    if left > 0 {
        let more = style::count(left, &format!("more {noun}"));
        output::print_status(&format!("… and {more}; --report FILE writes all of them"));
    }
}
