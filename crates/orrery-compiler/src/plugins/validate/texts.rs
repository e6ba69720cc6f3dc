//! Dates, times and constrained texts.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::HashMap;
use orrery_python::{Number, PyRegex, is_space, str_lower, str_upper};
use speedate::{
    Date, DateTime, DateTimeConfig, Duration, MicrosecondsPrecisionOverflowBehavior, Time,
    TimeConfig,
};

use super::super::args::class_seen;
use super::super::{Failure, PluginContext};
use super::numbers::schema_error;
use crate::value::{DictId, Value};

/// Digits after the sixth of a second's fraction are cut off, not refused.
fn time_config() -> TimeConfig {
    TimeConfig::builder()
        .microseconds_precision_overflow_behavior(MicrosecondsPrecisionOverflowBehavior::Truncate)
        .build()
}

fn parse_datetime(text: &str) -> Option<DateTime> {
    let config = DateTimeConfig::builder().time_config(time_config()).build();
    DateTime::parse_bytes_with_config(text.as_bytes(), &config).ok().filter(|at| at.date.year > 0)
}

fn is_midnight(time: &Time) -> bool {
    (time.hour, time.minute, time.second, time.microsecond) == (0, 0, 0, 0)
}

/// A date; also a date with the time midnight, and seconds since the epoch at midnight.
pub(super) fn is_date(text: &str) -> bool {
    match Date::parse_str(text) {
        Ok(date) => date.year > 0,
        Err(_) => parse_datetime(text).is_some_and(|at| is_midnight(&at.time)),
    }
}

pub(super) fn is_time(text: &str) -> bool {
    Time::parse_bytes_with_config(text.as_bytes(), &time_config()).is_ok()
}

/// A date with a time, a date alone, or seconds since the epoch.
pub(super) fn is_datetime(text: &str) -> bool {
    parse_datetime(text).is_some() || Date::parse_str_rfc3339(text).is_ok_and(|date| date.year > 0)
}

pub(super) fn is_timedelta(text: &str) -> bool {
    Duration::parse_bytes_with_config(text.as_bytes(), &time_config()).is_ok()
}

/// The prefix of the URN form must be lower case.
pub(super) fn is_uuid(text: &str) -> bool {
    let is_urn = text.get(..9).is_some_and(|prefix| prefix.eq_ignore_ascii_case("urn:uuid:"));
    (!is_urn || text.starts_with("urn:uuid:")) && uuid::Uuid::parse_str(text).is_ok()
}

/// `constr`: a text with a pattern, a length, and optional stripping of blanks.
pub(super) fn constr(
    ctx: &dyn PluginContext,
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
    let mut text = Cow::Borrowed(heap.text(id));
    let (mut wanted, mut length) = (ConstrOptions::default(), (0, usize::MAX));
    for (&key, &value) in heap.entries(parameters) {
        match (heap.text(key), value) {
            ("regex", Value::Str(regex)) => wanted.regex = Some(heap.text(regex)),
            ("regex", _) => return Ok(false),
            ("pattern", Value::Str(pattern)) => wanted.pattern = Some(heap.text(pattern)),
            ("strip_whitespace", flag) => wanted.strip = heap.truthy(flag),
            ("to_lower", flag) => wanted.lower = heap.truthy(flag),
            ("to_upper", flag) => wanted.upper = heap.truthy(flag),
            ("min_length", Value::Int(min)) => length.0 = usize::try_from(min).unwrap_or(0),
            ("max_length", Value::Int(max)) => length.1 = usize::try_from(max).unwrap_or(0),
            ("strict" | "coerce_numbers_to_str", _)
            | ("min_length" | "max_length" | "pattern", Value::Null) => {}
            ("min_length" | "max_length" | "pattern", other) => {
                let problem = format!(
                    "TypeError: '{}' object cannot be interpreted as an integer",
                    class_seen(ctx, other)
                );
                return Err(schema_error("str", &problem));
            }
            (unknown, _) => {
                let message = format!("constr() got an unexpected keyword argument '{unknown}'");
                return Err(Failure::python("TypeError", message));
            }
        }
    }
    if wanted.strip {
        text = Cow::Owned(text.trim_matches(is_space).to_owned());
    }
    if length != (0, usize::MAX) {
        let count = text.chars().count();
        if count < length.0 || count > length.1 {
            return Ok(false);
        }
    }
    if wanted.lower {
        text = Cow::Owned(str_lower(&text));
    } else if wanted.upper {
        text = Cow::Owned(str_upper(&text));
    }
    if let Some(pattern) = wanted.pattern {
        // Only here, the engine is Rust's own, and a match may be anywhere.
        let regex = regex::Regex::new(pattern)
            .map_err(|error| schema_error("str", &format!("SchemaError: {error}")))?;
        if !regex.is_match(&text) {
            return Ok(false);
        }
    }
    wanted.regex.map_or(Ok(true), |pattern| matches(pattern, &text))
}

/// Parameters of `constr` besides the length.
#[derive(Default)]
struct ConstrOptions<'a> {
    regex: Option<&'a str>,
    pattern: Option<&'a str>,
    strip: bool,
    lower: bool,
    upper: bool,
}

/// Python's `re.match`. The patterns of `std` itself are matched without a regular expression.
fn matches(pattern: &str, text: &str) -> Result<bool, Failure> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    Ok(match pattern {
        "^[a-zA-Z0-9]*$" => line.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        "^[ -~]*$" => line.bytes().all(|byte| matches!(byte, b' '..=b'~')),
        "^[!-~]*$" => line.bytes().all(|byte| matches!(byte, b'!'..=b'~')),
        other => compile_pattern(other)?.is_match_at_start(text)?,
    })
}

/// Patterns come from typedefs, so there are few of them and each is used often.
fn compile_pattern(pattern: &str) -> Result<Rc<PyRegex>, Failure> {
    thread_local! {
        static COMPILED: RefCell<HashMap<String, Rc<PyRegex>>> = RefCell::default();
    }
    COMPILED.with_borrow_mut(|compile_pattern| {
        if let Some(found) = compile_pattern.get(pattern) {
            return Ok(found.clone());
        }
        let regex = PyRegex::new(pattern)
            .map_err(|error| Failure::python("re.PatternError", error.message))?;
        let regex = Rc::new(regex);
        compile_pattern.insert(pattern.to_owned(), regex.clone());
        Ok(regex)
    })
}

/// True if a number is acceptable as a date, a time or a duration in seconds.
pub(super) fn is_moment(name: &str, value: Value, number: &Number) -> bool {
    if let (Value::Bool(_), false) = (value, name == "datetime.timedelta") {
        return false;
    }
    let Ok(seconds) = number.to_f64() else {
        return false;
    };
    let whole = (seconds.fract() == 0.0).then_some(seconds as i64);
    let datetime = || match whole {
        Some(whole) => DateTime::from_timestamp(whole, 0).ok(),
        None => DateTime::from_float_with_config(seconds, &DateTimeConfig::default()).ok(),
    };
    match name {
        _ if !seconds.is_finite() => false,
        "datetime.date" => datetime().is_some_and(|at| at.date.year > 0 && is_midnight(&at.time)),
        "datetime.time" => (0.0..86400.0).contains(&seconds),
        "datetime.datetime" => datetime().is_some_and(|at| at.date.year > 0),
        _ => seconds.abs() / 86400.0 <= 999_999_999.0,
    }
}
