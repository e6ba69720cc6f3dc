//! Cron expressions: `[second] minute hour day month weekday [year]`, in UTC.
//!
//! Five fields are minute to weekday, six are minute to year, seven are all. A day must match both
//! day and weekday. Besides lists, ranges and steps the syntax has names of months and weekdays,
//! `?` for `*`, `L` for the last day of the month and `L5` for its last Friday; Sunday is 0 or 7.
//! This is not a library because libraries differ in exactly these rules and include a calendar
//! with time zones (`docs/decisions/0016-libraries-and-own-code.md`).

use std::fmt;
use std::str::FromStr;

use orrery_model::Timestamp;

/// A recurring schedule, such as "every day at three".
#[derive(Clone, PartialEq, Eq)]
pub struct Cron {
    text: Box<str>,
    /// Bit set of the matching values.
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// True if the last day of the month matches.
    last_day: bool,
    /// Bit set of weekdays that match only as the last of their kind in the month.
    last_weekdays: u64,
    /// `None`: every year.
    years: Option<Box<[u32]>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCron {
    #[error("{0:?} is neither a number of seconds nor a cron expression: expected 5 to 7 fields")]
    FieldCount(String),
    #[error("{part:?} is not a {field} of a cron expression: expected {expected}")]
    Field { field: &'static str, part: String, expected: String },
}

/// Limit of the search, so that it ends for expressions that never match.
const YEAR_MAX: u32 = 2199;
const YEAR_MIN: u32 = 1970;
/// Years to search: dates and weekdays repeat within this span, also across a century.
const YEARS_AHEAD: u32 = 40;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl FromStr for Cron {
    type Err = InvalidCron;

    fn from_str(text: &str) -> Result<Self, InvalidCron> {
        let lower = text.trim().to_lowercase();
        let expanded = match lower.as_str() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = expanded.split_whitespace().collect();
        let (second, fields, year) = match fields.as_slice() {
            fields @ [_, _, _, _, _] => ("0", fields, "*"),
            [fields @ .., year] if fields.len() == 5 => ("0", fields, *year),
            [second, fields @ .., year] if fields.len() == 5 => (*second, fields, *year),
            _ => return Err(InvalidCron::FieldCount(text.to_owned())),
        };
        let plain = |name, part, min, max| Field { name, min, max, names: &[] }.bits(part);
        let (mut last_day, mut last_weekdays) = (false, 0);
        let day_field = Field { name: "day", min: 1, max: 31, names: &[] };
        let days = each(fields[2], |part| match part {
            "l" => {
                last_day = true;
                Ok(0)
            }
            part => day_field.part(part),
        })?;
        let weekday_field = Field { name: "weekday", min: 0, max: 7, names: &WEEKDAYS };
        let weekdays = each(fields[4], |part| match part.strip_prefix('l') {
            Some(weekday) => {
                last_weekdays |= weekday_field.part(weekday)?;
                Ok(0)
            }
            None => weekday_field.part(part),
        })?;
        // Sunday has two numbers.
        let fold_sunday = |bits: u64| (bits & 0x7f) | (bits >> 7);
        Ok(Cron {
            text: text.trim().into(),
            seconds: plain("second", second, 0, 59)?,
            minutes: plain("minute", fields[0], 0, 59)?,
            hours: plain("hour", fields[1], 0, 23)?,
            days,
            months: Field { name: "month", min: 1, max: 12, names: &MONTHS }.bits(fields[3])?,
            weekdays: fold_sunday(weekdays),
            last_day,
            last_weekdays: fold_sunday(last_weekdays),
            years: years(year)?,
        })
    }
}

/// Joins the bits of a comma-separated list.
fn each(
    list: &str,
    mut part: impl FnMut(&str) -> Result<u64, InvalidCron>,
) -> Result<u64, InvalidCron> {
    list.split(',').try_fold(0, |bits, text| Ok(bits | part(text)?))
}

fn years(list: &str) -> Result<Option<Box<[u32]>>, InvalidCron> {
    if matches!(list, "*" | "?") {
        return Ok(None);
    }
    let field = Field { name: "year", min: YEAR_MIN, max: YEAR_MAX, names: &[] };
    let mut years = Vec::new();
    for part in list.split(',') {
        let (start, end, step) = field.range(part)?;
        years.extend((start..=end).step_by(step as usize));
    }
    years.sort_unstable();
    years.dedup();
    Ok(Some(years.into()))
}

/// One field of an expression.
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

impl Field {
    fn bits(&self, list: &str) -> Result<u64, InvalidCron> {
        each(list, |part| self.part(part))
    }

    fn part(&self, part: &str) -> Result<u64, InvalidCron> {
        let (start, end, step) = self.range(part)?;
        Ok((start..=end).step_by(step as usize).fold(0, |bits, value| bits | 1 << value))
    }

    /// `a`, `a-b`, `*`, each with an optional `/step`; `a/step` continues to the maximum.
    fn range(&self, part: &str) -> Result<(u32, u32, u32), InvalidCron> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let (start, end) = match range.split_once('-') {
            _ if matches!(range, "*" | "?") => (self.min, self.max),
            Some((start, end)) => {
                let (start, end) = (self.value(start, part)?, self.value(end, part)?);
                // A week that ends on Sunday ends with 7.
                (start, if self.has_two_sundays() && end == 0 { self.max } else { end })
            }
            None => {
                let start = self.value(range, part)?;
                // Steps count each day of the week once.
                let last = self.max - u32::from(self.has_two_sundays());
                (start, if step.is_some() { last } else { start })
            }
        };
        let step = step.map_or(Some(1), digits).filter(|step| *step > 0 && start <= end);
        step.map(|step| (start, end, step)).ok_or_else(|| self.invalid(part))
    }

    /// True for weekdays, where 0 and 7 are the same day.
    fn has_two_sundays(&self) -> bool {
        (self.min, self.max) == (0, 7)
    }

    fn value(&self, text: &str, part: &str) -> Result<u32, InvalidCron> {
        let named = self.names.iter().position(|name| *name == text);
        let named = named.and_then(|at| u32::try_from(at).ok()).map(|at| {
            // Months count from one, weekdays from zero.
            at + self.min
        });
        named
            .or_else(|| digits(text))
            .filter(|value| (self.min..=self.max).contains(value))
            .ok_or_else(|| self.invalid(part))
    }

    fn invalid(&self, part: &str) -> InvalidCron {
        let expected = format!("numbers from {} to {}, `*`, `a-b` or `a/step`", self.min, self.max);
        InvalidCron::Field { field: self.name, part: part.to_owned(), expected }
    }
}

/// Parses digits only: `parse` alone accepts a sign.
fn digits(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

impl Cron {
    /// Returns the first matching time after `now`; `None` if none is within the search limit.
    pub fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        let second = now.0.div_euclid(1_000_000) + 1;
        let mut date = Date::from_days(second.div_euclid(86_400));
        let mut from = u32::try_from(second.rem_euclid(86_400)).ok()?;
        let last_year = (date.year + YEARS_AHEAD).min(YEAR_MAX);
        while date.year <= last_year {
            if !self.matches_year(date.year) {
                date = Date { year: date.year + 1, month: 1, day: 1 };
                from = 0;
            } else if !has(self.months, date.month) {
                date = date.next_month();
                from = 0;
            } else {
                let time = if self.matches_day(date) { self.time_from(from) } else { None };
                if let Some(time) = time {
                    return Some(Timestamp((date.days() * 86_400 + i64::from(time)) * 1_000_000));
                }
                date = date.next_day();
                from = 0;
            }
        }
        None
    }

    fn matches_year(&self, year: u32) -> bool {
        self.years.as_ref().is_none_or(|years| years.binary_search(&year).is_ok())
    }

    fn matches_day(&self, date: Date) -> bool {
        let length = days_of_month(date.year, date.month);
        let weekday = u32::try_from((date.days() + 4).rem_euclid(7)).unwrap_or(0);
        let day = has(self.days, date.day) || (self.last_day && date.day == length);
        let last_of_kind = date.day + 7 > length && has(self.last_weekdays, weekday);
        day && (has(self.weekdays, weekday) || last_of_kind)
    }

    /// Returns the first matching second of a day at or after `from`.
    fn time_from(&self, from: u32) -> Option<u32> {
        let (hour, minute, second) = (from / 3600, from / 60 % 60, from % 60);
        let (first_minute, first_second) = (lowest(self.minutes, 0)?, lowest(self.seconds, 0)?);
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = lowest(self.seconds, second)
            {
                return Some(hour * 3600 + minute * 60 + second);
            }
            if let Some(minute) = lowest(self.minutes, minute + 1) {
                return Some(hour * 3600 + minute * 60 + first_second);
            }
        }
        let hour = lowest(self.hours, hour + 1)?;
        Some(hour * 3600 + first_minute * 60 + first_second)
    }
}

