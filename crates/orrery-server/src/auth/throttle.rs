//! How fast passwords can be guessed: after a few wrong ones, each further try has to wait, longer every time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use orrery_model::{Duration, Timestamp};

use crate::problem::ServerError;

/// So many wrong passwords cost nothing: for one account from one address, and from one address for all accounts.
const FREE_PER_ACCOUNT: u32 = 5;
const FREE_PER_ADDRESS: u32 = 50;

const WAIT_MAX: Duration = Duration::from_secs(300);

/// After so long without a try, all is forgotten.
const MEMORY: Duration = Duration::from_secs(15 * 60);

/// Beyond this many, the longest unused are forgotten early.
const ENTRIES_MAX: usize = 10_000;

#[derive(Clone, Copy, Debug)]
struct Tries {
    count: u32,
    last: Timestamp,
    wait_until: Timestamp,
}

/// Tries to log in that have not succeeded.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    tries: Mutex<HashMap<String, Tries>>,
}

fn keys(account: &str, address: &str) -> [(String, u32); 2] {
    // No account and no address has a line break in it.
    let account: String = account.chars().take(255).filter(|c| *c != '\n').collect();
    [
        (format!("{address}\n{account}"), FREE_PER_ACCOUNT),
        (format!("{address}\n\n"), FREE_PER_ADDRESS),
    ]
}

impl Throttle {
    /// Before a password is looked at: counts the try as failed, so that many at once are not all free. It fails if it is too early for another one.
    pub(crate) fn begin(
        &self,
        account: &str,
        address: &str,
        now: Timestamp,
    ) -> Result<(), ServerError> {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = keys(account, address);
        let until = keys.iter().filter_map(|(key, _)| Some(tries.get(key)?.wait_until)).max();
        if let Some(until) = until.filter(|until| now < *until) {
            let seconds = u64::try_from(until.0.saturating_sub(now.0)).unwrap_or(0);
            return Err(ServerError::TooMany { seconds: seconds.div_ceil(1_000_000).max(1) });
        }
        for (key, free) in keys {
            if !tries.contains_key(&key) {
                make_room(&mut tries, now);
            }
            let entry = tries.entry(key).or_insert(Tries { count: 0, last: now, wait_until: now });
            if entry.last + MEMORY < now {
                entry.count = 0;
            }
            entry.count = entry.count.saturating_add(1);
            entry.last = now;
            let beyond = entry.count.saturating_sub(free);
            if beyond > 0 {
                let wait = Duration::from_secs(1 << (beyond - 1).min(10)).min(WAIT_MAX);
                entry.wait_until = now + wait;
            }
        }
        Ok(())
    }

    /// The password was right: what was counted for this account is forgotten.
    pub(crate) fn succeed(&self, account: &str, address: &str) {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let [(own, _), (all, _)] = keys(account, address);
        tries.remove(&own);
        if let Some(entry) = tries.get_mut(&all) {
            entry.count = entry.count.saturating_sub(1);
        }
    }
}

fn make_room(tries: &mut HashMap<String, Tries>, now: Timestamp) {
    if tries.len() < ENTRIES_MAX {
        return;
    }
    tries.retain(|_, entry| now <= entry.last + MEMORY);
    if tries.len() < ENTRIES_MAX {
        return;
    }
    let mut oldest: Vec<(Timestamp, String)> =
        tries.iter().map(|(key, entry)| (entry.last, key.clone())).collect();
    // Several at a time, so that this is rare.
    oldest.select_nth_unstable(ENTRIES_MAX / 8);
    for (_, key) in oldest.drain(..=ENTRIES_MAX / 8) {
        tries.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(1_000_000_000_000 + seconds * 1_000_000)
    }

    #[test]
    fn each_further_try_waits_longer() {
        let throttle = Throttle::default();
        for _ in 0..FREE_PER_ACCOUNT {
            throttle.begin("ada", "192.0.2.1", at(0)).unwrap();
        }
        throttle.begin("ada", "192.0.2.1", at(0)).unwrap();
        throttle.begin("ada", "192.0.2.1", at(0)).unwrap_err();
        throttle.begin("ada", "192.0.2.1", at(1)).unwrap();
        let refused = throttle.begin("ada", "192.0.2.1", at(2)).unwrap_err();
        assert!(matches!(refused, ServerError::TooMany { seconds: 1 }), "{refused}");
        throttle.begin("ada", "192.0.2.1", at(3)).unwrap();
        // Others, and the same one elsewhere, are not held up.
        throttle.begin("bob", "192.0.2.1", at(3)).unwrap();
        throttle.begin("ada", "192.0.2.2", at(3)).unwrap();
        throttle.succeed("ada", "192.0.2.1");
        throttle.begin("ada", "192.0.2.1", at(3)).unwrap();
    }

    #[test]
    fn many_names_from_one_address_wait_too() {
        let throttle = Throttle::default();
        let refused =
            (0..200).filter(|n| throttle.begin(&n.to_string(), "192.0.2.1", at(0)).is_err());
        assert_eq!(refused.count(), 200 - FREE_PER_ADDRESS as usize - 1);
    }

    #[test]
    fn memory_is_bounded() {
        let throttle = Throttle::default();
        for n in 0..ENTRIES_MAX + 500 {
            let _ = throttle.begin("ada", &n.to_string(), at(0));
        }
        assert!(throttle.tries.lock().unwrap().len() <= ENTRIES_MAX);
    }
}
