//! How fast passwords can be guessed: after a few wrong ones, each further try has to wait, longer every time.
//!
//! Wrong tries are counted for an account from a network, for a network, and for an account. Nobody locks others out with that: an account that
//! has logged in from a network before is counted there by itself alone, and the first try of an account from a network does not wait for what
//! others of the network did.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

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
    /// Accounts that logged in from a network, and when.
    familiar: Mutex<HashMap<String, Timestamp>>,
}

/// What is counted, and what an account from a network is called.
struct Keys {
    pair: String,
    network: String,
    account: String,
}

impl Keys {
    fn of(account: &str, address: &str) -> Self {
        // No account and no address has a line break in it.
        let account: String = account.chars().take(255).filter(|c| *c != '\n').collect();
        let network = network_of(address);
        Keys {
            pair: format!("{network}\n{account}"),
            network: format!("{network}\n\n"),
            account: format!("\n{account}"),
        }
    }
}

impl Throttle {
    /// Before a password is looked at: counts the try as failed, so that many at once are not all free. It fails if it is too early for another one.
    pub(crate) fn begin(
        &self,
        account: &str,
        address: &str,
        now: Timestamp,
    ) -> Result<(), ServerError> {
        let keys = Keys::of(account, address);
        let is_familiar = {
            let familiar = self.familiar.lock().unwrap_or_else(PoisonError::into_inner);
            familiar.contains_key(&keys.pair)
        };
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let until = |key: &str| tries.get(key).map(|entry| entry.wait_until);
        let is_first =
            tries.get(&keys.pair).is_none_or(|entry| entry.count == 0 || entry.last + MEMORY < now);
        let until = [
            until(&keys.pair),
            until(&keys.network).filter(|_| !is_familiar && !is_first),
            until(&keys.account).filter(|_| !is_familiar),
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
                let wait = Duration::from_secs(1 << (beyond - 1).min(10)).min(wait_max);
                entry.wait_until = now + wait;
            }
        }
        Ok(())
    }

    /// The password was right: what was counted for this account from this network is forgotten, and this try for all.
    pub(crate) fn succeed(&self, account: &str, address: &str, now: Timestamp) {
        let keys = Keys::of(account, address);
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        tries.remove(&keys.pair);
        for shared in [&keys.network, &keys.account] {
            if let Some(entry) = tries.get_mut(shared) {
                entry.count = entry.count.saturating_sub(1);
            }
        }
        drop(tries);
        let mut familiar = self.familiar.lock().unwrap_or_else(PoisonError::into_inner);
        if familiar.len() >= ENTRIES_MAX
            && let Some(oldest) =
                familiar.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone())
        {
            familiar.remove(&oldest);
        }
        familiar.insert(keys.pair, now);
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
        for _ in 0..FREE_FOR_PAIR {
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
        throttle.succeed("ada", "192.0.2.1", at(3));
        throttle.begin("ada", "192.0.2.1", at(3)).unwrap();
    }

    #[test]
    fn many_wrong_tries_of_a_network_wait_and_lock_nobody_out() {
        let throttle = Throttle::default();
        let begin = |account: &str, second| throttle.begin(account, "192.0.2.1", at(second));
        for n in 0..200 {
            let _ = begin(&(n % 40).to_string(), 0);
        }
        begin("7", 0).unwrap_err();
        // A wrong try with a made-up name in each second, and the right password of another account.
        for second in 1..80 {
            let _ = begin(&format!("x{second}"), second);
            begin("admin", second).unwrap();
            throttle.succeed("admin", "192.0.2.1", at(second));
        }
    }

    #[test]
    fn a_network_of_ipv6_and_an_account_are_counted_as_one() {
        let throttle = Throttle::default();
        let tried = |network: &str| {
            let free = (0..100).filter(|n| {
                throttle.begin("ada", &format!("2001:db8:{network}::{n:x}"), at(0)).is_ok()
            });
            free.count()
        };
        assert_eq!(tried("1:1"), FREE_FOR_PAIR as usize + 1);
        // Nor are other networks free without end.
        let free: usize = (2..60).map(|n| tried(&format!("1:{n:x}"))).sum();
        assert!(free <= FREE_PER_ACCOUNT as usize, "{free}");
        // Where the account has logged in before, it is not locked out by that.
        throttle.succeed("ada", "192.0.2.1", at(0));
        throttle.begin("ada", "192.0.2.1", at(0)).unwrap();
        throttle.begin("ada", "192.0.2.2", at(0)).unwrap_err();
    }

    #[test]
    fn memory_is_bounded() {
        let throttle = Throttle::default();
        for n in 0..ENTRIES_MAX + 500 {
            let _ = throttle.begin(&n.to_string(), &n.to_string(), at(0));
        }
        assert!(throttle.tries.lock().unwrap().len() <= ENTRIES_MAX);
    }
}
