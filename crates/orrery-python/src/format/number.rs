//! Integers and floats under a format specification.

use super::spec::{Align, Spec, check_size};
use crate::float::{
    Digits, fixed_digits, push_exponent, push_positional, push_zeros, significant_digits,
};
use crate::{Int, PyError};

pub(super) fn format_int(value: &Int, spec: &str, type_name: &str) -> Result<String, PyError> {
    let spec = Spec::parse(spec, type_name, Some('d'), Align::Right)?;
    match spec.kind {
        Some('b' | 'c' | 'd' | 'o' | 'x' | 'X' | 'n') => {}
        Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => {
            return format_float_spec(value.to_f64()?, &spec, "float");
        }
        _ => return Err(spec.unknown_kind(type_name)),
    }
    if spec.precision.is_some() {
        return Err(PyError::value("Precision not allowed in integer format specifier"));
    }
    if spec.no_negative_zero {
        return Err(PyError::value(
            "Negative zero coercion (z) not allowed in integer format specifier",
        ));
    }
    if spec.kind == Some('c') {
        return format_as_character(value, &spec);
    }
    let (digits, prefix) = match spec.kind {
        Some('b') => (in_radix(value, 2), "0b"),
        Some('o') => (in_radix(value, 8), "0o"),
        Some('x') => (in_radix(value, 16), "0x"),
        Some('X') => (in_radix(value, 16).to_ascii_uppercase(), "0X"),
        _ => (value.to_py_str()?.trim_start_matches('-').to_string(), ""),
    };
    let mut head = sign_text(value.is_negative(), &spec).to_string();
    if spec.alternate {
        head.push_str(prefix);
    }
    let group = if matches!(spec.kind, Some('d')) { 3 } else { 4 };
    finish(&spec, &head, &digits, group, "")
}

fn format_as_character(value: &Int, spec: &Spec) -> Result<String, PyError> {
    if spec.sign.is_some() {
        return Err(PyError::value("Sign not allowed with integer format specifier 'c'"));
    }
    if spec.alternate {
        return Err(PyError::value(
            "Alternate form (#) not allowed with integer format specifier 'c'",
        ));
    }
    let Some(code) = value.to_i64() else {
        return Err(PyError::overflow("Python int too large to convert to C long"));
    };
    let code = u32::try_from(code).ok().filter(|code| *code < 0x0011_0000);
    let Some(code) = code else {
        return Err(PyError::overflow("%c arg not in range(0x110000)"));
    };
    spec.pad("", &character(code)?.to_string())
}

/// A code point below 0x110000 as a character; text cannot hold lone surrogates.
pub(crate) fn character(code: u32) -> Result<char, PyError> {
    char::from_u32(code).ok_or_else(|| {
        PyError::new(
            "UnicodeEncodeError",
            format!(
                "'utf-8' codec can't encode character '\\u{code:04x}' in position 0: surrogates not \
                 allowed"
            ),
        )
    })
}

/// The digits of the magnitude.
pub(crate) fn in_radix(value: &Int, radix: u32) -> String {
    match value {
        Int::Small(small) => {
            let magnitude = small.unsigned_abs();
            match radix {
                2 => format!("{magnitude:b}"),
                8 => format!("{magnitude:o}"),
                _ => format!("{magnitude:x}"),
            }
        }
        Int::Big(big) => big.magnitude().to_str_radix(radix),
    }
}

pub(super) fn format_float(value: f64, spec: &str) -> Result<String, PyError> {
    format_float_spec(value, &Spec::parse(spec, "float", None, Align::Right)?, "float")
}

fn format_float_spec(value: f64, spec: &Spec, type_name: &str) -> Result<String, PyError> {
    let (kind, default_precision) = match (spec.kind, spec.precision) {
        // Without a type it is `repr`, or `g` that never looks like an integer.
        (None, None) => (FloatKind::Shortest, 0),
        (None, Some(_)) => (FloatKind::GeneralPointZero, 0),
        (Some('n' | 'g' | 'G'), _) => (FloatKind::General, 6),
        (Some('e' | 'E'), _) => (FloatKind::Scientific, 6),
        (Some('f' | 'F' | '%'), _) => (FloatKind::Fixed, 6),
        _ => return Err(spec.unknown_kind(type_name)),
    };
    let precision = spec.precision.unwrap_or(default_precision);
    if precision > i32::MAX as usize {
        return Err(PyError::value("precision too big"));
    }
    check_size(precision)?;
    let percent = spec.kind == Some('%');
    let value = if percent { value * 100.0 } else { value };
    let upper = matches!(spec.kind, Some('E' | 'F' | 'G'));
    let mut text = float_text(value.abs(), kind, precision, spec.alternate);
    if upper {
        text.make_ascii_uppercase();
    }
    let negative = value.is_sign_negative() && !value.is_nan();
    let vanishes = spec.no_negative_zero && is_zero_text(&text);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let mut rest = text.split_off(digits);
    if percent {
        rest.push('%');
    }
    finish(spec, sign_text(negative && !vanishes, spec), &text, 3, &rest)
}

