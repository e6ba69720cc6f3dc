//! Throttling of password guesses: after some failures, each further attempt waits longer.
//!
//! Failures are counted per account and network, per network, and per account; names without an
//! account count like others. This cannot lock out an account: one that logged in from a network
//! before (which the store knows) has only its own count there, and the first attempt of an account
//! from a network does not wait for failures of others.
//!
//! Only attempts with a compared password stay counted, so entries arrive no faster than passwords
//! are hashed, and the table holds more than can arrive within its memory. If it is full
//! nevertheless, entries with few attempts are evicted first, so a flood of names cannot evict an
//! account under attack.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard};

use orrery_base::lock::IgnorePoison;
use orrery_model::{Duration, Timestamp};

use crate::error::ServerError;
use orrery_roles::network::network_of;

/// Failures without a delay: for an account from a network, for a network, and for an account.
const FREE_FOR_PAIR: u32 = 5;
const FREE_PER_NETWORK: u32 = 50;
const FREE_PER_ACCOUNT: u32 = 50;

/// Maximum delay for a network and for an account, which others may share.
const SHARED_WAIT_MAX: Duration = Duration::from_secs(60);

const WAIT_MAX: Duration = Duration::from_secs(300);

/// Entries expire after this time without an attempt.
const MEMORY: Duration = Duration::from_secs(15 * 60);

/// Maximum number of entries: three for each of 100 hashes a second, during their lifetime. About
/// 25 MB.
const ENTRIES_MAX: usize = 270_000;

#[derive(Clone, Copy, Debug)]
struct Attempts {
    count: u32,
    last: Timestamp,
    wait_until: Timestamp,
}

/// Hash of the counted subject: names can be long, and are chosen by clients.
type Key = u128;

/// Failed login attempts.
#[derive(Debug, Default)]
pub(crate) struct LoginThrottle {
    hashers: [RandomState; 2],
    attempts: Mutex<HashMap<Key, Attempts>>,
}

/// Keys of the three counters.
struct Keys {
    pair: Key,
    network: Key,
    account: Key,
}

