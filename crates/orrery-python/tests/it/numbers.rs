//! Arithmetic, comparison and conversion of numbers.

use crate::records::{Differences, number, rows, show_number, text};
use orrery_python::*;
use serde_json::{Value, json};
use std::cmp::Ordering;

/// A nan has many bit patterns; which of them an operation gives is the processor's choice.
fn with_one_nan(outcome: &Value) -> Value {
    match outcome["ok"].as_str().and_then(|text| text.strip_prefix("f:")) {
        Some(bits) if f64::from_bits(u64::from_str_radix(bits, 16).unwrap()).is_nan() => {
            json!({ "ok": "f:nan" })
        }
        _ => outcome.clone(),
    }
}

fn apply(a: &Number, operator: &str, b: &Number) -> Result<String, PyError> {
    let comparison = |wanted| {
        let text = if num_cmp(a, b) == Some(wanted) { "True" } else { "False" };
        Ok(text.to_string())
    };
    let number = match operator {
        "+" => add(a, b),
        "-" => sub(a, b),
        "*" => mul(a, b),
        "/" => div(a, b),
        "%" => modulo(a, b),
        "**" => match pow(a, b)? {
            PowResult::Real(number) => Ok(number),
            PowResult::Complex { real, imaginary } => {
                return Ok(format!("c:{}", repr_complex(real, imaginary)));
            }
        },
        "<" => return comparison(Ordering::Less),
        "==" => return comparison(Ordering::Equal),
        ">" => return comparison(Ordering::Greater),
        other => panic!("no such operator: {other}"),
    };
    number.map(|number| show_number(&number))
}

#[test]
fn arithmetic_is_that_of_python() {
    let mut differences = Differences::default();
    for row in rows("arithmetic") {
        let (a, b) = (number(&row[0]), number(&row[2]));
        let actual = apply(&a, text(&row[1]), &b);
        differences.compare(&row[..3], &with_one_nan(&row[3]), actual);
    }
}

#[test]
fn conversions_are_those_of_python() {
    let mut differences = Differences::default();
    for row in rows("conversions") {
        let actual = match text(&row[0]) {
            "hex-str" => hex_integer(text(&row[1])).to_py_str(),
            conversion => match (conversion, number(&row[1])) {
                ("repr", Number::Float(value)) => Ok(repr_float(value)),
                ("int", Number::Float(value)) => {
                    Int::from_f64_trunc(value).map(|value| format!("i:{value}"))
                }
                ("float", Number::Int(value)) => {
                    value.to_f64().map(|value| show_number(&Number::Float(value)))
                }
                ("str", Number::Int(value)) => value.to_py_str(),
                (other, _) => panic!("no such conversion: {other}"),
            },
        };
        differences.compare(&row[..2], &row[2], actual);
    }
}

/// Longer than what `parse_decimal` reads.
fn hex_integer(text: &str) -> Int {
    let digits = text.strip_prefix("0x").unwrap();
    let sixteen = Int::from(16);
    digits.chars().fold(Int::from(0), |value, digit| {
        value.mul(&sixteen).unwrap().add(&Int::from(i64::from(digit.to_digit(16).unwrap())))
    })
}

#[test]
fn a_power_too_large_for_memory_is_an_error() {
    for (base, exponent) in [(2, 10_000_000_000), (3, i64::MAX), (i64::MAX, 1 << 26), (-2, 1 << 27)]
    {
        let power = pow(&Int::from(base).into(), &Int::from(exponent).into());
        assert_eq!(power.unwrap_err().kind, "MemoryError", "{base} ** {exponent}");
    }
    let ones = pow(&Int::from(-1).into(), &Int::from(i64::MAX).into()).unwrap();
    assert!(matches!(ones, PowResult::Real(Number::Int(Int::Small(-1)))));
}

#[test]
fn truth_is_being_other_than_zero() {
    assert!(!Number::Float(-0.0).is_truthy());
    assert!(Number::Float(f64::NAN).is_truthy());
    assert!(!Number::Int(Int::from(false)).is_truthy());
    assert!(Number::Int(Int::from(-1)).is_truthy());
}
