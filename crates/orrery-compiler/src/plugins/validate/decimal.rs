//! Exact decimals, as far as `condecimal` needs them.

use std::cmp::Ordering;

use num_bigint::BigInt;
use orrery_python::{Number, decimal_digit, repr_float};

use super::numbers::{Bound, Relation};

/// `digits * 10^exponent`.
pub(super) struct Decimal {
    digits: BigInt,
    exponent: i64,
}

/// Significant digits of Python's decimals.
const PRECISION: usize = 28;

/// Larger exponents are refused, as Python does.
const EXPONENT_MAX: i64 = 999_999_999_999_999_999;

/// Larger differences of exponents are decided by magnitude alone.
const ALIGNED_MAX: i64 = 10_000;

impl Decimal {
    /// `12`, `-1.50`, `.5`, `1.e3`; `None` for anything else, infinities too.
    pub(super) fn parse(text: &str) -> Option<Decimal> {
        let ascii: String;
        let text = if text.is_ascii() {
            text
        } else {
            let digit = |c: char| decimal_digit(c).and_then(|digit| char::from_digit(digit, 10));
            ascii = text.chars().map(|c| digit(c).unwrap_or(c)).collect();
            &ascii
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let exponent = exponent.parse::<i64>().ok()?;
                (mantissa, (exponent.abs() <= EXPONENT_MAX).then_some(exponent)?)
            }
            None => (text, 0),
        };
        let (sign, unsigned) = match mantissa.as_bytes().first()? {
            b'-' => ("-", &mantissa[1..]),
            b'+' => ("", &mantissa[1..]),
            _ => ("", mantissa),
        };
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = format!("{sign}{digits}").parse().ok()?;
        Some(Decimal { digits, exponent: exponent.checked_sub(fraction.len() as i64)? })
    }

    fn from_number(number: &Number) -> Option<Decimal> {
        match number {
            Number::Int(int) => Some(Decimal { digits: int.to_big().into_owned(), exponent: 0 }),
            Number::Float(float) => Decimal::parse(&repr_float(*float)),
        }
    }

    /// Number of digits, and how many of them stand after the point; zeros at the end do not count.
    pub(super) fn size(&self) -> (u64, u64) {
        let all = self.digits.magnitude().to_string();
        let kept = all.trim_end_matches('0');
        let exponent = self.exponent.saturating_add((all.len() - kept.len()) as i64);
        let count = kept.len().max(1) as u64;
        let places = exponent.min(0).unsigned_abs();
        if exponent > 0 {
            (count.saturating_add(exponent.unsigned_abs()), 0)
        } else {
            (count.max(places), places)
        }
    }

    /// Both as integers of the same scale; `None` if they are too far apart.
    fn aligned(&self, other: &Decimal) -> Option<(BigInt, BigInt)> {
        let scaled = |decimal: &Decimal, to: i64| {
            let places = u32::try_from(decimal.exponent.checked_sub(to)?).ok()?;
            Some(&decimal.digits * BigInt::from(10).pow(places))
        };
        let to = self.exponent.min(other.exponent);
        let far = self.exponent.abs_diff(other.exponent) > ALIGNED_MAX.unsigned_abs();
        if far { None } else { Some((scaled(self, to)?, scaled(other, to)?)) }
    }

    fn compare(&self, other: &Decimal) -> Ordering {
        if let Some((left, right)) = self.aligned(other) {
            return left.cmp(&right);
        }
        let signs = self.digits.sign().cmp(&other.digits.sign());
        let larger = self.exponent.cmp(&other.exponent);
        match self.digits.sign() {
            _ if signs != Ordering::Equal => signs,
            num_bigint::Sign::Minus => larger.reverse(),
            _ => larger,
        }
    }

    pub(super) fn satisfies(&self, (relation, limit): &Bound) -> bool {
        let Some(limit) = Decimal::from_number(limit) else {
            return false;
        };
        let order = self.compare(&limit);
        match relation {
            Relation::Greater => order.is_gt(),
            Relation::GreaterOrEqual => order.is_ge(),
            Relation::Less => order.is_lt(),
            Relation::LessOrEqual => order.is_le(),
            Relation::MultipleOf => self
                .aligned(&limit)
                .is_some_and(|(number, of)| of != BigInt::ZERO && quotient_is_whole(&number, &of)),
        }
    }
}

/// True if a quotient, rounded to the precision of Python's decimals, is an integer.
fn quotient_is_whole(number: &BigInt, of: &BigInt) -> bool {
    let whole = number / of;
    if whole == BigInt::ZERO {
        return *number == BigInt::ZERO;
    }
    let Some(places) = PRECISION.checked_sub(whole.magnitude().to_string().len()) else {
        return false;
    };
    let scale = BigInt::from(10).pow(places as u32);
    let scaled = number * &scale;
    let (quotient, rest) = (&scaled / of, &scaled % of);
    let is_above_half = rest.magnitude() * 2u32 > *of.magnitude();
    let step = if quotient.sign() == num_bigint::Sign::Minus { -1 } else { 1 };
    let rounded = if is_above_half { quotient + step } else { quotient };
    rounded % scale == BigInt::ZERO
}
