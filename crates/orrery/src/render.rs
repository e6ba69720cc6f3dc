//! Renders diagnostics: the message with its id, the source line with underlined spans, related
//! locations, causes and help.

use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use orrery_compiler::diagnostic::{Diagnostic, Severity, SourceLabel};
use orrery_compiler::source::Sources;

use crate::excerpt::{self, Excerpt};
use crate::style;

/// Built-in files have no lines to show.
const INTERNAL: &str = "internal";

/// Maximum length of a message; it may contain a model.
const TEXT_CHARS_MAX: usize = 1_000;

/// Renders diagnostics of one set of sources.
pub(crate) struct DiagnosticRenderer<'s> {
    pub(crate) sources: &'s Sources,
    /// Path of a source file relative to the working directory.
    pub(crate) path: &'s dyn Fn(&str) -> String,
    pub(crate) width: Option<usize>,
}

impl DiagnosticRenderer<'_> {
    /// The diagnostic over several lines, styled, without a trailing newline.
    pub(crate) fn long(&self, diagnostic: &Diagnostic) -> String {
        let mut groups = Vec::new();
        self.push_groups(diagnostic, None, &mut groups);
        let mut renderer = Renderer::styled();
        if let Some(width) = self.width {
            renderer = renderer.term_width(width);
        }
        without_empty_origins(&renderer.render(&groups))
    }

    /// The diagnostic in one line.
    pub(crate) fn short(&self, diagnostic: &Diagnostic) -> String {
        let (noun, styled): (_, fn(&str) -> String) = match diagnostic.severity {
            Severity::Error => ("error", style::error),
            Severity::Warning => ("warning", style::warning),
            Severity::Note => ("note", style::help),
        };
        let kind = match diagnostic.id {
            Some(id) => format!("{noun}[{id}]"),
            None => noun.to_owned(),
        };
        let place = diagnostic.primary.as_ref().and_then(|place| self.location(place));
        let place = place.map(|place| format!("{place}: ")).unwrap_or_default();
        format!("{}: {place}{}", styled(&kind), terminal_text(&diagnostic.message))
    }

    /// `file:line:column` of a location in a file on disk.
    fn location(&self, place: &SourceLabel) -> Option<String> {
        let name = &self.sources.file(place.file()).name;
        let (line, column) = self.sources.line_col(place.loc);
        (name != INTERNAL).then(|| format!("{}:{line}:{column}", (self.path)(name)))
    }

    /// Appends the groups of a diagnostic and of its causes. Omits locations in `known`, which the
    /// enclosing diagnostic shows.
    fn push_groups(
        &self,
        diagnostic: &Diagnostic,
        known: Option<&SourceLabel>,
        groups: &mut Vec<Group<'_>>,
    ) {
        let message = terminal_text(&diagnostic.message);
        let title = match diagnostic.severity {
            Severity::Error => Level::ERROR.primary_title(message),
            Severity::Warning => Level::WARNING.primary_title(message),
            Severity::Note => Level::NOTE.secondary_title(message),
        };
        let mut group = Group::with_title(match diagnostic.id {
            Some(id) => title.id(id),
            None => title,
        });
        let primary = diagnostic.primary.as_ref().filter(|place| self.location(place).is_some());
        let line = |place: &SourceLabel| (place.file(), self.sources.line_col(place.loc).0);
        let is_known = |place: &SourceLabel| known.is_some_and(|known| line(known) == line(place));
        let mut elsewhere: Vec<&SourceLabel> = Vec::new();
        match primary {
            Some(place) if diagnostic.related.is_empty() && is_known(place) => {}
            Some(place) => {
                let (near, far) =
                    diagnostic.related.iter().partition(|other| self.are_near(place, other));
                elsewhere = far;
                group = self.show(group, place, near);
            }
            None => elsewhere.extend(&diagnostic.related),
        }
        if !diagnostic.details.is_empty() {
            let details = terminal_text(&unindented(&diagnostic.details));
            group = group.element(Level::NOTE.message(details));
        }
        for note in &diagnostic.notes {
            group = group.element(Level::NOTE.message(terminal_text(note)));
        }
        groups.push(group);
        for place in elsewhere.into_iter().filter(|place| self.location(place).is_some()) {
            let title = Level::NOTE.secondary_title(terminal_text(&place.label));
            let place = SourceLabel { label: String::new(), ..place.clone() };
            groups.push(self.show(Group::with_title(title), &place, Vec::new()));
        }
        for cause in &diagnostic.causes {
            self.push_groups(cause, primary.or(known), groups);
        }
        if let Some(help) = &diagnostic.help
            && let Some(last) = groups.pop()
        {
            groups.push(last.element(Level::HELP.message(terminal_text(help))));
        }
    }

    fn are_near(&self, one: &SourceLabel, other: &SourceLabel) -> bool {
        let line = |place: &SourceLabel| self.sources.line_col(place.loc).0;
        one.file() == other.file()
            && line(one).abs_diff(line(other)) < excerpt::LINES_MAX as u32
            && (one.loc.start, one.loc.end) != (other.loc.start, other.loc.end)
    }

    fn show<'g>(
        &self,
        group: Group<'g>,
        primary: &SourceLabel,
        others: Vec<&SourceLabel>,
    ) -> Group<'g> {
        let file = self.sources.file(primary.file());
        let (line, column) = self.sources.line_col(primary.loc);
        let places: Vec<&SourceLabel> = std::iter::once(primary).chain(others).collect();
        let written = file.text.trim_end().len();
        let ranges = places.iter().map(|place| match place.underlined() {
            // Something missing at the end of the file is marked after the last character.
            bytes if bytes.is_empty() && bytes.start as usize >= written => written..written,
            bytes => bytes.start as usize..bytes.end as usize,
        });
        let ranges: Vec<_> = ranges.collect();
        let Excerpt { text, spans } = excerpt::cut(&file.text, &ranges);
        let first = places.iter().zip(&ranges).min_by_key(|(_, range)| range.start);
        let first_line = first.map_or(line, |(place, range)| {
            let start = (range.start as u32).min(file.text.len() as u32);
            self.sources.line_col(orrery_syntax::ast::Loc { start, ..place.loc }).0
        });
        let mut snippet = Snippet::source(text).line_start(first_line as usize);
        for (number, (place, span)) in places.iter().zip(spans).enumerate() {
            let kind = if number == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
            let label =
                (!place.label.is_empty()).then(|| terminal_text(&place.label).replace('\n', " "));
            snippet = snippet.annotations(span.map(|span| kind.span(span).label(label)));
        }
        let origin = Origin::path(style::sanitize(&(self.path)(&file.name)));
        group.element(origin.line(line as usize).char_column(column as usize)).element(snippet)
    }
}

