//! When the next compile may start: not before a while has passed, so that requests can gather.

use std::time::Duration;

use orrery_model::Timestamp;

/// How long the compile that was requested at `requested` still has to wait.
///
/// If a compile ended after the request was made, the request has been waiting for that one: the time is counted from
/// the request. Otherwise it is counted from the end of the last compile.
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
        // There is no last one; a clock that went back is no reason to wait for longer than the whole.
        assert_eq!(after(100, None, 100), 0);
        assert_eq!(after(100, Some(100), 50), 10);
    }
}
