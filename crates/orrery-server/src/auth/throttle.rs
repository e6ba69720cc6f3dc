//! How fast passwords can be guessed: after a few wrong ones, each further try has to wait, longer every time.
//!
//! Wrong tries are counted for an account from a network, for a network, and for an account; names that no account has are counted like
//! others. Nobody locks others out with that: an account that has logged in from a network before (which the store knows) is counted there
//! by itself alone, and the first try of an account from a network does not wait for what others of the network did.
//!
//! Only tries whose password is compared stay counted, so that entries come no faster than passwords are hashed: what the table holds
//! is more than can come within the time that it remembers. Should it be full all the same, entries with few tries go first, so that
//! many names that were tried once do not make the server forget one that is under attack.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use orrery_model::{Duration, Timestamp};

use crate::auth::address::network_of;
use crate::problem::ServerError;

/// So many wrong passwords cost nothing: for one account from one network, from one network for all accounts, and for one account from all
/// networks.
const FREE_FOR_PAIR: u32 = 5;
const FREE_PER_NETWORK: u32 = 50;
const FREE_PER_ACCOUNT: u32 = 50;

/// Longest pause of a network and of an account, which others may share.
const SHARED_WAIT_MAX: Duration = Duration::from_secs(60);

const WAIT_MAX: Duration = Duration::from_secs(300);

/// After so long without a try, all is forgotten.
const MEMORY: Duration = Duration::from_secs(15 * 60);

/// Entries at most: three for each of 100 hashes a second, for as long as they are remembered. About 25 MB.
const ENTRIES_MAX: usize = 270_000;

#[derive(Clone, Copy, Debug)]
struct Tries {
    count: u32,
    last: Timestamp,
    wait_until: Timestamp,
}

/// Hash of what is counted: names can be long, and are chosen by strangers.
type Key = u128;

/// Tries to log in that have not succeeded.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    hashers: [RandomState; 2],
    tries: Mutex<HashMap<Key, Tries>>,
}

/// What is counted.
struct Keys {
    pair: Key,
    network: Key,
    account: Key,
}

impl Throttle {
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