fn has(bits: u64, value: u32) -> bool {
    bits >> value & 1 == 1
}

/// Returns the lowest value at or above `from`.
fn lowest(bits: u64, from: u32) -> Option<u32> {
    let rest = bits.checked_shr(from)? << from;
    (rest != 0).then(|| rest.trailing_zeros())
}

/// A calendar date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Date {
    year: u32,
    month: u32,
    day: u32,
}

impl Date {
    /// Converts days since the epoch. Negative values become the epoch.
    fn from_days(days: i64) -> Date {
        let mut rest = u32::try_from(days).unwrap_or(0);
        let mut year = YEAR_MIN;
        while year <= YEAR_MAX && rest >= 365 + u32::from(is_leap(year)) {
            rest -= 365 + u32::from(is_leap(year));
            year += 1;
        }
        let mut month = 1;
        while month < 12 && rest >= days_of_month(year, month) {
            rest -= days_of_month(year, month);
            month += 1;
        }
        Date { year, month, day: rest + 1 }
    }

    fn days(self) -> i64 {
        let before = self.year - 1;
        let leap_days = |year: u32| year / 4 - year / 100 + year / 400;
        let years = (self.year - YEAR_MIN) * 365 + leap_days(before) - leap_days(YEAR_MIN - 1);
        let months: u32 = (1..self.month).map(|month| days_of_month(self.year, month)).sum();
        i64::from(years + months + self.day - 1)
    }

