//! References inside strings: `{{name}}` in plain strings, `{name}` in f-strings.

use orrery_python::{PyError, is_space, parse_format, str_strip};

/// A reference as it is written in a decoded string.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Plain strings: the match with braces. F-strings: the field's name with its blanks.
    pub(crate) text: String,
    /// The dotted name.
    pub(crate) name: String,
}

/// All `{{ a.b }}` of a text, in order: two braces, blanks, a name of letters, digits, dots,
/// underscores and hyphens, blanks, two braces.
pub(crate) fn interpolations(text: &str) -> Vec<Field> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(open) = text[from..].find("{{") {
        let open = from + open;
        match interpolation(&text[open..]) {
            Some(field) => {
                from = open + field.text.len();
                found.push(field);
            }
            None => from = open + 1,
        }
    }
    found
}

fn interpolation(text: &str) -> Option<Field> {
    let inner = text.strip_prefix("{{")?.trim_start_matches(is_space);
    let length = inner
        .bytes()
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        .count();
    if length == 0 {
        return None;
    }
    let (name, rest) = inner.split_at(length);
    let rest = rest.trim_start_matches(is_space).strip_prefix("}}")?;
    Some(Field { text: text[..text.len() - rest.len()].to_owned(), name: name.to_owned() })
}

/// The fields of a Python format string that the language collects: those before the first piece
/// of text that ends with a doubled brace, a field without a name or the end, and those in their
/// format specifications.
pub(crate) fn format_fields(text: &str) -> Result<Vec<Field>, PyError> {
    let mut fields = Vec::new();
    collect(text, &mut fields, 0)?;
    Ok(fields)
}

/// Format specifications nest as deep as braces do, but only one level can ever be used.
const SPECIFICATION_DEPTH_MAX: u32 = 20;

fn collect(text: &str, fields: &mut Vec<Field>, depth: u32) -> Result<(), PyError> {
    for part in parse_format(text)? {
        match part.field {
            Some(field) if !field.name.is_empty() => {
                let parts: Vec<&str> = field.name.split('.').map(str_strip).collect();
                let name = parts.join(".");
                fields.push(Field { text: field.name, name });
                if depth < SPECIFICATION_DEPTH_MAX {
                    collect(&field.spec, fields, depth + 1)?;
                }
            }
            _ => break,
        }
    }
    Ok(())
}
