//! Problems of a compiled project in the form of the API.

use orrery_api::{CompileLocation, CompilePosition, CompileProblem, CompileRange, ProblemCategory};
use orrery_compiler::diagnostic::{Diagnostic, diagnostic_id};
use orrery_compiler::error::CompileError;
use orrery_compiler::source::Sources;
use orrery_project::CompiledProject;
use orrery_syntax::ast::FileId;

/// All problems that prevent a version.
pub(super) fn problems(project: &CompiledProject) -> Vec<CompileProblem> {
    let compiled = &project.compiled;
    let sources = &compiled.sources;
    if let Err(error) = &compiled.outcome {
        if !compiled.syntax_errors.is_empty() {
            let all = compiled.syntax_errors.iter();
            let shown = all.map(|error| CompileProblem {
                category: ProblemCategory::Parse,
                r#type: error.class.to_owned(),
                message: error.message.trim_end().to_owned(),
                help: Diagnostic::from(error).help,
                id: diagnostic_id(error.class, &error.message).map(str::to_owned),
                location: Some(location(sources, error.loc.file, &error.highlight)),
                source: source_line(sources, error.loc.file, error.highlight.start),
            });
            return shown.collect();
        }
        let parts: Vec<&CompileError> =
            if error.parts.is_empty() { vec![error] } else { error.parts.iter().collect() };
        return parts.into_iter().map(|error| problem(sources, error)).collect();
    }
    let left_out = project.export_problems();
    left_out.iter().map(|problem| left_out_problem(sources, problem)).collect()
}

/// Classes of errors that module code raises.
const OF_CODE: [&str; 4] =
    ["ExternalException", "ExplicitPluginException", "PluginException", "PluginTypeException"];

fn problem(sources: &Sources, error: &CompileError) -> CompileProblem {
    let shown = Diagnostic::from(error);
    let category = if OF_CODE.contains(&error.class) {
        ProblemCategory::Plugin
    } else if error.class == "ParserException" {
        ProblemCategory::Parse
    } else {
        ProblemCategory::Runtime
    };
    let mut message = error.text.trim_end().to_owned();
    for cause in &error.causes {
        message.push_str(&format!("\ncaused by: {}", cause.text.trim_end()));
    }
    CompileProblem {
        category,
        r#type: error.class.to_owned(),
        message,
        ..located_problem(sources, &shown)
    }
}

fn left_out_problem(sources: &Sources, shown: &Diagnostic) -> CompileProblem {
    let mut message = shown.message.clone();
    for line in &shown.details {
        message.push('\n');
        message.push_str(line);
    }
    let r#type = shown.id.unwrap_or("ExportError").to_owned();
    CompileProblem {
        category: ProblemCategory::Export,
        r#type,
        message,
        ..located_problem(sources, shown)
    }
}

/// A diagnostic's location with its source line and help.
fn located_problem(sources: &Sources, shown: &Diagnostic) -> CompileProblem {
    let place = shown.primary.as_ref();
    CompileProblem {
        location: place.map(|place| location(sources, place.file(), &place.underlined())),
        source: place
            .and_then(|place| source_line(sources, place.file(), place.underlined().start)),
        help: shown.help.clone(),
        id: shown.id.map(str::to_owned),
        ..CompileProblem::default()
    }
}

fn location(sources: &Sources, file: FileId, range: &std::ops::Range<u32>) -> CompileLocation {
    let source = sources.file(file);
    let name = source.name.strip_prefix("./").unwrap_or(&source.name);
    let at = |offset: u32| position(&source.text, offset);
    CompileLocation {
        uri: name.to_owned(),
        range: CompileRange { start: at(range.start), end: at(range.end) },
    }
}

/// Line and character, zero-based. Characters are UTF-16 code units, as in editors.
fn position(text: &str, offset: u32) -> CompilePosition {
    let offset = text.floor_char_boundary((offset as usize).min(text.len()));
    let before = &text[..offset];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count();
    let character = before[start..].encode_utf16().count();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    CompilePosition { line: number(line), character: number(character) }
}

/// Longer source lines are cut.
const LINE_BYTES_MAX: usize = 400;

fn source_line(sources: &Sources, file: FileId, offset: u32) -> Option<String> {
    let text = &sources.file(file).text;
    let offset = text.floor_char_boundary((offset as usize).min(text.len()));
    let start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next()?;
    Some(line[..line.floor_char_boundary(LINE_BYTES_MAX)].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_utf16_as_in_editors() {
        let text = "a\n\u{1f980}b = 1\n";
        let at = |offset| {
            let CompilePosition { line, character } = position(text, offset);
            (line, character)
        };
        assert_eq!(at(0), (0, 0));
        assert_eq!(at(2), (1, 0));
        assert_eq!(at(6), (1, 2));
        assert_eq!(at(4), (1, 0));
        assert_eq!(at(99), (2, 0));
    }
}
