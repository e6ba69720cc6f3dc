//! Dates, times and constrained texts.

use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::HashMap;
use orrery_python::{Number, PyRegex, is_space};
use speedate::{Date, DateConfig, DateTime, DateTimeConfig, Duration, Time};

use super::super::{Context, Failure};
use crate::value::{DictId, Value};

/// A date; also a date with the time midnight, and seconds since the epoch that are one.
pub(super) fn is_date(text: &str) -> bool {
    if let Ok(date) = Date::parse_str(text) {
        return date.year > 0;
    }
    DateTime::parse_str(text).is_ok_and(|at| {
        let time = &at.time;
        at.date.year > 0 && (time.hour, time.minute, time.second, time.microsecond) == (0, 0, 0, 0)
    })
}

pub(super) fn is_time(text: &str) -> bool {
    Time::parse_str(text).is_ok()
}

/// A date with a time, a date alone, or seconds since the epoch.
pub(super) fn is_datetime(text: &str) -> bool {
    DateTime::parse_str(text)
        .map(|at| at.date.year > 0)
        .unwrap_or_else(|_| Date::parse_str_rfc3339(text).is_ok_and(|date| date.year > 0))
}

pub(super) fn is_timedelta(text: &str) -> bool {
    Duration::parse_str(text).is_ok()
}

/// `constr`: a text with a pattern, a length, and blanks stripped if asked for.
pub(super) fn constr(
    ctx: &dyn Context,
    value: Value,
    parameters: Option<DictId>,
) -> Result<bool, Failure> {
    let Value::Str(id) = value else {
        return Ok(false);
    };
    let heap = ctx.heap();
    let Some(parameters) = parameters else {
        return Ok(true);
    };
    let mut text = heap.text(id);
    let (mut pattern, mut length) = (None, (0, usize::MAX));
    for (&key, &wanted) in heap.entries(parameters) {
        match (heap.text(key), wanted) {
            ("regex", Value::Str(regex)) => pattern = Some(heap.text(regex)),
            ("regex", _) => return Ok(false),
            ("strip_whitespace", flag) if heap.truthy(flag) => {
                text = text.trim_matches(is_space);
            }
            ("min_length", Value::Int(min)) => length.0 = usize::try_from(min).unwrap_or(0),
            ("max_length", Value::Int(max)) => length.1 = usize::try_from(max).unwrap_or(0),
            (
                "strict" | "strip_whitespace" | "to_upper" | "to_lower" | "coerce_numbers_to_str",
                _,
            )
            | ("min_length" | "max_length" | "pattern", Value::Null) => {}
            (unknown, _) => {
                let message = format!("constr() got an unexpected keyword argument '{unknown}'");
                return Err(Failure::python("TypeError", message));
            }
        }
    }
    if length != (0, usize::MAX) {
        let count = text.chars().count();
        if count < length.0 || count > length.1 {
            return Ok(false);
        }
    }
    pattern.map_or(Ok(true), |pattern| matches(pattern, text))
}

/// Python's `re.match`. The patterns of `std` itself are answered without a regular expression.
fn matches(pattern: &str, text: &str) -> Result<bool, Failure> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    Ok(match pattern {
        "^[a-zA-Z0-9]*$" => line.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        "^[ -~]*$" => line.bytes().all(|byte| matches!(byte, b' '..=b'~')),
        "^[!-~]*$" => line.bytes().all(|byte| matches!(byte, b'!'..=b'~')),
        other => compiled(other)?.is_match_at_start(text)?,
    })
}

/// Patterns come from typedefs, so there are few of them and each is used often.
fn compiled(pattern: &str) -> Result<Rc<PyRegex>, Failure> {
    thread_local! {
        static COMPILED: RefCell<HashMap<String, Rc<PyRegex>>> = RefCell::default();
    }
    COMPILED.with_borrow_mut(|compiled| {
        if let Some(found) = compiled.get(pattern) {
            return Ok(found.clone());
        }
        let regex = Rc::new(PyRegex::new(pattern)?);
        compiled.insert(pattern.to_owned(), regex.clone());
        Ok(regex)
    })
}

/// Whether a number is acceptable as a date, a time or a duration in seconds.
pub(super) fn is_moment(name: &str, value: Value, number: &Number) -> bool {
    if let (Value::Bool(_), false) = (value, name == "datetime.timedelta") {
        return false;
    }
    let Ok(seconds) = number.to_f64() else {
        return false;
    };
    let whole = (seconds.fract() == 0.0).then_some(seconds as i64);
    match name {
        "datetime.date" => whole.is_some_and(|whole| {
            let date = Date::from_timestamp(whole, true, &DateConfig::default());
            date.is_ok_and(|date| date.year > 0)
        }),
        "datetime.time" => (0.0..86400.0).contains(&seconds),
        "datetime.datetime" => match whole {
            Some(whole) => DateTime::from_timestamp(whole, 0).is_ok_and(|at| at.date.year > 0),
            None => DateTime::from_float_with_config(seconds, &DateTimeConfig::default()).is_ok(),
        },
        _ => seconds.abs() / 86400.0 <= 999_999_999.0,
    }
}
