//! Constrained numbers: `PositiveInt`, `conint(ge=…)` and their kin, from numbers and from texts.

use std::cmp::Ordering;

use orrery_python::{Int, Number, num_cmp, parse_float, parse_int};

use super::super::{Context, Failure};
use crate::value::{DictId, Value};

/// Bounds that a number has to keep.
type Bound = (Relation, Number);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    MultipleOf,
}

fn keeps(number: &Number, (relation, limit): &Bound) -> bool {
    let order = num_cmp(number, limit);
    match relation {
        Relation::Greater => order == Some(Ordering::Greater),
        Relation::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        Relation::Less => order == Some(Ordering::Less),
        Relation::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Relation::MultipleOf => is_multiple(number, limit),
    }
}

fn is_multiple(number: &Number, of: &Number) -> bool {
    match orrery_python::modulo(number, of) {
        Ok(Number::Int(rest)) => rest.is_zero(),
        // Floats are compared within the error that their division has.
        Ok(Number::Float(rest)) => {
            let of = of.to_f64().unwrap_or(f64::NAN);
            let threshold = number.to_f64().unwrap_or(f64::NAN).abs() / 1e9;
            rest.abs() <= threshold || (rest.abs() - of.abs()).abs() <= threshold
        }
        Err(_) => false,
    }
}

/// The sign that a named type asks for: `(is integer, relation to zero, is strict)`.
fn named(name: &str) -> Option<(bool, Option<Relation>, bool)> {
    Some(match name.strip_prefix("pydantic.")? {
        "PositiveInt" => (true, Some(Relation::Greater), false),
        "NegativeInt" => (true, Some(Relation::Less), false),
        "NonNegativeInt" => (true, Some(Relation::GreaterOrEqual), false),
        "NonPositiveInt" => (true, Some(Relation::LessOrEqual), false),
        "PositiveFloat" => (false, Some(Relation::Greater), false),
        "NegativeFloat" => (false, Some(Relation::Less), false),
        "NonNegativeFloat" => (false, Some(Relation::GreaterOrEqual), false),
        "NonPositiveFloat" => (false, Some(Relation::LessOrEqual), false),
        "StrictInt" => (true, None, true),
        "StrictFloat" => (false, None, true),
        _ => return None,
    })
}

fn keeps_sign(number: Option<Number>, relation: Option<Relation>) -> bool {
    let zero = Number::Int(Int::Small(0));
    number.is_some_and(|number| relation.is_none_or(|relation| keeps(&number, &(relation, zero))))
}

/// Whether a text is acceptable to a named type of numbers; `None` if there is no such type.
pub(super) fn accepts_text(name: &str, text: &str) -> Option<bool> {
    let (is_integer, relation, is_strict) = named(name)?;
    let number = match (is_strict, is_integer) {
        (true, _) => None,
        (false, true) => int_from_text(text).map(Number::Int),
        (false, false) => parse_float(text).ok().map(Number::Float),
    };
    Some(keeps_sign(number, relation))
}

/// The same for values that are no texts: named types of numbers, and addresses and times that are
/// given as numbers.
pub(super) fn accepts_number(ctx: &dyn Context, name: &str, value: Value) -> Option<bool> {
    if let Some((is_integer, relation, is_strict)) = named(name) {
        let number = if is_integer {
            int_from_value(ctx, value, is_strict).map(Number::Int)
        } else {
            float_from_value(ctx, value, is_strict).map(Number::Float)
        };
        return Some(keeps_sign(number, relation));
    }
    let number = ctx.heap().number(value)?;
    match (name, &number) {
        ("datetime.date" | "datetime.time" | "datetime.datetime" | "datetime.timedelta", _) => {
            Some(super::texts::is_moment(name, value, &number))
        }
        (_, Number::Int(int)) => {
            let width = match name {
                "ipaddress.IPv4Address" | "ipaddress.IPv4Interface" | "ipaddress.IPv4Network" => 32,
                "ipaddress.IPv6Address"
                | "ipaddress.IPv6Interface"
                | "ipaddress.IPv6Network"
                | "pydantic.IPvAnyAddress"
                | "pydantic.IPvAnyInterface"
                | "pydantic.IPvAnyNetwork" => 128,
                _ => return None,
            };
            Some(!int.is_negative() && int.bits() <= width)
        }
        _ => None,
    }
}

/// An integer, or a float without a fraction unless the type is strict.
fn int_from_value(ctx: &dyn Context, value: Value, is_strict: bool) -> Option<Int> {
    match value {
        Value::Int(int) => Some(Int::Small(int)),
        Value::Big(id) => Some(ctx.heap().big(id).clone()),
        Value::Bool(bool) if !is_strict => Some(Int::Small(i64::from(bool))),
        Value::Float(float) if !is_strict && float.fract() == 0.0 => {
            Int::from_f64_trunc(float).ok()
        }
        _ => None,
    }
}

fn float_from_value(ctx: &dyn Context, value: Value, is_strict: bool) -> Option<f64> {
    match value {
        Value::Bool(_) if is_strict => None,
        Value::Float(float) => Some(float),
        _ => ctx.heap().number(value)?.to_f64().ok(),
    }
}

/// Digits with blanks around, a sign, single underscores between them and `.0` after them.
fn int_from_text(text: &str) -> Option<Int> {
    let text = text.trim();
    let whole = match text.split_once('.') {
        Some((whole, fraction))
            if fraction.bytes().all(|byte| byte == b'0') && !whole.is_empty() =>
        {
            whole
        }
        Some(_) => return None,
        None => text,
    };
    if !whole.is_ascii() || whole.bytes().any(|byte| byte.is_ascii_whitespace()) {
        return None;
    }
    parse_int(whole).ok()
}

