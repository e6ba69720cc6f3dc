//! From a literal's source text to its value: quotes, newlines and escapes.

use std::borrow::Cow;

use orrery_python::{PyError, decode_escapes, repr_float};

use crate::kind::SyntaxKind;

/// The content between the quotes, escapes not yet decoded, with the newlines of other platforms
/// turned into `\n`.
pub(crate) fn string_content(kind: SyntaxKind, text: &str) -> Cow<'_, str> {
    let (prefix, suffix) = quote_lengths(kind);
    let content = text.get(prefix..text.len().saturating_sub(suffix)).unwrap_or_default();
    if content.contains('\r') {
        Cow::Owned(content.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(content)
    }
}

/// Returns the number of bytes of a string token before and after its content.
pub(crate) fn quote_lengths(kind: SyntaxKind) -> (usize, usize) {
    match kind {
        SyntaxKind::MultiLineString => (3, 3),
        SyntaxKind::FormatString | SyntaxKind::RawString => (2, 1),
        _ => (1, 1),
    }
}

/// Decodes the escapes of a string. Returns true with it if an escape was unknown, which stays as
/// written; or the error.
pub(crate) fn decoded(
    kind: SyntaxKind,
    content: Cow<'_, str>,
) -> Result<(Cow<'_, str>, bool), PyError> {
    if kind == SyntaxKind::RawString || !content.contains('\\') {
        return Ok((content, false));
    }
    let (value, had_unknown) = decode_escapes(&content)?;
    Ok((Cow::Owned(value), had_unknown))
}

/// Returns the warning about the first invalid escape of a literal.
pub(crate) fn unknown_escape(content: &str) -> String {
    let mut rest = content;
    while let Some(at) = rest.find('\\') {
        let after = &rest[at + 1..];
        let Some(letter) = after.chars().next() else { break };
        let digits = after.bytes().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
        if digits == 3 && after.as_bytes()[0] >= b'4' {
            return format!("invalid octal escape sequence '\\{}'", &after[..digits]);
        }
        if digits == 0 && !"\\'\"abfnrtvxuUN\n".contains(letter) {
            return format!("invalid escape sequence '\\{letter}'");
        }
        rest = &after[letter.len_utf8()..];
    }
    "invalid escape sequence".into()
}

/// The `/…/` of a regex token, and where in the token it begins.
pub(crate) fn regex_literal(text: &str) -> (usize, &str) {
    let start = text.find('/').unwrap_or(0);
    (start, &text[start..])
}

/// A token as "Syntax error at token …" shows it: the value of literals, the text of all else.
pub(crate) fn token_value(kind: SyntaxKind, text: &str) -> String {
    use SyntaxKind::*;
    match kind {
        String | RawString | FormatString | MultiLineString => {
            let content = string_content(kind, text);
            decoded(kind, content.clone()).map_or(content, |(value, _)| value).into_owned()
        }
        Regex => regex_literal(text).1.to_owned(),
        Int => {
            let digits = text.trim_start_matches('-').trim_start_matches('0');
            match (digits, text.starts_with('-')) {
                ("", _) => "0".to_owned(),
                (digits, true) => format!("-{digits}"),
                (digits, false) => digits.to_owned(),
            }
        }
        Float => text.parse().map_or_else(|_| text.to_owned(), repr_float),
        _ => text.to_owned(),
    }
}
