//! Python's `int(str)` and `float(str)`.

use crate::int::STR_DIGITS_MAX;
use crate::text::{decimal_digit, is_space, repr_str};
use crate::{Int, PyError};
use std::borrow::Cow;

/// `int(text)`: base ten, blanks around it, a sign, single underscores between digits, digits of
/// any script.
pub fn parse_int(text: &str) -> Result<Int, PyError> {
    let invalid = || {
        PyError::value(format!("invalid literal for int() with base 10: {}", repr_of_literal(text)))
    };
    let plain = to_ascii_literal(text);
    let (negative, unsigned) = split_sign(plain.trim_matches(is_c_space));
    let digits = without_underscores(unsigned).ok_or_else(invalid)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid());
    }
    if digits.len() > STR_DIGITS_MAX {
        return Err(PyError::value(format!(
            "Exceeds the limit ({STR_DIGITS_MAX} digits) for integer string conversion: value has \
             {} digits; use sys.set_int_max_str_digits() to increase the limit",
            digits.len()
        )));
    }
    Ok(Int::from_ascii_digits(&digits, negative))
}

/// `float(text)`: also `inf`, `infinity` and `nan` in any case, exponents, underscores between digits.
pub fn parse_float(text: &str) -> Result<f64, PyError> {
    let plain = to_ascii_literal(text);
    float_literal(plain.trim_matches(is_c_space)).ok_or_else(|| {
        PyError::value(format!("could not convert string to float: {}", repr_str(text)))
    })
}

fn float_literal(text: &str) -> Option<f64> {
    let text = without_underscores(text)?;
    let (_, unsigned) = split_sign(&text);
    let first = unsigned.bytes().next()?;
    if first.is_ascii_digit() || first == b'.' {
        // Rust reads all that Python does here: digits with a point somewhere, and an exponent.
        return text.parse().ok();
    }
    let named = ["inf", "infinity", "nan"].iter().any(|name| unsigned.eq_ignore_ascii_case(name));
    if named { text.parse().ok() } else { None }
}

/// In text of ASCII alone the blanks are C's, which lack U+001C to U+001F.
fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Digits of all scripts as ASCII digits, blanks of all kinds as a blank.
fn to_ascii_literal(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let plain = |c: char| match decimal_digit(c) {
        Some(digit) => char::from_digit(digit, 10).unwrap_or(c),
        None if is_space(c) => ' ',
        None => c,
    };
    Cow::Owned(text.chars().map(plain).collect())
}

/// An underscore may only stand between two digits.
fn without_underscores(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let is_digit =
        |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let well_placed = |at: usize| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
    if (0..bytes.len()).any(|at| bytes[at] == b'_' && !well_placed(at)) {
        return None;
    }
    Some(Cow::Owned(text.replace('_', "")))
}

/// Python quotes at most the first 200 characters of the repr.
fn repr_of_literal(text: &str) -> String {
    let repr = repr_str(text);
    match repr.char_indices().nth(200) {
        Some((end, _)) => repr[..end].to_string(),
        None => repr,
    }
}