/// Parameters of `conint` and its kin.
#[derive(Default)]
struct Constraints {
    strict: bool,
    allow_inf_nan: Option<bool>,
    max_digits: Option<u64>,
    decimal_places: Option<u64>,
    bounds: Vec<Bound>,
}

fn constraints(
    ctx: &dyn Context,
    function: &str,
    parameters: Option<DictId>,
) -> Result<Constraints, Failure> {
    let heap = ctx.heap();
    let mut found = Constraints::default();
    let Some(parameters) = parameters else {
        return Ok(found);
    };
    for (&key, &wanted) in heap.entries(parameters) {
        let key = heap.text(key);
        let relation = match key {
            "gt" => Relation::Greater,
            "ge" => Relation::GreaterOrEqual,
            "lt" => Relation::Less,
            "le" => Relation::LessOrEqual,
            "multiple_of" => Relation::MultipleOf,
            "strict" => {
                found.strict = heap.truthy(wanted);
                continue;
            }
            "allow_inf_nan" if function != "conint" => {
                found.allow_inf_nan = Some(heap.truthy(wanted));
                continue;
            }
            "max_digits" | "decimal_places" if function == "condecimal" => {
                let Value::Int(count) = wanted else { return Err(bad_parameter(function, key)) };
                let count = Some(u64::try_from(count).unwrap_or(0));
                if key == "max_digits" {
                    found.max_digits = count
                } else {
                    found.decimal_places = count
                }
                continue;
            }
            unknown => {
                let message =
                    format!("{function}() got an unexpected keyword argument '{unknown}'");
                return Err(Failure::python("TypeError", message));
            }
        };
        let limit = match (heap.number(wanted), function) {
            (Some(number @ Number::Int(_)), _) => number,
            (Some(Number::Float(float)), "conint") if float.fract() == 0.0 => Number::Float(float),
            (Some(number), "confloat" | "condecimal") => number,
            _ => return Err(bad_parameter(function, key)),
        };
        found.bounds.push((relation, limit));
    }
    Ok(found)
}

fn bad_parameter(function: &str, key: &str) -> Failure {
    let (validator, kind) = match function {
        "conint" => ("int", "an integer"),
        "confloat" => ("float", "a float"),
        _ => ("decimal", "a decimal"),
    };
    let message = format!(
        "Error building \"{validator}\" validator:\n  ValueError: '{key}' must be coercible to {kind}"
    );
    Failure::python("pydantic_core._pydantic_core.SchemaError", message)
}

pub(super) fn conint(
    ctx: &dyn Context,
    value: Value,
    parameters: Option<DictId>,
) -> Result<bool, Failure> {
    let wanted = constraints(ctx, "conint", parameters)?;
    let int = match value {
        Value::Str(id) if !wanted.strict => int_from_text(ctx.heap().text(id)),
        other => int_from_value(ctx, other, wanted.strict),
    };
    let Some(int) = int.map(Number::Int) else {
        return Ok(false);
    };
    Ok(wanted.bounds.iter().all(|bound| keeps(&int, bound)))
}

pub(super) fn confloat(
    ctx: &dyn Context,
    value: Value,
    parameters: Option<DictId>,
) -> Result<bool, Failure> {
    let wanted = constraints(ctx, "confloat", parameters)?;
    let float = match value {
        Value::Str(id) if !wanted.strict => parse_float(ctx.heap().text(id)).ok(),
        other => float_from_value(ctx, other, wanted.strict),
    };
    let Some(float) = float else {
        return Ok(false);
    };
    let is_allowed = float.is_finite() || wanted.allow_inf_nan != Some(false);
    Ok(is_allowed && wanted.bounds.iter().all(|bound| keeps(&Number::Float(float), bound)))
}

/// Decimals are read as digits and an exponent; bounds are compared as floats.
pub(super) fn condecimal(
    ctx: &dyn Context,
    value: Value,
    parameters: Option<DictId>,
) -> Result<bool, Failure> {
    let wanted = constraints(ctx, "condecimal", parameters)?;
    let text = match value {
        Value::Str(id) if !wanted.strict => ctx.heap().text(id).trim().to_owned(),
        Value::Int(_) | Value::Big(_) | Value::Float(_) if !wanted.strict => ctx.repr(value),
        _ => return Ok(false),
    };
    let Ok(float) = parse_float(&text) else {
        return Ok(false);
    };
    if !float.is_finite() {
        return Ok(wanted.allow_inf_nan == Some(true));
    }
    let (digits, places) = decimal_size(&text);
    let fits = wanted.max_digits.is_none_or(|max| digits <= max)
        && wanted.decimal_places.is_none_or(|max| places <= max);
    Ok(fits && wanted.bounds.iter().all(|bound| keeps(&Number::Float(float), bound)))
}

/// Number of digits of a decimal, and how many of them stand after the point.
fn decimal_size(text: &str) -> (u64, u64) {
    let unsigned = text.trim_start_matches(['+', '-']);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let places = fraction.len() as i64 - exponent;
    let significant = format!("{whole}{fraction}");
    let significant = significant.trim_start_matches('0').len().max(1) as i64;
    let digits = if places < 0 { significant - places } else { significant.max(places) };
    (digits.unsigned_abs(), places.max(0).unsigned_abs())
}
