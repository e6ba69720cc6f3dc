//! Errors that a token has by itself, wherever it stands: characters that begin no token, escapes
//! that mean nothing, patterns that do not compile, numbers that are too long.

use orrery_python::{PyRegex, STR_DIGITS_MAX};

use crate::ast::{FileId, Loc};
use crate::error::{ERRORS_MAX, Moment, Stage, SyntaxError};
use crate::kind::SyntaxKind;
use crate::lexer::Token;
use crate::strings::{decoded, regex_literal, string_content};

/// Checks every token of a text.
pub(crate) fn check(text: &str, tokens: &[Token], file: FileId) -> Vec<SyntaxError> {
    let mut errors = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let end = tokens.get(index + 1).map_or(text.len(), |next| next.start as usize);
        let token_text = &text[token.start as usize..end];
        let Some(problem) = problem(token.kind, token_text) else {
            continue;
        };
        if errors.len() >= ERRORS_MAX {
            break;
        }
        let start = token.start + problem.start as u32;
        let loc = Loc { file, start, end: token.start + problem.end as u32, column: true };
        errors.push(SyntaxError {
            class: problem.class,
            message: problem.message,
            loc,
            highlight: start..end as u32,
            reported_in: None,
            duplicate_of: None,
            help: problem.help.map(str::to_owned),
            moment: Moment { known_at: token.start, stage: Stage::Lexing },
        });
    }
    errors
}

struct Problem {
    class: &'static str,
    message: String,
    /// The bytes of the token that the message names.
    start: usize,
    end: usize,
    help: Option<&'static str>,
}

fn problem(kind: SyntaxKind, text: &str) -> Option<Problem> {
    use SyntaxKind::*;
    let whole = |class, message| Problem { class, message, start: 0, end: text.len(), help: None };
    match kind {
        Illegal | OpenString => {
            let character = text.chars().next()?;
            let help = (kind == OpenString).then_some("this string does not end on its line");
            let message = format!("Syntax error: Illegal character '{character}'");
            Some(Problem { end: character.len_utf8(), help, ..whole("ParserException", message) })
        }
        String | FormatString | MultiLineString => {
            let error = decoded(kind, string_content(kind, text)).err()?;
            Some(whole(error.kind, error.message))
        }
        Regex => {
            let (start, literal) = regex_literal(text);
            let error = PyRegex::new(&literal[1..literal.len() - 1]).err()?.message;
            let message = format!("Syntax error: Regex error in {literal}: '{error}'");
            Some(Problem { start, ..whole("ParserException", message) })
        }
        Int => {
            let digits = text.trim_start_matches('-').len();
            let message = format!(
                "Exceeds the limit ({STR_DIGITS_MAX} digits) for integer string conversion: value \
                 has {digits} digits"
            );
            (digits > STR_DIGITS_MAX).then(|| whole("ValueError", message))
        }
        _ => None,
    }
}
