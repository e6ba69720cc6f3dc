//! Constrained numbers: `PositiveInt`, `conint(ge=…)` and their kin, from numbers and from texts.

use std::cmp::Ordering;

use orrery_python::{Int, Number, num_cmp, parse_float, parse_int};

use super::super::args::class_seen;
use super::super::{Failure, PluginContext};
use super::decimal::Decimal;
use crate::value::{DictId, Value};

/// A bound that a number must satisfy.
pub(super) type Bound = (Relation, Number);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    MultipleOf,
}

fn satisfies(number: &Number, (relation, limit): &Bound) -> bool {
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
        // Floats may miss a multiple by a small error, which is tolerated.
        Ok(Number::Float(_)) => {
            let number = number.to_f64().unwrap_or(f64::NAN);
            let of = of.to_f64().unwrap_or(f64::NAN);
            let distance = (number - (number / of).round() * of).abs();
            distance.is_nan() || distance <= 1e-9
        }
        Err(_) => false,
    }
}

/// The sign that a named type requires: `(is integer, relation to zero, is strict)`.
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

fn has_sign(number: Option<Number>, relation: Option<Relation>) -> bool {
    let zero = Number::Int(Int::Small(0));
    number
        .is_some_and(|number| relation.is_none_or(|relation| satisfies(&number, &(relation, zero))))
}

/// True if a text is acceptable to a named number type; `None` if there is no such type.
pub(super) fn accepts_text(name: &str, text: &str) -> Option<bool> {
    let (is_integer, relation, is_strict) = named(name)?;
    let number = match (is_strict, is_integer) {
        (true, _) => None,
        (false, true) => int_from_text(text).map(Number::Int),
        (false, false) => float_from_text(text).map(Number::Float),
    };
    Some(has_sign(number, relation))
}

/// The same for values other than texts: named number types, and addresses and times given as
/// numbers.
pub(super) fn accepts_number(ctx: &dyn PluginContext, name: &str, value: Value) -> Option<bool> {
    if let Some((is_integer, relation, is_strict)) = named(name) {
        let number = if is_integer {
            int_from_value(ctx, value, is_strict).map(Number::Int)
        } else {
            float_from_value(ctx, value, is_strict).map(Number::Float)
        };
        return Some(has_sign(number, relation));
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

/// Larger floats are not converted to integers.
const INT_FROM_FLOAT_MAX: f64 = 9_223_372_036_854_775_808.0;

/// An integer, or a float without a fraction unless the type is strict.
fn int_from_value(ctx: &dyn PluginContext, value: Value, is_strict: bool) -> Option<Int> {
    match value {
        Value::Int(int) => Some(Int::Small(int)),
        Value::Big(id) => Some(ctx.heap().big(id).clone()),
        Value::Bool(bool) if !is_strict => Some(Int::Small(i64::from(bool))),
        Value::Float(float)
            if !is_strict && float.fract() == 0.0 && float.abs() < INT_FROM_FLOAT_MAX =>
        {
            Int::from_f64_trunc(float).ok()
        }
        _ => None,
    }
}

fn float_from_value(ctx: &dyn PluginContext, value: Value, is_strict: bool) -> Option<f64> {
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
            if !whole.is_empty()
                && !fraction.is_empty()
                && fraction.bytes().all(|byte| byte == b'0') =>
        {
            whole
        }
        Some(_) => return None,
        None => text,
    };
    // Leading zeros end the validation of the following characters.
    let unsigned = whole.strip_prefix('+').unwrap_or(whole);
    if unsigned.starts_with('0') {
        let rest = unsigned.trim_start_matches(['0', '_']);
        return match rest.as_bytes().first() {
            None if unsigned.ends_with('0') => Some(Int::Small(0)),
            Some(b'-' | b'1'..=b'9') if !rest.ends_with('_') && !rest.contains("__") => {
                let digits = rest.replace('_', "");
                let is_padded = digits.starts_with("-0") && digits.len() > 2;
                if is_padded { None } else { Int::parse_decimal(&digits) }
            }
            _ => None,
        };
    }
    if !whole.is_ascii() || whole.bytes().any(|byte| byte.is_ascii_whitespace()) {
        return None;
    }
    parse_int(whole).ok()
}

/// A float with single underscores anywhere inside.
fn float_from_text(text: &str) -> Option<f64> {
    let trimmed = text.trim();
    if !trimmed.is_ascii() {
        return None;
    }
    if text.contains('_') {
        let is_misplaced = text.starts_with('_') || text.ends_with('_') || text.contains("__");
        let is_bare = trimmed.len() == text.len() && !is_misplaced;
        return if is_bare { parse_float(&text.replace('_', "")).ok() } else { None };
    }
    parse_float(trimmed).ok()
}

/// Parameters of `conint` and related types.
#[derive(Default)]
struct Constraints {
    strict: bool,
    allow_inf_nan: Option<bool>,
    max_digits: Option<u64>,
    decimal_places: Option<u64>,
    bounds: Vec<Bound>,
}

fn constraints(
    ctx: &dyn PluginContext,
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
                    found.max_digits = count;
                } else {
                    found.decimal_places = count;
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
            (None, "confloat") => {
                let class = class_seen(ctx, wanted);
                let problem = format!("TypeError: must be real number, not {class}");
                return Err(schema_error("float", &problem));
            }
            _ => return Err(bad_parameter(function, key)),
        };
        found.bounds.push((relation, limit));
    }
    Ok(found)
}

