//! Python's unbounded integer, with the small case free of allocation.

use crate::PyError;
use num_bigint::{BigInt, Sign};
use num_traits::{Signed, ToPrimitive, Zero};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// The most decimal digits that Python converts between text and integers.
pub const STR_DIGITS_MAX: usize = 4300;

/// The largest integer that products and powers may produce, in bits (2 MiB), up to a factor of
/// two. Python has no such limit: it would work for minutes and then fail for want of memory. This
/// one is reached within about a second.
pub const INT_BITS_MAX: u64 = 1 << 24;

/// A Python integer. `Big` is only used outside the range of `i64`, so that derived equality and
/// hashing are those of the number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Int {
    Small(i64),
    Big(Box<BigInt>),
}

impl Int {
    /// The value of an integer token of the language: an optional minus and ASCII digits. `None`
    /// for any other text, and for more digits than Python reads (`parse_int` says so in words).
    pub fn parse_decimal(text: &str) -> Option<Int> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        if digits.len() > STR_DIGITS_MAX {
            return None;
        }
        Some(Int::from_ascii_digits(digits, text.len() != digits.len()))
    }

    /// `digits` are ASCII digits, at least one.
    pub(crate) fn from_ascii_digits(digits: &str, negative: bool) -> Int {
        if digits.len() <= 18 {
            let magnitude =
                digits.bytes().fold(0i64, |value, byte| value * 10 + i64::from(byte - b'0'));
            return Int::Small(if negative { -magnitude } else { magnitude });
        }
        let magnitude = BigInt::parse_bytes(digits.as_bytes(), 10).unwrap_or_default();
        Int::from(if negative { -magnitude } else { magnitude })
    }

    /// Python's `str(int)`: an error beyond 4300 digits. `Display` has no limit.
    pub fn to_py_str(&self) -> Result<String, PyError> {
        if let Int::Big(big) = self {
            // 2 ** 14284 is the first power of two that may have 4301 digits.
            let too_long = match big.bits() {
                0..=14284 => false,
                14285..=14300 => big.magnitude().to_string().len() > STR_DIGITS_MAX,
                _ => true,
            };
            if too_long {
                return Err(PyError::value(format!(
                    "Exceeds the limit ({STR_DIGITS_MAX} digits) for integer string conversion; \
                     use sys.set_int_max_str_digits() to increase the limit"
                )));
            }
        }
        Ok(self.to_string())
    }

    pub fn is_zero(&self) -> bool {
        matches!(self, Int::Small(0))
    }

    pub fn is_negative(&self) -> bool {
        match self {
            Int::Small(value) => *value < 0,
            Int::Big(big) => big.is_negative(),
        }
    }

    /// The number as `i64`, where it fits.
    pub fn to_i64(&self) -> Option<i64> {
        match self {
            Int::Small(value) => Some(*value),
            Int::Big(_) => None,
        }
    }

    pub fn to_big(&self) -> Cow<'_, BigInt> {
        match self {
            Int::Small(value) => Cow::Owned(BigInt::from(*value)),
            Int::Big(big) => Cow::Borrowed(big),
        }
    }

    /// The number of bits of the magnitude.
    pub fn bits(&self) -> u64 {
        match self {
            Int::Small(value) => u64::from(64 - value.unsigned_abs().leading_zeros()),
            Int::Big(big) => big.bits(),
        }
    }

    /// The nearest float, halves to even.
    pub fn to_f64(&self) -> Result<f64, PyError> {
        match self {
            Int::Small(value) => Ok(*value as f64),
            Int::Big(big) => {
                let value = nearest_float(big);
                if value.is_infinite() {
                    return Err(PyError::overflow("int too large to convert to float"));
                }
                Ok(value)
            }
        }
    }

    /// Python's `int(float)`: drops the fraction.
    pub fn from_f64_trunc(value: f64) -> Result<Int, PyError> {
        if value.is_nan() {
            return Err(PyError::value("cannot convert float NaN to integer"));
        }
        if value.is_infinite() {
            return Err(PyError::overflow("cannot convert float infinity to integer"));
        }
        const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
        if (-TWO_POW_63..TWO_POW_63).contains(&value) {
            return Ok(Int::Small(value as i64));
        }
        let bits = value.to_bits();
        let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);
        let shift = ((bits >> 52) & 0x7ff) - 1075;
        let magnitude = BigInt::from(mantissa) << shift;
        Ok(Int::from(if value < 0.0 { -magnitude } else { magnitude }))
    }

    #[must_use]
    pub fn add(&self, other: &Int) -> Int {
        if let (Int::Small(a), Int::Small(b)) = (self, other)
            && let Some(sum) = a.checked_add(*b)
        {
            return Int::Small(sum);
        }
        Int::from(self.to_big().as_ref() + other.to_big().as_ref())
    }

    #[must_use]
    pub fn sub(&self, other: &Int) -> Int {
        if let (Int::Small(a), Int::Small(b)) = (self, other)
            && let Some(difference) = a.checked_sub(*b)
        {
            return Int::Small(difference);
        }
        Int::from(self.to_big().as_ref() - other.to_big().as_ref())
    }

    pub fn mul(&self, other: &Int) -> Result<Int, PyError> {
        if let (Int::Small(a), Int::Small(b)) = (self, other)
            && let Some(product) = a.checked_mul(*b)
        {
            return Ok(Int::Small(product));
        }
        if self.bits() + other.bits() > INT_BITS_MAX {
            return Err(too_large());
        }
        Ok(Int::from(self.to_big().as_ref() * other.to_big().as_ref()))
    }

    /// Python's `%`: the result has the sign of the divisor.
    pub fn modulo(&self, divisor: &Int) -> Result<Int, PyError> {
        if divisor.is_zero() {
            return Err(PyError::zero_division("integer modulo by zero"));
        }
        if let (Int::Small(a), Int::Small(b)) = (self, divisor) {
            // The wrapping case is i64::MIN % -1, with the correct remainder 0.
            let remainder = a.wrapping_rem(*b);
            let crosses_zero = remainder != 0 && (remainder < 0) != (*b < 0);
            return Ok(Int::Small(if crosses_zero { remainder + b } else { remainder }));
        }
        let divisor = divisor.to_big();
        let mut remainder = self.to_big().as_ref() % divisor.as_ref();
        if !remainder.is_zero() && remainder.is_negative() != divisor.is_negative() {
            remainder += divisor.as_ref();
        }
        Ok(Int::from(remainder))
    }

    /// Python's `/` of two integers: the float nearest to the exact quotient.
    pub fn true_div(&self, divisor: &Int) -> Result<f64, PyError> {
        if divisor.is_zero() {
            return Err(PyError::zero_division("division by zero"));
        }
        if let (Int::Small(a), Int::Small(b)) = (self, divisor) {
            const EXACT: u64 = 1 << 53;
            if a.unsigned_abs() <= EXACT && b.unsigned_abs() <= EXACT {
                return Ok(*a as f64 / *b as f64);
            }
        }
        let negative = self.is_negative() != divisor.is_negative();
        if self.is_zero() {
            return Ok(if negative { -0.0 } else { 0.0 });
        }
        let (numerator, denominator) = (self.to_big().abs(), divisor.to_big().abs());
        let quotient = nearest_quotient(numerator, denominator);
        if quotient.is_infinite() {
            return Err(PyError::overflow("integer division result too large for a float"));
        }
        Ok(if negative { -quotient } else { quotient })
    }

    /// Python's `**` for an exponent that is not negative.
    pub(crate) fn pow(&self, exponent: &Int) -> Result<Int, PyError> {
        match (self, exponent) {
            (_, Int::Small(0)) | (Int::Small(1), _) => return Ok(Int::Small(1)),
            (Int::Small(0), _) => return Ok(Int::Small(0)),
            (Int::Small(-1), _) => {
                let odd = exponent.to_big().bit(0);
                return Ok(Int::Small(if odd { -1 } else { 1 }));
            }
            (Int::Small(base), Int::Small(exponent)) => {
                let power = u32::try_from(*exponent).ok().and_then(|e| base.checked_pow(e));
                if let Some(power) = power {
                    return Ok(Int::Small(power));
                }
            }
            _ => {}
        }
        let exponent =
            exponent.to_i64().and_then(|e| u32::try_from(e).ok()).ok_or_else(too_large)?;
        if (self.bits() - 1).saturating_mul(u64::from(exponent)) > INT_BITS_MAX {
            return Err(too_large());
        }
        // The factors of two are only a shift, which keeps powers of two cheap.
        let base = self.to_big();
        let zeros = base.trailing_zeros().unwrap_or(0);
        let odd_part = base.as_ref() >> zeros;
        Ok(Int::from(odd_part.pow(exponent) << (zeros * u64::from(exponent))))
    }

    #[must_use]
    pub fn neg(&self) -> Int {
        match self {
            Int::Small(value) => match value.checked_neg() {
                Some(negated) => Int::Small(negated),
                None => Int::from(-BigInt::from(*value)),
            },
            Int::Big(big) => Int::from(-big.as_ref()),
        }
    }
}

