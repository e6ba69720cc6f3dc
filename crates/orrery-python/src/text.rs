//! Python's `repr` and case mappings of strings, and its notion of blanks and decimal digits.
//! Case follows Rust's Unicode, which differs from Python 3.13's for characters that are newer than it.

use crate::tables::titles::TITLE_EXCEPTIONS;
use crate::tables::{digits::DECIMAL_ZEROS, in_ranges, printable::UNPRINTABLE};
use std::fmt::Write;

/// Python's `repr` of a string: single quotes unless only those occur in it.
pub fn repr_str(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_repr_str(&mut out, text);
    out
}

/// Appends `repr_str(text)` to `out`.
pub fn write_repr_str(out: &mut String, text: &str) {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'\'' && byte != b'\\') {
        // Nearly all strings are plain: one look at the bytes and one copy.
        out.push('\'');
        out.push_str(text);
        out.push('\'');
        return;
    }
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    push_escaped(out, text, quote);
    out.push(quote);
}

/// Python's `ascii` of a string: `repr` with everything beyond ASCII escaped.
pub fn ascii_str(text: &str) -> String {
    ascii_of_repr(&repr_str(text))
}

/// Python's `ascii` of any value, from its `repr`.
pub fn ascii_of_repr(repr: &str) -> String {
    let mut out = String::with_capacity(repr.len());
    for c in repr.chars() {
        if c.is_ascii() { out.push(c) } else { push_numeric_escape(&mut out, c) }
    }
    out
}

fn push_escaped(out: &mut String, text: &str, quote: char) {
    // Copies whole runs of what needs no escape.
    let mut run = 0;
    for (at, c) in text.char_indices() {
        if is_printable(c) && c != quote && c != '\\' {
            continue;
        }
        out.push_str(&text[run..at]);
        run = at + c.len_utf8();
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            _ => push_numeric_escape(out, c),
        }
    }
    out.push_str(&text[run..]);
}

fn push_numeric_escape(out: &mut String, c: char) {
    let code = u32::from(c);
    let _ = match code {
        0..=0xff => write!(out, "\\x{code:02x}"),
        0x100..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// Python's `str.isprintable` of one character.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() { (' '..='~').contains(&c) } else { !in_ranges(UNPRINTABLE, c.into()) }
}

/// Python's `str.isspace` of one character. Rust's `is_whitespace` lacks the four separators
/// U+001C to U+001F.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Python's `str.strip()`.
pub fn str_strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// The value of a decimal digit of any script.
pub fn decimal_digit(c: char) -> Option<u32> {
    if c.is_ascii() {
        return c.to_digit(10);
    }
    let code = u32::from(c);
    let following = DECIMAL_ZEROS.partition_point(|&zero| zero <= code);
    let zero = DECIMAL_ZEROS.get(following.checked_sub(1)?)?;
    (code - zero < 10).then(|| code - zero)
}

/// Python's `str.upper()`: the full mapping, as in Rust.
pub fn str_upper(text: &str) -> String {
    text.to_uppercase()
}

/// Python's `str.lower()`: the full mapping with the final sigma, as in Rust.
pub fn str_lower(text: &str) -> String {
    text.to_lowercase()
}

/// Python's `str.capitalize()`: the first character in title case, all others in lower case.
pub fn str_capitalize(text: &str) -> String {
    let Some(first) = text.chars().next() else {
        return String::new();
    };
    let mut out = String::with_capacity(text.len());
    match TITLE_EXCEPTIONS.binary_search_by_key(&u32::from(first), |row| row.0) {
        Ok(row) => out.push_str(TITLE_EXCEPTIONS[row].1),
        Err(_) => out.extend(first.to_uppercase()),
    }
    // Lowered as a whole, because a final sigma looks at what stands before it.
    let lowered = text.to_lowercase();
    let lowered_first: usize = first.to_lowercase().map(char::len_utf8).sum();
    out.push_str(&lowered[lowered_first..]);
    out
}

/// Python's `str.split(separator)` without a limit; Rust's `split` does the same for a separator
/// that is not empty.
pub fn str_split<'t>(text: &'t str, separator: &str) -> Result<Vec<&'t str>, crate::PyError> {
    if separator.is_empty() {
        return Err(crate::PyError::value("empty separator"));
    }
    Ok(text.split(separator).collect())
}

/// Python's `str.split()`: runs of blanks separate, and none stand at the ends.
pub fn str_split_blanks(text: &str) -> Vec<&str> {
    text.split(is_space).filter(|part| !part.is_empty()).collect()
}

/// Appends a text as Python's `json.dumps` writes it: all beyond ASCII is escaped, in UTF-16.
pub fn write_json_str(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='\u{7e}' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}
