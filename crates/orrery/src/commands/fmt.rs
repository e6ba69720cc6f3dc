//! `orrery fmt`: formats models.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use orrery_base::line_diff::hunks;
use orrery_compiler::diagnostic::Diagnostic;
use orrery_compiler::error::CompileError;
use orrery_compiler::source::Sources;

use crate::cli::Fmt;
use crate::render::DiagnosticRenderer;
use crate::style::diff_line;
use crate::{Exit, output, style};

use super::{parse, report};

/// Counts of files.
#[derive(Debug, Default)]
struct Tally {
    files: usize,
    changed: usize,
    failed: usize,
}

pub(crate) fn run(options: &Fmt) -> Exit {
    let from_stdin = options.paths.iter().any(|path| path == Path::new("-"));
    if from_stdin && options.paths.len() > 1 {
        return refuse("- (standard input) cannot be combined with other paths");
    }
    let mut files = Vec::new();
    if let Err(problem) = collect(&options.paths, &mut files) {
        return refuse(&problem);
    }
    let mut tally = Tally::default();
    for file in &files {
        tally.files += 1;
        match format_file(file, options) {
            Ok(true) => tally.changed += 1,
            Ok(false) => {}
            Err(Failed) => tally.failed += 1,
        }
    }
    let only_looking = options.check || options.diff;
    if !from_stdin {
        conclude(&tally, only_looking);
    }
    if tally.failed > 0 || only_looking && tally.changed > 0 { Exit::Error } else { Exit::Done }
}

fn refuse(problem: &str) -> Exit {
    output::print_status(&format!("{}: {}", style::error("error"), style::sanitize(problem)));
    Exit::Error
}

fn conclude(tally: &Tally, only_looking: bool) {
    let unchanged = tally.files - tally.changed - tally.failed;
    let verb = if only_looking { "would change" } else { "formatted" };
    let mut parts = Vec::new();
    if tally.changed > 0 || tally.failed == 0 && unchanged == 0 {
        parts.push(format!("{verb} {}", style::count(tally.changed, "file")));
    }
    if unchanged > 0 {
        parts.push(format!("{} already formatted", style::count(unchanged, "file")));
    }
    if tally.failed > 0 {
        let failed = style::count(tally.failed, "file");
        parts.push(style::error(&format!("{failed} could not be formatted")));
    }
    output::print_status(&parts.join(", "));
}

/// A failure that was already reported.
struct Failed;

/// Formats one file. Returns true if it was not formatted.
fn format_file(path: &Path, options: &Fmt) -> Result<bool, Failed> {
    let stdin = path == Path::new("-");
    let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
    let text = parse::read(path, &name).map_err(|error| show_error(&error))?;
    let formatted = orrery_syntax::format(&text).map_err(|errors| {
        let errors = Diagnostic::all_of(&errors);
        let mut sources = Sources::default();
        sources.add(name.clone(), text.clone());
        let path = |name: &str| name.to_owned();
        let shown = DiagnosticRenderer { sources: &sources, path: &path, width: output::width() };
        report::list_errors(&shown, &errors);
        Failed
    })?;
    // The file may have other line endings than the parsed text.
    let changed = formatted != text || !stdin && has_carriage_returns(path);
    let written = if options.diff {
        !changed || output::print_styled(&difference(&name, &text, &formatted))
    } else if options.check {
        !changed || output::print(|out| writeln!(out, "{name}"))
    } else if stdin {
        output::print(|out| out.write_all(formatted.as_bytes()))
    } else if changed {
        replace(path, &formatted).map_err(|error| {
            refuse(&format!("could not write {name}: {error}"));
            Failed
        })?;
        true
    } else {
        true
    };
    if written { Ok(changed) } else { Err(Failed) }
}

fn show_error(error: &CompileError) -> Failed {
    let sources = Sources::default();
    let path = |name: &str| name.to_owned();
    let shown = DiagnosticRenderer { sources: &sources, path: &path, width: output::width() };
    output::print_status(&shown.long(&Diagnostic::from(error)));
    Failed
}

fn has_carriage_returns(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.contains(&b'\r'))
}

/// Replaces a file atomically.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // Follows links to the file itself.
    let path = path.canonicalize()?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".orrery-fmt-").tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::metadata(&path)?.permissions())?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}

/// A styled unified diff.
fn difference(name: &str, old: &str, new: &str) -> String {
    let name = style::sanitize(name);
    let mut text = style::heading(&format!("--- {name}\n+++ {name}")) + "\n";
    for hunk in hunks(old, new, None) {
        text += &format!("{}\n", hunk.header);
        for line in &hunk.lines {
            text += &diff_line(line);
            text.push('\n');
            if line.is_unterminated() {
                text += "\\ No newline at end of file\n";
            }
        }
    }
    text
}

/// Files of `paths`, or of the project.
fn collect(paths: &[PathBuf], files: &mut Vec<PathBuf>) -> Result<(), String> {
    if paths.is_empty() {
        let Some(project) = orrery_project::around_here() else {
            return Err("there is no project.yml here or in a directory above; name the files or \
                        directories to format"
                .to_owned());
        };
        return collect_directory(&project, files);
    }
    for path in paths {
        if path.is_dir() {
            collect_directory(path, files)?;
        } else {
            files.push(path.clone());
        }
    }
    Ok(())
}

/// Models of a directory, sorted, without foreign subdirectories.
fn collect_directory(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let unreadable = |error: io::Error| format!("could not read {}: {error}", directory.display());
    let mut entries: Vec<fs::DirEntry> =
        fs::read_dir(directory).and_then(Iterator::collect::<io::Result<_>>).map_err(unreadable)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().map_err(unreadable)?;
        let path = entry.path();
        if kind.is_dir() && !is_foreign(&path) {
            collect_directory(&path, files)?;
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "cf") {
            files.push(path.strip_prefix(".").map_or_else(|_| path.clone(), Path::to_path_buf));
        }
    }
    Ok(())
}

/// True for hidden directories, virtualenvs, and checkouts of other repositories.
fn is_foreign(directory: &Path) -> bool {
    let hidden = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with('.');
    directory.file_name().is_some_and(hidden)
        || directory.join("pyvenv.cfg").exists()
        || directory.join(".git").exists()
}
