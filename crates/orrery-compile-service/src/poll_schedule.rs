//! Poll times of branches. Pure: the same branch at the same time gives the same result.

use std::time::Duration;

use orrery_model::Timestamp;
use orrery_store::EnvironmentKey;
use sha2::{Digest as _, Sha256};

use crate::recorder::later;

/// Due time of a branch that is polled only on demand.
pub(crate) const NEVER: Timestamp = Timestamp(i64::MAX);
/// Maximum backoff of an unreadable repository.
const BACKOFF_MAX: Duration = Duration::from_secs(1800);
/// Maximum backoff of a commit that cannot be fetched.
const FETCH_BACKOFF_MAX: Duration = Duration::from_secs(3600);
const FETCH_BACKOFF_MIN: Duration = Duration::from_secs(60);
/// Failures before a notification: brief network outages are not reported.
pub(crate) const NOTIFY_AFTER: u32 = 3;

/// Deterministic jitter from 0 to 1, by environment and time.
fn jitter(environment: EnvironmentKey, now: Timestamp) -> f64 {
    let bytes = [environment.number().to_le_bytes(), now.0.to_le_bytes()].concat();
    let digest = Sha256::digest(&bytes);
    let (number, _) = digest.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    f64::from(u32::from_le_bytes(*number)) / f64::from(u32::MAX)
}

/// First poll of a branch: after half of the interval to all of it.
pub(crate) fn first_poll(
    interval: Option<Duration>,
    environment: EnvironmentKey,
    now: Timestamp,
) -> Timestamp {
    let Some(interval) = interval else { return NEVER };
    later(now, interval.mul_f64(0.5 + 0.5 * jitter(environment, now)))
}

/// Next poll after a success: after the interval, plus or minus a tenth.
pub(crate) fn next_poll(
    interval: Option<Duration>,
    environment: EnvironmentKey,
    now: Timestamp,
) -> Timestamp {
    let Some(interval) = interval else { return NEVER };
    later(now, interval.mul_f64(0.9 + 0.2 * jitter(environment, now)))
}

/// Next poll after consecutive failures.
pub(crate) fn after_failures(
    interval: Option<Duration>,
    failures: u32,
    environment: EnvironmentKey,
    now: Timestamp,
) -> Timestamp {
    // A failed poll on demand is retried even if polling is off.
    let interval = interval.unwrap_or(FETCH_BACKOFF_MIN);
    let longer = interval.saturating_mul(1 << failures.saturating_sub(1).min(16));
    next_poll(Some(longer.min(BACKOFF_MAX.max(interval))), environment, now)
}

/// Next attempt for a commit that compiles could not fetch.
pub(crate) fn after_unfetched(
    unfetched: u32,
    environment: EnvironmentKey,
    now: Timestamp,
) -> Timestamp {
    let pause = FETCH_BACKOFF_MIN.saturating_mul(1 << unfetched.min(16));
    next_poll(Some(pause.min(FETCH_BACKOFF_MAX)), environment, now)
}

/// True if a due time is later than the interval explains: the interval was shortened, or switched
/// on or off.
pub(crate) fn is_outdated(interval: Option<Duration>, due: Timestamp, now: Timestamp) -> bool {
    match interval {
        None => due != NEVER && due > now,
        Some(interval) => due > later(now, interval.mul_f64(1.2)),
    }
}

#[cfg(test)]
mod tests {
    use orrery_store::Store;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000);
    const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

    fn environments(count: usize) -> Vec<EnvironmentKey> {
        let store = Store::in_memory().unwrap();
        (0..count)
            .map(|at| store.environments().create("p", &at.to_string()).unwrap().key)
            .collect()
    }

    fn seconds(at: Timestamp) -> i64 {
        (at.0 - NOW.0) / 1_000_000
    }

    #[test]
    fn a_thousand_branches_are_not_due_at_once() {
        let mut by_second = std::collections::BTreeMap::new();
        for one in environments(1000) {
            let due = first_poll(MINUTE, one, NOW);
            assert!((30..=60).contains(&seconds(due)), "{due:?}");
            *by_second.entry(seconds(due)).or_insert(0) += 1;
        }
        let most = by_second.values().max().unwrap();
        assert!(*most < 80, "{by_second:?}");
    }

    #[test]
    fn failures_make_it_seldom_and_never_stop_it() {
        let one = environments(1)[0];
        let due = |failures| seconds(after_failures(MINUTE, failures, one, NOW));
        assert!(
            (54..=66).contains(&due(1)) && (108..=132).contains(&due(2)),
            "{} {}",
            due(1),
            due(2)
        );
        assert!((1620..=1980).contains(&due(40)), "{}", due(40));
        let day = Some(Duration::from_secs(86_400));
        assert!(seconds(after_failures(day, 9, one, NOW)) > 70_000);
        assert!(seconds(after_failures(None, 1, one, NOW)) < 70);
        assert!((3240..=3960).contains(&seconds(after_unfetched(30, one, NOW))));
    }

    #[test]
    fn another_interval_counts_at_once() {
        let in_seconds = |seconds: i64| Timestamp(NOW.0 + seconds * 1_000_000);
        assert!(
            !is_outdated(MINUTE, in_seconds(66), NOW) && is_outdated(MINUTE, in_seconds(80), NOW)
        );
        assert!(is_outdated(MINUTE, NEVER, NOW) && !is_outdated(None, NEVER, NOW));
        // A due poll is done, whatever caused it.
        assert!(!is_outdated(None, NOW, NOW) && is_outdated(None, in_seconds(9), NOW));
        let one = environments(1)[0];
        assert_eq!((first_poll(None, one, NOW), next_poll(None, one, NOW)), (NEVER, NEVER));
    }
}
