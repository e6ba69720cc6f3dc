//! Timestamps of the whole engine: microseconds since the epoch, in UTC.
//!
//! Pure code never reads a clock; it receives a `Timestamp`.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

pub use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub fn from_system(time: SystemTime) -> Self {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp(micros(since)),
            Err(before) => Timestamp(-micros(before.duration())),
        }
    }

    /// Returns the time since `earlier`; zero if that is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_add(micros))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, duration: Duration) -> Timestamp {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_sub(micros))
    }
}

/// RFC 3339 with microseconds: `2026-11-16T09:30:00.000000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil_from_days(days);
        let (hour, minute) = (second / 3600, second / 60 % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{micros:06}Z",
            second % 60
        )
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses the format of `Display`, with any number of fractional digits and `Z` for UTC.
impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        parse(text).ok_or_else(|| InvalidTimestamp(text.to_owned()))
    }
}

/// Error of a text that is not an RFC 3339 time in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTimestamp(String);

impl fmt::Display for InvalidTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a time such as 2026-11-16T09:30:00Z", self.0)
    }
}

impl std::error::Error for InvalidTimestamp {}

fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, separator: char| -> Option<[i64; 3]> {
        let mut parts = text.split(separator).map(|part| {
            let digits = part.len() >= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<i64>().ok().filter(|_| digits)
        });
        let found = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(found)
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let valid = (0..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let days = days_from_civil(year, month, day);
    // The round trip rejects days that do not exist.
    if !valid || civil_from_days(days) != (year, month, day) {
        return None;
    }
    let micros: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Timestamp(seconds * 1_000_000 + micros))
}

/// Inverse of [`civil_from_days`].
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Converts days since the epoch to year, month and day. Years start on the first of March, so that
/// the leap day is the last day of a year, in eras of 400 years, after which the calendar repeats.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_dates() {
        let shown = |seconds: i64| Timestamp(seconds * 1_000_000).to_string();
        assert_eq!(shown(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(shown(951_782_399), "2000-02-28T23:59:59.000000Z");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00.000000Z");
        assert_eq!(shown(4_107_542_400), "2100-03-01T00:00:00.000000Z");
        assert_eq!(Timestamp(-1).to_string(), "1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn printed_times_can_be_parsed() {
        for micros in [0, -1, 951_782_400_000_000, 4_107_542_399_999_999, 1_794_821_400_123_456] {
            assert_eq!(Timestamp(micros).to_string().parse(), Ok(Timestamp(micros)));
        }
        assert_eq!("1970-01-01T00:00:01.5Z".parse(), Ok(Timestamp(1_500_000)));
        assert_eq!("1970-01-01T00:00:01Z".parse(), Ok(Timestamp(1_000_000)));
        for bad in [
            "",
            "Z",
            "2026-02-30T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01 00:00:00Z",
            "2026-1-1T0:0:0Z",
            "2026-01-01T00:00:00+01:00",
        ] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
    }
}
