//! What Python does with the parts of literals.

/// Why Python's `re` refuses a pattern.
pub(crate) fn regex_error(_pattern: &str) -> Option<String> {
    None
}

/// Python's `repr` of a string.
pub(crate) fn repr_str(text: &str) -> String {
    format!("'{text}'")
}

/// Decodes the escapes of a string literal. Unknown ones stay as they are; the flag tells that
/// there was one.
pub(crate) fn decode_escapes(text: &str) -> Result<(String, bool), String> {
    let mut value = String::with_capacity(text.len());
    let mut had_invalid = false;
    let mut rest = text;
    while let Some(position) = rest.find('\\') {
        value.push_str(&rest[..position]);
        rest = &rest[position..];
        match escape(rest) {
            Some((decoded, length)) => {
                value.extend(decoded);
                rest = &rest[length..];
            }
            None => {
                had_invalid = true;
                value.push('\\');
                rest = &rest[1..];
            }
        }
    }
    value.push_str(rest);
    Ok((value, had_invalid))
}

/// The escape at the start of `text`: what it stands for and its length.
fn escape(text: &str) -> Option<(Option<char>, usize)> {
    let kind = *text.as_bytes().get(1)?;
    let simple = |c| Some((Some(c), 2));
    match kind {
        b'\n' => Some((None, 2)),
        b'\\' | b'\'' | b'"' => simple(char::from(kind)),
        b'a' => simple('\x07'),
        b'b' => simple('\x08'),
        b'f' => simple('\x0c'),
        b'n' => simple('\n'),
        b'r' => simple('\r'),
        b't' => simple('\t'),
        b'v' => simple('\x0b'),
        b'0'..=b'7' => {
            let digits = text[1..].bytes().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
            let code = u32::from_str_radix(&text[1..1 + digits], 8).ok()?;
            Some((char::from_u32(code), 1 + digits))
        }
        b'x' => hexadecimal(text, 2),
        b'u' => hexadecimal(text, 4),
        b'U' => hexadecimal(text, 8),
        _ => None,
    }
}

fn hexadecimal(text: &str, digits: usize) -> Option<(Option<char>, usize)> {
    let code = text.get(2..2 + digits)?;
    if !code.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let decoded = char::from_u32(u32::from_str_radix(code, 16).ok()?)?;
    Some((Some(decoded), 2 + digits))
}