impl LoginThrottle {
    fn keys(&self, account: &str, address: &str) -> Keys {
        let network = network_of(address);
        let key = |network: Option<&str>, account: Option<&str>| {
            let [high, low] = self.hashers.each_ref().map(|one| one.hash_one((network, account)));
            u128::from(high) << 64 | u128::from(low)
        };
        Keys {
            pair: key(Some(&network), Some(account)),
            network: key(Some(&network), None),
            account: key(None, Some(account)),
        }
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<Key, Attempts>> {
        self.attempts.lock().ignore_poison()
    }

    /// Counts an attempt as failed before its password is compared, so that concurrent attempts
    /// count. `is_familiar`: the account has logged in from that network before.
    ///
    /// # Errors
    /// `TooMany` if it is too early for another attempt.
    pub(crate) fn begin(
        &self,
        account: &str,
        address: &str,
        is_familiar: bool,
        now: Timestamp,
    ) -> Result<(), ServerError> {
        let keys = self.keys(account, address);
        let mut attempts = self.attempts();
        let until = |key: Key| attempts.get(&key).map(|entry| entry.wait_until);
        let is_first = attempts
            .get(&keys.pair)
            .is_none_or(|entry| entry.count == 0 || entry.last + MEMORY < now);
        let until = [
            until(keys.pair),
            until(keys.network).filter(|_| !is_familiar && !is_first),
            until(keys.account).filter(|_| !is_familiar),
        ];
        if let Some(until) = until.into_iter().flatten().max().filter(|until| now < *until) {
            let seconds = u64::try_from(until.0.saturating_sub(now.0)).unwrap_or(0);
            return Err(ServerError::TooMany { seconds: seconds.div_ceil(1_000_000).max(1) });
        }
        let counted = [
            (keys.pair, FREE_FOR_PAIR, WAIT_MAX),
            (keys.network, FREE_PER_NETWORK, SHARED_WAIT_MAX),
            (keys.account, FREE_PER_ACCOUNT, SHARED_WAIT_MAX),
        ];
        for (key, free, wait_max) in counted {
            if !attempts.contains_key(&key) {
                make_room(&mut attempts, ENTRIES_MAX, now);
            }
            let entry =
                attempts.entry(key).or_insert(Attempts { count: 0, last: now, wait_until: now });
            if entry.last + MEMORY < now {
                entry.count = 0;
            }
            entry.count = entry.count.saturating_add(1);
            entry.last = now;
            let beyond = entry.count.saturating_sub(free);
            if beyond > 0 {
                let wait = Duration::from_secs(1 << (beyond - 1).min(10)).min(wait_max);
                entry.wait_until = now + wait;
            }
        }
        Ok(())
    }

    /// Removes the count of this account from this network, and this attempt from the other counts.
    pub(crate) fn succeed(&self, account: &str, address: &str) {
        let keys = self.keys(account, address);
        let mut attempts = self.attempts();
        attempts.remove(&keys.pair);
        for shared in [keys.network, keys.account] {
            discount(&mut attempts, shared);
        }
    }

    /// Removes an attempt without a password comparison.
    pub(crate) fn withdraw(&self, account: &str, address: &str) {
        let keys = self.keys(account, address);
        let mut attempts = self.attempts();
        for key in [keys.pair, keys.network, keys.account] {
            discount(&mut attempts, key);
        }
    }
}

/// Subtracts one attempt and removes an empty entry.
fn discount(attempts: &mut HashMap<Key, Attempts>, key: Key) {
    if let Some(entry) = attempts.get_mut(&key) {
        entry.count = entry.count.saturating_sub(1);
        if entry.count == 0 {
            attempts.remove(&key);
        }
    }
}

/// Makes room for an entry: evicts expired ones first, then those with the fewest attempts, the
/// oldest first.
fn make_room(attempts: &mut HashMap<Key, Attempts>, most: usize, now: Timestamp) {
    if attempts.len() < most {
        return;
    }
    attempts.retain(|_, entry| now <= entry.last + MEMORY);
    if attempts.len() < most {
        return;
    }
    let mut weakest: Vec<(u32, Timestamp, Key)> =
        attempts.iter().map(|(key, entry)| (entry.count, entry.last, *key)).collect();
    // Several at a time, to make this rare.
    weakest.select_nth_unstable(most / 8);
    for (_, _, key) in weakest.drain(..=most / 8) {
        attempts.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(1_000_000_000_000 + seconds * 1_000_000)
    }

    #[test]
    fn each_further_attempt_waits_longer() {
        let throttle = LoginThrottle::default();
        for _ in 0..FREE_FOR_PAIR {
            throttle.begin("ada", "192.0.2.1", false, at(0)).unwrap();
        }
        throttle.begin("ada", "192.0.2.1", false, at(0)).unwrap();
        throttle.begin("ada", "192.0.2.1", false, at(0)).unwrap_err();
        throttle.begin("ada", "192.0.2.1", false, at(1)).unwrap();
        let refused = throttle.begin("ada", "192.0.2.1", false, at(2)).unwrap_err();
        assert!(matches!(refused, ServerError::TooMany { seconds: 1 }), "{refused}");
        throttle.begin("ada", "192.0.2.1", false, at(3)).unwrap();
        // Other accounts, and the same one from elsewhere, are not delayed.
        throttle.begin("bob", "192.0.2.1", false, at(3)).unwrap();
        throttle.begin("ada", "192.0.2.2", false, at(3)).unwrap();
        throttle.succeed("ada", "192.0.2.1");
        throttle.begin("ada", "192.0.2.1", false, at(3)).unwrap();
    }

    #[test]
    fn many_failures_of_a_network_wait_and_lock_no_account_out() {
        let throttle = LoginThrottle::default();
        let begin = |account: &str, second| throttle.begin(account, "192.0.2.1", false, at(second));
        for n in 0..200 {
            let _ = begin(&(n % 40).to_string(), 0);
        }
        begin("7", 0).unwrap_err();
        // A failed attempt with a random name each second, and the right password of another
        // account.
        for second in 1..80 {
            let _ = begin(&format!("x{second}"), second);
            begin("admin", second).unwrap();
            throttle.succeed("admin", "192.0.2.1");
        }
    }

    #[test]
    fn a_network_of_ipv6_and_an_account_are_counted_as_one() {
        let throttle = LoginThrottle::default();
        let tried = |network: &str| {
            let free = (0..100).filter(|n| {
                throttle.begin("ada", &format!("2001:db8:{network}::{n:x}"), false, at(0)).is_ok()
            });
            free.count()
        };
        assert_eq!(tried("1:1"), FREE_FOR_PAIR as usize + 1);
        // Other networks do not have unlimited attempts either.
        let free: usize = (2..60).map(|n| tried(&format!("1:{n:x}"))).sum();
        assert!(free <= FREE_PER_ACCOUNT as usize, "{free}");
        // From a familiar network, the account is not locked out.
        throttle.begin("ada", "192.0.2.1", true, at(0)).unwrap();
        throttle.begin("ada", "192.0.2.2", false, at(0)).unwrap_err();
    }

    /// Any number of names with one attempt evicts neither an account under attack nor the
    /// attacking network.
    #[test]
    fn a_flood_of_names_does_not_evict_counters() {
        const MOST: usize = 1000;
        let throttle = LoginThrottle::default();
        for _ in 0..=FREE_FOR_PAIR {
            throttle.begin("ada", "192.0.2.1", false, at(0)).unwrap();
        }
        for n in 0..20 * MOST {
            make_room(&mut throttle.attempts(), MOST, at(1));
            let address = format!("2001:db8:{:x}:{:x}::1", n / 65_536, n % 65_536);
            let _ = throttle.begin(&format!("made-up-{n}"), &address, false, at(1));
        }
        assert!(throttle.attempts().len() <= MOST + 3, "{}", throttle.attempts().len());
        let refused = throttle.begin("ada", "192.0.2.1", false, at(0)).unwrap_err();
        assert!(matches!(refused, ServerError::TooMany { .. }), "{refused}");
        let pair = throttle.keys("ada", "192.0.2.1").pair;
        assert_eq!(throttle.attempts()[&pair].count, FREE_FOR_PAIR + 1);
    }

    #[test]
    fn an_attempt_without_a_comparison_does_not_count() {
        let throttle = LoginThrottle::default();
        for n in 0..10_000 {
            throttle.begin("ada", &format!("192.0.2.{}", n % 250), false, at(0)).unwrap();
            throttle.withdraw("ada", &format!("192.0.2.{}", n % 250));
        }
        assert!(throttle.attempts().is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let throttle = LoginThrottle::default();
        for n in 0..ENTRIES_MAX {
            let _ = throttle.begin(&n.to_string(), &n.to_string(), false, at(0));
        }
        assert!(throttle.attempts().len() <= ENTRIES_MAX);
    }
}
