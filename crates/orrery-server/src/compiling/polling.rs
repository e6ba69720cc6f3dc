//! When a branch is looked at next. Pure: the same branch at the same time gives the same answer.

use std::time::Duration;

use orrery_model::Timestamp;
use orrery_store::EnvironmentKey;
use sha2::{Digest as _, Sha256};

use super::recorder::later;

/// A branch that is only looked at when somebody says so.
pub(super) const NEVER: Timestamp = Timestamp(i64::MAX);
/// A repository that cannot be read is tried again at least so often.
const PAUSE_MAX: Duration = Duration::from_secs(1800);
/// A commit that cannot be fetched is asked for again at least so often.
const UNFETCHED_MAX: Duration = Duration::from_secs(3600);
const UNFETCHED_FIRST: Duration = Duration::from_secs(60);
/// So many attempts fail before people are told: a moment without network is no news.
pub(super) const TOLD_AFTER: u32 = 3;

/// A number from 0 to 1 that differs from environment to environment and from time to time.
fn fraction(of: EnvironmentKey, now: Timestamp) -> f64 {
    let bytes = [of.number().to_le_bytes(), now.0.to_le_bytes()].concat();
    let digest = Sha256::digest(&bytes);
    let (number, _) = digest.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    f64::from(u32::from_le_bytes(*number)) / f64::from(u32::MAX)
}

/// When a branch is looked at for the first time: between half of the interval and all of it.
pub(super) fn first(interval: Option<Duration>, of: EnvironmentKey, now: Timestamp) -> Timestamp {
    let Some(interval) = interval else { return NEVER };
    later(now, interval.mul_f64(0.5 + 0.5 * fraction(of, now)))
}

/// When it is looked at after it was read: after the interval, a tenth more or less.
pub(super) fn next(interval: Option<Duration>, of: EnvironmentKey, now: Timestamp) -> Timestamp {
    let Some(interval) = interval else { return NEVER };
    later(now, interval.mul_f64(0.9 + 0.2 * fraction(of, now)))
}

/// When it is looked at after so many attempts that failed, in a row.
pub(super) fn after_failures(
    interval: Option<Duration>,
    failures: u32,
    of: EnvironmentKey,
    now: Timestamp,
) -> Timestamp {
    // Somebody said that there is something new: that is tried again, also where nobody looks otherwise.
    let interval = interval.unwrap_or(UNFETCHED_FIRST);
    let longer = interval.saturating_mul(1 << failures.saturating_sub(1).min(16));
    next(Some(longer.min(PAUSE_MAX.max(interval))), of, now)
}

/// When a commit that compiles could not fetch is asked for again.
pub(super) fn after_unfetched(unfetched: u32, of: EnvironmentKey, now: Timestamp) -> Timestamp {
    let pause = UNFETCHED_FIRST.saturating_mul(1 << unfetched.min(16));
    next(Some(pause.min(UNFETCHED_MAX)), of, now)
}

/// Whether a time lies further ahead than the interval explains: it was shortened, switched on or off.
pub(super) fn is_outdated(interval: Option<Duration>, due: Timestamp, now: Timestamp) -> bool {
    match interval {
        None => due != NEVER && due > now,
        Some(interval) => due > later(now, interval.mul_f64(1.2)),
    }
}

#[cfg(test)]
mod tests {
    use orrery_store::{SqliteStore, Store as _};

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000);
    const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

    fn environments(count: usize) -> Vec<EnvironmentKey> {
        let store = SqliteStore::in_memory().unwrap();
        (0..count).map(|at| store.create_environment("p", &at.to_string()).unwrap().key).collect()
    }

    fn seconds(at: Timestamp) -> i64 {
        (at.0 - NOW.0) / 1_000_000
    }

    #[test]
    fn a_thousand_branches_are_not_due_at_once() {
        let mut by_second = std::collections::BTreeMap::new();
        for one in environments(1000) {
            let due = first(MINUTE, one, NOW);
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
        // What is due is done, whoever asked for it.
        assert!(!is_outdated(None, NOW, NOW) && is_outdated(None, in_seconds(9), NOW));
        let one = environments(1)[0];
        assert_eq!((first(None, one, NOW), next(None, one, NOW)), (NEVER, NEVER));
    }
}
