//! Python's float formatting: the shortest digits that read back as the same number, and exactly
//! rounded digits of any precision.

use std::fmt::Write;

/// Python's `repr` (and `str`) of a float.
pub fn repr_float(value: f64) -> String {
    let mut text = String::with_capacity(24);
    write_float_repr(&mut text, value, true);
    text
}

/// Appends the repr of `value`; without `point_zero` an integral value has no `.0`, as inside a
/// complex number.
pub(crate) fn write_float_repr(out: &mut String, value: f64, point_zero: bool) {
    if value.is_nan() {
        out.push_str("nan");
        return;
    }
    if value.is_sign_negative() {
        out.push('-');
    }
    if value.is_infinite() {
        out.push_str("inf");
        return;
    }
    let digits = Digits::shortest(value.abs());
    let exponent = digits.exponent;
    let text = digits.as_str();
    if (-4..16).contains(&exponent) {
        push_positional(out, text, exponent);
        if point_zero && text.len() as i32 <= exponent + 1 {
            out.push_str(".0");
        }
    } else {
        push_scientific(out, text, exponent, 'e');
    }
}

/// Decimal digits `d.ddd` times ten to the power `exponent`, with no trailing zeros but the first digit.
pub(crate) struct Digits {
    bytes: [u8; 32],
    len: usize,
    pub(crate) exponent: i32,
}

impl Digits {
    /// The fewest digits that read back as `value`, which is finite and not negative, and of those the
    /// nearest to it.
    pub(crate) fn shortest(value: f64) -> Digits {
        let mut buffer = Buffer { bytes: [0; 32], len: 0 };
        // Rust writes `d.ddde±x` with the shortest round-trip digits; at most 17 digits and 5 more.
        let _ = write!(buffer, "{value:e}");
        let mut digits = Digits { bytes: [0; 32], len: 0, exponent: 0 };
        let mut bytes = buffer.bytes[..buffer.len].iter();
        for &byte in bytes.by_ref() {
            match byte {
                b'.' => {}
                b'e' => break,
                digit => {
                    digits.bytes[digits.len] = digit;
                    digits.len += 1;
                }
            }
        }
        let mut negative = false;
        for &byte in bytes {
            if byte == b'-' {
                negative = true;
            } else {
                digits.exponent = digits.exponent * 10 + i32::from(byte - b'0');
            }
        }
        if negative {
            digits.exponent = -digits.exponent;
        }
        if digits.may_be_tie(value) {
            digits.round_half_to_even(value);
        }
        digits
    }

    /// Returns true if `value` may lie midway between these digits and their neighbour: its decimal
    /// expansion would have just one digit more.
    fn may_be_tie(&self, value: f64) -> bool {
        // Fewer digits than 15 always stand for the value itself.
        if self.len < 15 {
            return false;
        }
        let bits = value.to_bits();
        let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);
        let fraction_bits = 1075 - ((bits >> 52) & 0x7ff) as i32 - mantissa.trailing_zeros() as i32;
        // A fraction of n bits has n decimal digits.
        let decimals = self.len as i32 - 1 - self.exponent;
        fraction_bits <= 0 || fraction_bits == decimals + 1
    }

    /// Of two digit strings equally near to the value Python takes the even one, Rust the greater.
    fn round_half_to_even(&mut self, value: f64) {
        let mut buffer = Buffer { bytes: [0; 32], len: 0 };
        let precision = self.len - 1;
        let _ = write!(buffer, "{value:.precision$e}");
        let text = std::str::from_utf8(&buffer.bytes[..buffer.len]).unwrap_or_default();
        if text.parse() == Ok(value) && text.bytes().take(self.len + 1).all(|b| b != b'e') {
            let digits = text.bytes().filter(u8::is_ascii_digit).take(self.len);
            for (place, digit) in self.bytes.iter_mut().zip(digits) {
                *place = digit;
            }
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or("0")
    }
}

/// A small buffer on the stack, so that the hot path allocates only its result.
struct Buffer {
    bytes: [u8; 32],
    len: usize,
}

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// `1.5e+16`: Python writes a sign and at least two digits of exponent.
pub(crate) fn push_scientific(out: &mut String, digits: &str, exponent: i32, letter: char) {
    out.push_str(&digits[..1]);
    if digits.len() > 1 {
        out.push('.');
        out.push_str(&digits[1..]);
    }
    push_exponent(out, exponent, letter);
}

pub(crate) fn push_exponent(out: &mut String, exponent: i32, letter: char) {
    out.push(letter);
    out.push(if exponent < 0 { '-' } else { '+' });
    let magnitude = exponent.unsigned_abs();
    if magnitude < 10 {
        out.push('0');
    }
    let _ = write!(out, "{magnitude}");
}

/// `digits` with the decimal point where `exponent` says, zeros filled in.
pub(crate) fn push_positional(out: &mut String, digits: &str, exponent: i32) {
    if exponent < 0 {
        out.push_str("0.");
        push_zeros(out, (-exponent - 1) as usize);
        out.push_str(digits);
        return;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.push_str(digits);
        push_zeros(out, whole - digits.len());
    } else {
        out.push_str(&digits[..whole]);
        out.push('.');
        out.push_str(&digits[whole..]);
    }
}

pub(crate) fn push_zeros(out: &mut String, count: usize) {
    out.extend(std::iter::repeat_n('0', count));
}

/// No float has more digits than this after the point, nor more significant ones; beyond it
/// everything is zeros, which are cheaper to append than to compute.
const EXACT_DIGITS_MAX: usize = 1100;

/// C's `%.{precision}f` of a finite value that is not negative.
pub(crate) fn fixed_digits(value: f64, precision: usize) -> String {
    let exact = precision.min(EXACT_DIGITS_MAX);
    let mut text = format!("{value:.exact$}");
    push_zeros(&mut text, precision - exact);
    text
}

/// `count` significant digits of a finite value that is not negative, correctly rounded, and the
/// decimal exponent of the first. `count` is at least one.
pub(crate) fn significant_digits(value: f64, count: usize) -> (String, i32) {
    let exact = (count - 1).min(EXACT_DIGITS_MAX);
    let text = format!("{value:.exact$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mut digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    push_zeros(&mut digits, count - 1 - exact);
    (digits, exponent.parse().unwrap_or(0))
}