    fn next_month(self) -> Date {
        match self.month {
            12 => Date { year: self.year + 1, month: 1, day: 1 },
            month => Date { month: month + 1, day: 1, ..self },
        }
    }

    fn next_day(self) -> Date {
        if self.day < days_of_month(self.year, self.month) {
            Date { day: self.day + 1, ..self }
        } else {
            self.next_month()
        }
    }
}

fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_month(year: u32, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({:?})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-02-27 10:17:33 UTC, a Friday.
    const START: Timestamp = Timestamp(1_772_187_453_000_000);

    fn next_three(expression: &str) -> Vec<String> {
        let cron: Cron = expression.parse().unwrap();
        let mut times = Vec::new();
        let mut now = START;
        while let Some(next) = cron.next_after(now) {
            times.push(next.to_string()[..19].to_owned());
            now = next;
            if times.len() == 3 {
                break;
            }
        }
        times
    }

    /// The expected times are those of the cron library that the reference orchestrator uses.
    #[test]
    fn times_are_those_of_the_reference() {
        for (expression, expected) in [
            ("*/15 * * * *", "2026-02-27T10:30:00 2026-02-27T10:45:00 2026-02-27T11:00:00"),
            ("0 0 L * *", "2026-02-28T00:00:00 2026-03-31T00:00:00 2026-04-30T00:00:00"),
            ("0 0 * * L5", "2026-03-27T00:00:00 2026-04-24T00:00:00 2026-05-29T00:00:00"),
            ("0 0 13 * 5", "2026-03-13T00:00:00 2026-11-13T00:00:00 2027-08-13T00:00:00"),
            ("0 0 * * 7", "2026-03-01T00:00:00 2026-03-08T00:00:00 2026-03-15T00:00:00"),
            ("0 0 ? * mon", "2026-03-02T00:00:00 2026-03-09T00:00:00 2026-03-16T00:00:00"),
            ("5/20 * * * *", "2026-02-27T10:25:00 2026-02-27T10:45:00 2026-02-27T11:05:00"),
            ("0 0 1 jan *", "2027-01-01T00:00:00 2028-01-01T00:00:00 2029-01-01T00:00:00"),
            ("0 0 1 1 * 2027", "2027-01-01T00:00:00"),
            ("30 0 0 1 1 * 2028", "2028-01-01T00:00:30"),
            ("@daily", "2026-02-28T00:00:00 2026-03-01T00:00:00 2026-03-02T00:00:00"),
            ("0 0 31 2 *", ""),
            ("0 0 29 2 *", "2028-02-29T00:00:00 2032-02-29T00:00:00 2036-02-29T00:00:00"),
            ("*/7 3-9/2 * * *", "2026-02-28T03:00:00 2026-02-28T03:07:00 2026-02-28T03:14:00"),
            ("0 0 5 * 1,3", "2026-08-05T00:00:00 2026-10-05T00:00:00 2027-04-05T00:00:00"),
            ("* * * * * * *", "2026-02-27T10:17:34 2026-02-27T10:17:35 2026-02-27T10:17:36"),
            ("0 0 * * sun-tue", "2026-03-01T00:00:00 2026-03-02T00:00:00 2026-03-03T00:00:00"),
            ("0 0 * * fri-sun", "2026-02-28T00:00:00 2026-03-01T00:00:00 2026-03-06T00:00:00"),
            ("0 0 * * 5-0", "2026-02-28T00:00:00 2026-03-01T00:00:00 2026-03-06T00:00:00"),
            ("0 0 * * 3/4", "2026-03-04T00:00:00 2026-03-11T00:00:00 2026-03-18T00:00:00"),
            ("0 0 1 * 0-0", "2026-03-01T00:00:00 2026-04-01T00:00:00 2026-05-01T00:00:00"),
            ("0 0 1-7 * mon", "2026-03-02T00:00:00 2026-04-06T00:00:00 2026-05-04T00:00:00"),
            ("0 0 1 1 * 2020", ""),
            ("0-30/45 * * * *", "2026-02-27T11:00:00 2026-02-27T12:00:00 2026-02-27T13:00:00"),
            ("0 0 * feb-dec/5 *", "2026-02-28T00:00:00 2026-07-01T00:00:00 2026-07-02T00:00:00"),
        ] {
            assert_eq!(next_three(expression).join(" "), expected, "{expression}");
        }
    }

    #[test]
    fn expressions_that_the_reference_rejects_are_rejected() {
        for expression in [
            "0 22-2 * * *",
            "0 0 * * fri-mon",
            "0 0 * * 5L",
            "0 0 * * 7/1",
            "60 * * * *",
            "10-5 * * * *",
            "@reboot",
            "* * * *",
            "0 0 -1 * *",
            "H * * * *",
            "*/0 * * * *",
            "0 0 L-2 * *",
            "",
            "+5 * * * *",
        ] {
            assert!(expression.parse::<Cron>().is_err(), "{expression}");
        }
    }

    #[test]
    fn dates_and_days_are_inverse() {
        for days in (0..80_000).step_by(13) {
            assert_eq!(Date::from_days(days).days(), days);
        }
        assert_eq!(Date::from_days(20_511), Date { year: 2026, month: 2, day: 27 });
    }
}
