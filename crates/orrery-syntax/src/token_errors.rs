//! Errors of single tokens: illegal characters, invalid escapes, patterns that do not compile,
//! numbers that are too long.

use orrery_python::{PyRegex, STR_DIGITS_MAX};

use crate::ast::{FileId, Loc};
use crate::error::{ERRORS_MAX, Explanation, Moment, Stage, SyntaxError};
use crate::kind::SyntaxKind;
use crate::lexer::SyntaxToken;
use crate::strings::{decoded, regex_literal, string_content};

/// Checks every token of a text.
pub(crate) fn check(text: &str, tokens: &[SyntaxToken], file: FileId) -> Vec<SyntaxError> {
    let mut errors = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let end = tokens.get(index + 1).map_or(text.len(), |next| next.start as usize);
        let token_text = &text[token.start as usize..end];
        let Some(problem) = problem(token.kind, token_text) else {
            continue;
        };
        if token.kind == SyntaxKind::Illegal && is_repeated(text, tokens, index) {
            continue;
        }
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
            explanation: problem.explanation.map(|explanation| {
                let shown = Loc { start, end: end as u32, ..loc };
                Box::new(Explanation { primary: Some((shown, String::new())), ..explanation })
            }),
            moment: Moment { known_at: token.start, stage: Stage::Lexing },
        });
    }
    errors
}

/// Returns true if an illegal character is the second of two equal ones: `&&` is one mistake.
fn is_repeated(text: &str, tokens: &[SyntaxToken], index: usize) -> bool {
    let Some(before) = index.checked_sub(1).map(|at| tokens[at]) else { return false };
    let first = |token: SyntaxToken| text[token.start as usize..].chars().next();
    before.kind == SyntaxKind::Illegal && first(before) == first(tokens[index])
}

struct Problem {
    class: &'static str,
    message: String,
    /// The bytes of the token that the message names.
    start: usize,
    end: usize,
    help: Option<&'static str>,
    explanation: Option<Explanation>,
}

fn problem(kind: SyntaxKind, text: &str) -> Option<Problem> {
    use SyntaxKind::{FormatString, Illegal, Int, MultiLineString, OpenString, Regex};
    let whole = |class, message| Problem {
        class,
        message,
        start: 0,
        end: text.len(),
        help: None,
        explanation: None,
    };
    match kind {
        Illegal | OpenString => {
            let character = text.chars().next()?;
            let help = (kind == OpenString).then_some("this string does not end on its line");
            let message = format!("Syntax error: Illegal character '{character}'");
            let explanation = Some(match kind {
                OpenString => open_string(text),
                _ => illegal(character),
            });
            let end = character.len_utf8();
            Some(Problem { end, help, explanation, ..whole("ParserException", message) })
        }
        SyntaxKind::String | FormatString | MultiLineString => {
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

/// Reports a string with an unclosed quote on its line.
fn open_string(text: &str) -> Explanation {
    let quote = text.chars().next().unwrap_or('"');
    let triple = text.starts_with("\"\"\"");
    let (headline, help) = if triple {
        ("this string is not closed".to_owned(), "close it with three quotes: `\"\"\"`".to_owned())
    } else {
        let headline = "this string is not closed on its line".to_owned();
        let help = format!(
            "close it with `{quote}`; a string over several lines has three quotes: `\"\"\"`"
        );
        (headline, help)
    };
    Explanation::new(headline).help(help)
}

/// A character that begins no token.
fn illegal(character: char) -> Explanation {
    let help = match character {
        ';' => "a statement ends where the next one begins: remove the `;`",
        '&' => "write `and`",
        '|' => "write `or`; there is no operator `|`",
        '!' => "write `not`, or `!=` to compare",
        '@' => "the language has no decorators",
        '$' => "in a string, write `{{ name }}`, or `{name}` with an `f` before the quote",
        '“' | '”' | '„' | '‘' | '’' | '«' | '»' | '`' => {
            "strings have straight quotes: \" or '"
        }
        '\u{a0}' | '\u{2007}' | '\u{202f}' | '\u{3000}' | '\u{200b}' | '\u{feff}' => {
            "this is a special blank: type it again as a plain one"
        }
        '–' | '—' | '−' => "write a plain `-`",
        _ => "",
    };
    let shown = match character {
        c if c.is_control() || c.is_whitespace() || c == '\u{200b}' || c == '\u{feff}' => {
            format!("the character U+{:04X}", u32::from(c))
        }
        c => format!("`{c}`"),
    };
    let explanation = Explanation::new(format!("{shown} has no meaning here"));
    match help {
        "" if character.is_alphabetic() => {
            explanation.help("names consist of the letters a to z, digits and `_`")
        }
        "" => explanation,
        help => explanation.help(help),
    }
}