fn bad_parameter(function: &str, key: &str) -> Failure {
    let (validator, kind) =
        if function == "conint" { ("int", "an integer") } else { ("decimal", "a decimal") };
    schema_error(validator, &format!("ValueError: '{key}' must be coercible to {kind}"))
}

pub(super) fn schema_error(validator: &str, problem: &str) -> Failure {
    let message = format!("Error building \"{validator}\" validator:\n  {problem}");
    Failure::python("pydantic_core._pydantic_core.SchemaError", message)
}

pub(super) fn conint(
    ctx: &dyn PluginContext,
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
    Ok(wanted.bounds.iter().all(|bound| satisfies(&int, bound)))
}

pub(super) fn confloat(
    ctx: &dyn PluginContext,
    value: Value,
    parameters: Option<DictId>,
) -> Result<bool, Failure> {
    let wanted = constraints(ctx, "confloat", parameters)?;
    let float = match value {
        Value::Str(id) if !wanted.strict => float_from_text(ctx.heap().text(id)),
        other => float_from_value(ctx, other, wanted.strict),
    };
    let Some(float) = float else {
        return Ok(false);
    };
    let is_allowed = float.is_finite() || wanted.allow_inf_nan != Some(false);
    Ok(is_allowed && wanted.bounds.iter().all(|bound| satisfies(&Number::Float(float), bound)))
}

/// Validates decimals exactly.
pub(super) fn condecimal(
    ctx: &dyn PluginContext,
    value: Value,
    parameters: Option<DictId>,
) -> Result<bool, Failure> {
    let wanted = constraints(ctx, "condecimal", parameters)?;
    let text = match value {
        Value::Str(id) if !wanted.strict => ctx.heap().text(id).trim().replace('_', ""),
        Value::Int(_) | Value::Big(_) | Value::Float(_) if !wanted.strict => ctx.repr(value),
        _ => return Ok(false),
    };
    let Some(decimal) = Decimal::parse(&text) else {
        let is_special = parse_float(&text).is_ok_and(|float| !float.is_finite());
        return Ok(is_special && wanted.allow_inf_nan == Some(true));
    };
    let (digits, places) = decimal.size();
    let fits = wanted.max_digits.is_none_or(|max| digits <= max)
        && wanted.decimal_places.is_none_or(|max| places <= max);
    Ok(fits && wanted.bounds.iter().all(|bound| decimal.satisfies(bound)))
}
