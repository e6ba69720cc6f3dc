//! Delay before the next compile, in which requests are merged.

use std::time::Duration;

use orrery_model::Timestamp;

/// Returns the remaining delay of the compile requested at `requested`.
///
/// If a compile ended after the request, the request has been waiting for that compile: the delay
/// counts from the request. Otherwise it counts from the end of the last compile.
pub(crate) fn wait(
    backoff: Duration,
    requested: Timestamp,
    last_completed: Option<Timestamp>,
    now: Timestamp,
) -> Duration {
    let Some(last) = last_completed else { return Duration::ZERO };
    let from = if last > requested { requested } else { last };
    let passed = u64::try_from(now.0.saturating_sub(from.0)).unwrap_or(0);
    backoff.saturating_sub(Duration::from_micros(passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(requested: i64, last: Option<i64>, now: i64) -> u64 {
        let at = |seconds: i64| Timestamp(seconds * 1_000_000);
        wait(Duration::from_secs(10), at(requested), last.map(at), at(now)).as_secs()
    }

    #[test]
    fn the_time_is_counted_from_the_request_or_from_the_last_end() {
        // The last ended before the request, within the time and beyond it.
        assert_eq!(after(104, Some(100), 106), 4);
        assert_eq!(after(150, Some(100), 151), 0);
        // The last ended after the request, within the time and beyond it.
        assert_eq!(after(100, Some(103), 106), 4);
        assert_eq!(after(100, Some(130), 131), 0);
        // No earlier compile; a clock that was set back must not extend the delay.
        assert_eq!(after(100, None, 100), 0);
        assert_eq!(after(100, Some(100), 50), 10);
    }
}
