//! Backslash escapes in the string literals of the language: Python's `unicode_escape` codec.

use crate::PyError;
use crate::names::character_by_name;

/// Decodes a literal's source. Returns the text, and true if an escape in it was invalid (unknown,
/// or an octal number beyond `\377`). Unknown escapes stay as written. Characters beyond ASCII
/// stand for themselves.
///
/// The codec raises for escapes that are cut short or name no character. Python strings may hold lone
/// surrogates (`\ud800`), which no text can carry to the outside: they are refused here with the
/// error that Python gives when such a string is written.
pub fn decode_escapes(source: &str) -> Result<(String, bool), PyError> {
    let Some(first) = source.find('\\') else {
        return Ok((source.to_string(), false));
    };
    let mut out = String::with_capacity(source.len());
    out.push_str(&source[..first]);
    let mut invalid = false;
    let mut at = first;
    while at < source.len() {
        let rest = &source[at..];
        if !rest.starts_with('\\') {
            let run = rest.find('\\').unwrap_or(rest.len());
            out.push_str(&rest[..run]);
            at += run;
            continue;
        }
        at += decode_one(source, at, &mut out, &mut invalid)?;
    }
    Ok((out, invalid))
}

/// Decodes the escape at byte `at` and gives its length.
fn decode_one(
    source: &str,
    at: usize,
    out: &mut String,
    invalid: &mut bool,
) -> Result<usize, PyError> {
    let bytes = source.as_bytes();
    let Some(&letter) = bytes.get(at + 1) else {
        return Err(PyError::new(
            "UnicodeDecodeError",
            format!(
                "'unicodeescape' codec can't decode byte 0x5c in position {at}: \\ at end of string"
            ),
        ));
    };
    let plain = match letter {
        b'\\' => '\\',
        b'\'' => '\'',
        b'"' => '"',
        b'a' => '\x07',
        b'b' => '\x08',
        b'f' => '\x0c',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'v' => '\x0b',
        b'\n' => return Ok(2),
        b'0'..=b'7' => return Ok(decode_octal(bytes, at, out, invalid)),
        b'x' => return decode_hex(bytes, at, 2, "truncated \\xXX escape", out),
        b'u' => return decode_hex(bytes, at, 4, "truncated \\uXXXX escape", out),
        b'U' => return decode_hex(bytes, at, 8, "truncated \\UXXXXXXXX escape", out),
        b'N' => return decode_name(source, at, out),
        _ => {
            *invalid = true;
            out.push('\\');
            // The rest is copied with the text after it.
            return Ok(1);
        }
    };
    out.push(plain);
    Ok(2)
}

fn decode_octal(bytes: &[u8], at: usize, out: &mut String, invalid: &mut bool) -> usize {
    let digits = bytes[at + 1..].iter().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
    let code =
        bytes[at + 1..=at + digits].iter().fold(0, |code, byte| code * 8 + u32::from(byte - b'0'));
    *invalid |= code > 0o377;
    // Three octal digits stay far below the surrogates.
    out.extend(char::from_u32(code));
    1 + digits
}

fn decode_hex(
    bytes: &[u8],
    at: usize,
    count: usize,
    reason: &str,
    out: &mut String,
) -> Result<usize, PyError> {
    let digits = bytes[at + 2..].iter().take(count).take_while(|b| b.is_ascii_hexdigit()).count();
    if digits < count {
        return Err(decode_error(at, at + 2 + digits, reason));
    }
    let code = bytes[at + 2..at + 2 + count]
        .iter()
        .fold(0u32, |code, &byte| code * 16 + char::from(byte).to_digit(16).unwrap_or(0));
    if code > 0x0010_ffff {
        return Err(decode_error(at, at + 2 + count, "illegal Unicode character"));
    }
    let Some(c) = char::from_u32(code) else {
        return Err(PyError::new(
            "UnicodeEncodeError",
            format!(
                "'utf-8' codec can't encode character '\\u{code:04x}' in position {}: surrogates not \
                 allowed",
                out.chars().count()
            ),
        ));
    };
    out.push(c);
    Ok(2 + count)
}

fn decode_name(source: &str, at: usize, out: &mut String) -> Result<usize, PyError> {
    const MALFORMED: &str = "malformed \\N character escape";
    let rest = &source[at + 2..];
    let Some(named) = rest.strip_prefix('{') else {
        return Err(decode_error(at, at + 2, MALFORMED));
    };
    let Some(length) = named.find('}') else {
        return Err(decode_error(at, source.len(), MALFORMED));
    };
    if length == 0 {
        return Err(decode_error(at, at + 3, MALFORMED));
    }
    let end = at + 3 + length + 1;
    let Some(c) = character_by_name(&named[..length]) else {
        return Err(decode_error(at, end, "unknown Unicode character name"));
    };
    out.push(c);
    Ok(end - at)
}

/// `end` is exclusive; the message counts bytes of the source, as the codec does.
fn decode_error(start: usize, end: usize, reason: &str) -> PyError {
    PyError::new(
        "UnicodeDecodeError",
        format!(
            "'unicodeescape' codec can't decode bytes in position {start}-{}: {reason}",
            end - 1
        ),
    )
}
