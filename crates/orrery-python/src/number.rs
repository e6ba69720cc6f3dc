//! Python's arithmetic and comparison of integers and floats. A bool counts as the integer 0 or 1
//! (`Int::from(bool)`), so it needs no case of its own.

use crate::float::{repr_float, write_float_repr};
use crate::{Int, PyError};
use std::cmp::Ordering;

/// A number of the language.
#[derive(Clone, Debug)]
pub enum Number {
    Int(Int),
    Float(f64),
}

/// Result of `**`. A negative base with a fractional exponent is a complex number in Python; it is
/// a separate variant because no other operation can produce or take one.
#[derive(Clone, Debug)]
pub enum PowResult {
    Real(Number),
    Complex { real: f64, imaginary: f64 },
}

impl Number {
    pub fn to_f64(&self) -> Result<f64, PyError> {
        match self {
            Number::Int(value) => value.to_f64(),
            Number::Float(value) => Ok(*value),
        }
    }

    /// Python's `str(number)`: an error for an integer of more than 4300 digits.
    pub fn to_py_str(&self) -> Result<String, PyError> {
        match self {
            Number::Int(value) => value.to_py_str(),
            Number::Float(value) => Ok(repr_float(*value)),
        }
    }

    /// Python's `bool(number)`; nan is true.
    pub fn is_truthy(&self) -> bool {
        match self {
            Number::Int(value) => !value.is_zero(),
            Number::Float(value) => *value != 0.0,
        }
    }
}

impl From<Int> for Number {
    fn from(value: Int) -> Self {
        Number::Int(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Number::Float(value)
    }
}

pub fn add(a: &Number, b: &Number) -> Result<Number, PyError> {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Ok(Number::Int(a.add(b))),
        _ => Ok(Number::Float(a.to_f64()? + b.to_f64()?)),
    }
}

pub fn sub(a: &Number, b: &Number) -> Result<Number, PyError> {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Ok(Number::Int(a.sub(b))),
        _ => Ok(Number::Float(a.to_f64()? - b.to_f64()?)),
    }
}

pub fn mul(a: &Number, b: &Number) -> Result<Number, PyError> {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => a.mul(b).map(Number::Int),
        _ => Ok(Number::Float(a.to_f64()? * b.to_f64()?)),
    }
}

/// `/`: always a float.
pub fn div(a: &Number, b: &Number) -> Result<Number, PyError> {
    if let (Number::Int(a), Number::Int(b)) = (a, b) {
        return a.true_div(b).map(Number::Float);
    }
    let (a, b) = (a.to_f64()?, b.to_f64()?);
    if b == 0.0 {
        return Err(PyError::zero_division("float division by zero"));
    }
    Ok(Number::Float(a / b))
}

/// `%`: the sign of the result is that of the divisor.
pub fn modulo(a: &Number, b: &Number) -> Result<Number, PyError> {
    if let (Number::Int(a), Number::Int(b)) = (a, b) {
        return a.modulo(b).map(Number::Int);
    }
    let (a, b) = (a.to_f64()?, b.to_f64()?);
    if b == 0.0 {
        return Err(PyError::zero_division("float modulo by zero"));
    }
    let remainder = a % b;
    Ok(Number::Float(if remainder == 0.0 {
        0f64.copysign(b)
    } else if (b < 0.0) != (remainder < 0.0) {
        remainder + b
    } else {
        remainder
    }))
}

pub fn pow(base: &Number, exponent: &Number) -> Result<PowResult, PyError> {
    if let (Number::Int(base), Number::Int(exponent)) = (base, exponent)
        && !exponent.is_negative()
    {
        return Ok(PowResult::Real(Number::Int(base.pow(exponent)?)));
    }
    float_pow(base.to_f64()?, exponent.to_f64()?)
}

#[expect(clippy::float_cmp, reason = "Python compares exactly")]
fn float_pow(base: f64, exponent: f64) -> Result<PowResult, PyError> {
    if base == 0.0 && exponent < 0.0 && exponent.is_finite() {
        return Err(PyError::zero_division("0.0 cannot be raised to a negative power"));
    }
    let fractional = exponent.is_finite() && exponent != exponent.floor();
    if base < 0.0 && base.is_finite() && fractional {
        return complex_pow(base, exponent);
    }
    let power = base.powf(exponent);
    if power.is_infinite() && base.is_finite() && exponent.is_finite() {
        return Err(PyError::overflow("(34, 'Numerical result out of range')"));
    }
    Ok(PowResult::Real(Number::Float(power)))
}

/// A negative base is a point on the negative real axis: turn it by a fraction of the half circle.
fn complex_pow(base: f64, exponent: f64) -> Result<PowResult, PyError> {
    let length = base.abs().powf(exponent);
    let angle = 0f64.atan2(base) * exponent;
    let (real, imaginary) = (length * angle.cos(), length * angle.sin());
    if real.is_infinite() || imaginary.is_infinite() {
        return Err(PyError::overflow("complex exponentiation"));
    }
    Ok(PowResult::Complex { real, imaginary })
}

/// Python's `repr` (and `str`) of a complex number.
pub fn repr_complex(real: f64, imaginary: f64) -> String {
    let mut text = String::new();
    if real == 0.0 && real.is_sign_positive() {
        write_float_repr(&mut text, imaginary, false);
        text.push('j');
        return text;
    }
    text.push('(');
    write_float_repr(&mut text, real, false);
    if imaginary.is_sign_positive() || imaginary.is_nan() {
        text.push('+');
    }
    write_float_repr(&mut text, imaginary, false);
    text.push_str("j)");
    text
}

/// Python's `==` of two numbers: exact also between an integer and a float; nan equals nothing.
pub fn num_eq(a: &Number, b: &Number) -> bool {
    num_cmp(a, b) == Some(Ordering::Equal)
}

/// Compares two numbers exactly; `None` when one is nan, and every comparison is then false.
pub fn num_cmp(a: &Number, b: &Number) -> Option<Ordering> {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Some(a.cmp(b)),
        (Number::Float(a), Number::Float(b)) => a.partial_cmp(b),
        (Number::Int(a), Number::Float(b)) => cmp_int_float(a, *b),
        (Number::Float(a), Number::Int(b)) => cmp_int_float(b, *a).map(Ordering::reverse),
    }
}

fn cmp_int_float(int: &Int, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if let Int::Small(value) = int
        && value.unsigned_abs() <= 1 << 53
    {
        return (*value as f64).partial_cmp(&float);
    }
    // Only infinities have no integral part, and no integer reaches them.
    let Ok(whole) = Int::from_f64_trunc(float) else {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    };
    // Beyond 2^53 a float has no fraction, and a float below that differs in its integral part.
    Some(int.cmp(&whole))
}