fn too_large() -> PyError {
    PyError::memory(format!("integer result is larger than {} MiB", INT_BITS_MAX >> 23))
}

/// The float nearest to `value`, halves to even; infinite beyond the range.
fn nearest_float(value: &BigInt) -> f64 {
    let magnitude = value.magnitude();
    let bits = magnitude.bits();
    if bits > 1024 {
        return if value.is_negative() { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    let nearest = if bits <= 64 {
        magnitude.to_u64().unwrap_or(0) as f64
    } else {
        let shift = bits - 64;
        let top = (magnitude >> shift).to_u64().unwrap_or(0);
        // The cut-off bits only decide ties, so one sticky bit in the last position represents
        // them.
        let rest = magnitude.trailing_zeros().is_some_and(|zeros| zeros < shift);
        ((top | u64::from(rest)) as f64) * power_of_two(shift as i32)
    };
    if value.is_negative() { -nearest } else { nearest }
}

/// The float nearest to the quotient of two positive integers, also where the result is subnormal.
fn nearest_quotient(numerator: BigInt, denominator: BigInt) -> f64 {
    // The quotient lies in (2^(scale-1), 2^(scale+1)).
    let scale = numerator.bits() as i64 - denominator.bits() as i64;
    if scale > 1024 {
        return f64::INFINITY;
    }
    if scale < -1076 {
        return 0.0;
    }
    // Scale so that the integer quotient has 55 or 56 bits, but never finer than 2^-1076: two bits
    // below the smallest subnormal are enough to round it once and correctly.
    let exponent = (scale - 55).max(-1076);
    let (numerator, denominator) = if exponent < 0 {
        (numerator << (-exponent) as u64, denominator)
    } else {
        (numerator, denominator << exponent as u64)
    };
    let quotient = &numerator / &denominator;
    let rest = &quotient * &denominator != numerator;
    let quotient = quotient.to_u64().unwrap_or(0);
    round_to_float(quotient, rest, exponent as i32)
}

/// `quotient * 2^exponent`, plus a little more when `rest`, rounded once to a float.
fn round_to_float(quotient: u64, rest: bool, exponent: i32) -> f64 {
    let width = 64 - quotient.leading_zeros() as i32;
    // How many low bits do not fit: those beyond 53, or below the smallest subnormal (2^-1074).
    let drop = (width - 53).max(-1074 - exponent).max(0);
    let kept = quotient >> drop;
    let half = if drop == 0 { 0 } else { 1u64 << (drop - 1) };
    let dropped = quotient & ((1u64 << drop) - 1);
    let round_up = drop > 0 && (dropped > half || (dropped == half && (rest || kept & 1 == 1)));
    let kept = kept + u64::from(round_up);
    let shift = exponent + drop;
    // Two steps, because a single power of two may itself lie outside the range of floats.
    let first = shift.clamp(-1000, 1000);
    kept as f64 * power_of_two(first) * power_of_two(shift - first)
}

/// 2^exponent for an exponent in the range of normal floats.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

impl From<i64> for Int {
    fn from(value: i64) -> Self {
        Int::Small(value)
    }
}

impl From<i32> for Int {
    fn from(value: i32) -> Self {
        Int::Small(i64::from(value))
    }
}

impl From<bool> for Int {
    fn from(value: bool) -> Self {
        Int::Small(i64::from(value))
    }
}

impl From<usize> for Int {
    fn from(value: usize) -> Self {
        i64::try_from(value).map_or_else(|_| Int::from(BigInt::from(value)), Int::Small)
    }
}

impl From<BigInt> for Int {
    fn from(value: BigInt) -> Self {
        match value.to_i64() {
            Some(small) => Int::Small(small),
            None => Int::Big(Box::new(value)),
        }
    }
}

impl fmt::Display for Int {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Int::Small(value) => fmt::Display::fmt(value, f),
            Int::Big(big) => fmt::Display::fmt(big, f),
        }
    }
}

impl Ord for Int {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Int::Small(a), Int::Small(b)) => a.cmp(b),
            (Int::Big(a), Int::Big(b)) => a.cmp(b),
            // A big number lies outside the range of every small one.
            (Int::Big(a), Int::Small(_)) => sign_order(a.sign()),
            (Int::Small(_), Int::Big(b)) => sign_order(b.sign()).reverse(),
        }
    }
}

fn sign_order(sign: Sign) -> Ordering {
    if sign == Sign::Minus { Ordering::Less } else { Ordering::Greater }
}

impl PartialOrd for Int {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