    fn tries(&self) -> MutexGuard<'_, HashMap<Key, Tries>> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a password is looked at: counts the try as failed, so that many at once are not all free. `is_familiar` says that the account
    /// has logged in from that network before.
    ///
    /// # Errors
    /// `TooMany` if it is too early for another try.
    pub(crate) fn begin(
        &self,
        account: &str,
        address: &str,
        is_familiar: bool,
        now: Timestamp,
    ) -> Result<(), ServerError> {
        let keys = self.keys(account, address);
        let mut tries = self.tries();
        let until = |key: Key| tries.get(&key).map(|entry| entry.wait_until);
        let is_first =
            tries.get(&keys.pair).is_none_or(|entry| entry.count == 0 || entry.last + MEMORY < now);
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
            if !tries.contains_key(&key) {
                make_room(&mut tries, ENTRIES_MAX, now);
            }
            let entry = tries.entry(key).or_insert(Tries { count: 0, last: now, wait_until: now });
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

    /// The password was right: what was counted for this account from this network is forgotten, and this try for all.
    pub(crate) fn succeed(&self, account: &str, address: &str) {
        let keys = self.keys(account, address);
        let mut tries = self.tries();
        tries.remove(&keys.pair);
        for shared in [keys.network, keys.account] {
            discount(&mut tries, shared);
        }
    }

    /// The password was not looked at after all: the try does not count.
    pub(crate) fn withdraw(&self, account: &str, address: &str) {
        let keys = self.keys(account, address);
        let mut tries = self.tries();
        for key in [keys.pair, keys.network, keys.account] {
            discount(&mut tries, key);
        }
    }
}

/// Takes one try back. An entry without any is removed.
fn discount(tries: &mut HashMap<Key, Tries>, key: Key) {
    if let Some(entry) = tries.get_mut(&key) {
        entry.count = entry.count.saturating_sub(1);
        if entry.count == 0 {
            tries.remove(&key);
        }
    }
}

/// Makes room for one more entry: first what is too old to count goes, then those with the fewest tries, the oldest of them first.
fn make_room(tries: &mut HashMap<Key, Tries>, most: usize, now: Timestamp) {
    if tries.len() < most {
        return;
    }
    tries.retain(|_, entry| now <= entry.last + MEMORY);
    if tries.len() < most {
        return;
    }
    let mut weakest: Vec<(u32, Timestamp, Key)> =
        tries.iter().map(|(key, entry)| (entry.count, entry.last, *key)).collect();
    // Several at a time, so that this is rare.
    weakest.select_nth_unstable(most / 8);
    for (_, _, key) in weakest.drain(..=most / 8) {
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
        for _ in 0..FREE_FOR_PAIR {
            throttle.begin("ada", "192.0.2.1", false, at(0)).unwrap();
        }
        throttle.begin("ada", "192.0.2.1", false, at(0)).unwrap();
        throttle.begin("ada", "192.0.2.1", false, at(0)).unwrap_err();
        throttle.begin("ada", "192.0.2.1", false, at(1)).unwrap();
        let refused = throttle.begin("ada", "192.0.2.1", false, at(2)).unwrap_err();
        assert!(matches!(refused, ServerError::TooMany { seconds: 1 }), "{refused}");
        throttle.begin("ada", "192.0.2.1", false, at(3)).unwrap();
        // Others, and the same one elsewhere, are not held up.
        throttle.begin("bob", "192.0.2.1", false, at(3)).unwrap();
        throttle.begin("ada", "192.0.2.2", false, at(3)).unwrap();
        throttle.succeed("ada", "192.0.2.1");
        throttle.begin("ada", "192.0.2.1", false, at(3)).unwrap();
    }

    #[test]
    fn many_wrong_tries_of_a_network_wait_and_lock_nobody_out() {
        let throttle = Throttle::default();
        let begin = |account: &str, second| throttle.begin(account, "192.0.2.1", false, at(second));
        for n in 0..200 {
            let _ = begin(&(n % 40).to_string(), 0);
        }
        begin("7", 0).unwrap_err();
        // A wrong try with a made-up name in each second, and the right password of another account.
        for second in 1..80 {
            let _ = begin(&format!("x{second}"), second);
            begin("admin", second).unwrap();
            throttle.succeed("admin", "192.0.2.1");
        }
    }

    #[test]
    fn a_network_of_ipv6_and_an_account_are_counted_as_one() {
        let throttle = Throttle::default();
        let tried = |network: &str| {
            let free = (0..100).filter(|n| {
                throttle.begin("ada", &format!("2001:db8:{network}::{n:x}"), false, at(0)).is_ok()
            });
            free.count()
        };
        assert_eq!(tried("1:1"), FREE_FOR_PAIR as usize + 1);
        // Nor are other networks free without end.
        let free: usize = (2..60).map(|n| tried(&format!("1:{n:x}"))).sum();
        assert!(free <= FREE_PER_ACCOUNT as usize, "{free}");
        // Where the account has logged in before, it is not locked out by that.
        throttle.begin("ada", "192.0.2.1", true, at(0)).unwrap();
        throttle.begin("ada", "192.0.2.2", false, at(0)).unwrap_err();
    }

    /// Names that are tried once, however many, make the table forget neither an account under attack nor the network that does it.
    #[test]
    fn a_flood_of_names_does_not_reset_what_was_counted() {
        const MOST: usize = 1000;
        let throttle = Throttle::default();
        for _ in 0..FREE_FOR_PAIR + 1 {
            throttle.begin("ada", "192.0.2.1", false, at(0)).unwrap();
        }
        for n in 0..20 * MOST {
            make_room(&mut throttle.tries(), MOST, at(1));
            let address = format!("2001:db8:{:x}:{:x}::1", n / 65_536, n % 65_536);
            let _ = throttle.begin(&format!("made-up-{n}"), &address, false, at(1));
        }
        assert!(throttle.tries().len() <= MOST + 3, "{}", throttle.tries().len());
        let refused = throttle.begin("ada", "192.0.2.1", false, at(0)).unwrap_err();
        assert!(matches!(refused, ServerError::TooMany { .. }), "{refused}");
        let pair = throttle.keys("ada", "192.0.2.1").pair;
        assert_eq!(throttle.tries()[&pair].count, FREE_FOR_PAIR + 1);
    }

    #[test]
    fn a_try_whose_password_was_not_compared_does_not_count() {
        let throttle = Throttle::default();
        for n in 0..10_000 {
            throttle.begin("ada", &format!("192.0.2.{}", n % 250), false, at(0)).unwrap();
            throttle.withdraw("ada", &format!("192.0.2.{}", n % 250));
        }
        assert!(throttle.tries().is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let throttle = Throttle::default();
        for n in 0..ENTRIES_MAX {
            let _ = throttle.begin(&n.to_string(), &n.to_string(), false, at(0));
        }
        assert!(throttle.tries().len() <= ENTRIES_MAX);
    }
}