/// Sanitizes and truncates a text for a terminal; the report has the full text.
fn terminal_text(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => style::sanitize(&text[..end]) + "…",
        None => style::sanitize(text),
    }
}

/// Removes the line `:::` that the renderer prints before excerpts without a path. The location is
/// printed above instead, since columns in a cut line would be wrong.
fn without_empty_origins(rendered: &str) -> String {
    let keep = |line: &&str| anstream::adapter::strip_str(line).to_string().trim() != ":::";
    rendered.lines().filter(keep).collect::<Vec<_>>().join("\n")
}

/// Removes the common indentation of lines.
fn unindented(lines: &[String]) -> String {
    let indentation = |line: &&String| line.len() - line.trim_start_matches(' ').len();
    let shared = lines.iter().filter(|line| !line.trim().is_empty()).map(|l| indentation(&l)).min();
    let shared = shared.unwrap_or(0);
    let lines: Vec<&str> = lines.iter().map(|line| line.get(shared..).unwrap_or("")).collect();
    lines.join("\n")
}

/// Path from the working directory of a file that messages name relative to the project, as
/// `./file`.
pub(crate) fn path_from_here(project: &Path, name: &str) -> String {
    match name.strip_prefix("./") {
        Some(inside) if project != Path::new(".") && !project.as_os_str().is_empty() => {
            project.join(inside).display().to_string()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_directories_are_named_with_them() {
        assert_eq!(path_from_here(Path::new("."), "./main.cf"), "./main.cf");
        assert_eq!(path_from_here(Path::new("shop"), "./libs/a.cf"), "shop/libs/a.cf");
        assert_eq!(path_from_here(Path::new("shop"), "/env/a.cf"), "/env/a.cf");
    }
}