fn is_zero_text(text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    mantissa.bytes().all(|byte| matches!(byte, b'0' | b'.'))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatKind {
    /// `repr`.
    Shortest,
    /// `%e`
    Scientific,
    /// `%f`
    Fixed,
    /// `%g`
    General,
    /// `%g` with `.0` where it would look like an integer.
    GeneralPointZero,
}

/// The text of a value without sign. `alternate` keeps trailing zeros and the point.
pub(crate) fn float_text(value: f64, kind: FloatKind, precision: usize, alternate: bool) -> String {
    if value.is_nan() {
        return "nan".to_string();
    }
    if value.is_infinite() {
        return "inf".to_string();
    }
    match kind {
        FloatKind::Fixed => {
            let mut text = fixed_digits(value, precision);
            if alternate && precision == 0 {
                text.push('.');
            }
            text
        }
        FloatKind::Scientific => {
            let (digits, exponent) = significant_digits(value, precision + 1);
            scientific(&digits, exponent, alternate)
        }
        FloatKind::General | FloatKind::GeneralPointZero => {
            general(value, precision.max(1), alternate, kind == FloatKind::GeneralPointZero)
        }
        FloatKind::Shortest => {
            let digits = Digits::shortest(value);
            positional_or_scientific(digits.as_str(), digits.exponent, 16, alternate, true)
        }
    }
}

fn general(value: f64, precision: usize, alternate: bool, point_zero: bool) -> String {
    let (mut digits, exponent) = significant_digits(value, precision);
    if !alternate {
        let kept = digits.trim_end_matches('0').len().max(1);
        digits.truncate(kept);
    }
    let limit = precision as i32 - i32::from(point_zero);
    positional_or_scientific(&digits, exponent, limit, alternate, point_zero)
}

/// Positional for exponents from -4 up to below `limit`.
fn positional_or_scientific(
    digits: &str,
    exponent: i32,
    limit: i32,
    alternate: bool,
    point_zero: bool,
) -> String {
    if exponent < -4 || exponent >= limit {
        return scientific(digits, exponent, alternate);
    }
    let mut text = String::new();
    push_positional(&mut text, digits, exponent);
    if digits.len() as i64 <= i64::from(exponent) + 1 {
        if point_zero {
            text.push_str(".0");
        } else if alternate {
            text.push('.');
        }
    }
    text
}

fn scientific(digits: &str, exponent: i32, alternate: bool) -> String {
    let mut text = String::with_capacity(digits.len() + 6);
    text.push_str(&digits[..1]);
    if digits.len() > 1 || alternate {
        text.push('.');
        text.push_str(&digits[1..]);
    }
    push_exponent(&mut text, exponent, 'e');
    text
}

fn sign_text(negative: bool, spec: &Spec) -> &'static str {
    match spec.sign {
        _ if negative => "-",
        Some('+') => "+",
        Some(' ') => " ",
        _ => "",
    }
}

/// Groups the integral `digits`, adds `rest` (fraction, exponent, percent sign) and pads.
fn finish(
    spec: &Spec,
    head: &str,
    digits: &str,
    group: usize,
    rest: &str,
) -> Result<String, PyError> {
    check_size(spec.width)?;
    // Zeros that fill up to the width are grouped too; no other padding is.
    let zero_filled = spec.fill == '0' && spec.align == Align::AfterSign;
    let width = if zero_filled { spec.width.saturating_sub(head.len() + rest.len()) } else { 0 };
    let mut body = match spec.grouping {
        Some(separator) if !digits.is_empty() => group_digits(digits, separator, group, width),
        _ => digits.to_string(),
    };
    body.push_str(rest);
    spec.pad(head, &body)
}

/// `digits` with a separator between groups, filled with zeros to at least `width`; a separator
/// never comes first, so that the result may be one longer.
fn group_digits(digits: &str, separator: char, group: usize, width: usize) -> String {
    let grouped = |count: usize| count + count.saturating_sub(1) / group;
    let mut count = digits.len();
    if grouped(count) < width {
        // Of `width` characters every (group + 1)th is a separator.
        count = width - width / (group + 1);
        while grouped(count) < width {
            count += 1;
        }
    }
    let mut padded = String::with_capacity(count);
    push_zeros(&mut padded, count - digits.len());
    padded.push_str(digits);
    let mut out = String::with_capacity(grouped(count));
    for (at, digit) in padded.chars().enumerate() {
        if at > 0 && (count - at).is_multiple_of(group) {
            out.push(separator);
        }
        out.push(digit);
    }
    out
}
