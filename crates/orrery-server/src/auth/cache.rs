//! Cache of authenticated callers and environments.
//!
//! Requests come in bursts from few callers with stable rights. Requests that only read are
//! admitted from the cache, if the entry is younger than [`MAX_AGE`] and this server has changed
//! nothing since. Changes by other servers are visible after that time. Requests that change
//! something always read the store.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_model::{EnvironmentId, Timestamp};
use orrery_store::EnvironmentRecord;

use crate::auth::Caller;

/// Maximum age of an entry; delay of changes by other servers.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Maximum number of entries. More distinct credentials within a second do not profit from a cache.
const MAX: usize = 10_000;

/// Hash of a credential, and true if it was a cookie.
pub(crate) type Credential = ([u8; 32], bool);

/// A caller, and the expiry of its credential.
pub(crate) type CachedCaller = (Caller, Option<Timestamp>);

/// Time and change generation of a store read. An entry from before a change is not used after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadStamp {
    at: Instant,
    generation: u64,
}

#[derive(Debug, Default)]
pub(crate) struct AuthCache {
    generation: AtomicU64,
    callers: Mutex<HashMap<Credential, CacheEntry<CachedCaller>>>,
    environments: Mutex<HashMap<EnvironmentId, CacheEntry<EnvironmentRecord>>>,
}

#[derive(Debug)]
struct CacheEntry<T> {
    value: T,
    asked: ReadStamp,
}

impl AuthCache {
    /// Call this before reading the store.
    pub(crate) fn stamp(&self) -> ReadStamp {
        ReadStamp { at: monotonic(), generation: self.generation.load(Ordering::SeqCst) }
    }

    /// Invalidates all entries after a change.
    pub(crate) fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn lookup<K: Hash + Eq, T: Clone>(
        &self,
        of: &Mutex<HashMap<K, CacheEntry<T>>>,
        key: &K,
    ) -> Option<T> {
        let now = self.stamp();
        let kept = of.lock().ignore_poison();
        let found = kept.get(key)?;
        let ReadStamp { at, generation } = found.asked;
        let is_current = generation == now.generation && now.at - at < MAX_AGE;
        is_current.then(|| found.value.clone())
    }

    fn insert<K: Hash + Eq, T>(
        of: &Mutex<HashMap<K, CacheEntry<T>>>,
        key: K,
        value: T,
        asked: ReadStamp,
    ) {
        let mut kept = of.lock().ignore_poison();
        if kept.len() >= MAX {
            kept.clear();
        }
        kept.insert(key, CacheEntry { value, asked });
    }

    pub(crate) fn caller(&self, credential: &Credential, now: Timestamp) -> Option<Caller> {
        let (caller, expires) = self.lookup(&self.callers, credential)?;
        expires.is_none_or(|expires| now < expires).then_some(caller)
    }

    /// Caches a caller as of `asked`, until its credential expires.
    pub(crate) fn insert_caller(
        &self,
        credential: Credential,
        known: CachedCaller,
        asked: ReadStamp,
    ) {
        Self::insert(&self.callers, credential, known, asked);
    }

    pub(crate) fn environment(&self, id: EnvironmentId) -> Option<EnvironmentRecord> {
        self.lookup(&self.environments, &id)
    }

    pub(crate) fn insert_environment(&self, environment: EnvironmentRecord, asked: ReadStamp) {
        Self::insert(&self.environments, environment.uuid, environment, asked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_from_before_a_change_are_not_used() {
        let cache = AuthCache::default();
        let (credential, now) = (([7; 32], false), Timestamp(10));
        let insert = |expires, asked| {
            cache.insert_caller(credential, (Caller::anonymous(), expires), asked);
        };
        insert(None, cache.stamp());
        assert!(cache.caller(&credential, now).is_some());
        assert!(cache.caller(&([7; 32], true), now).is_none());
        // Read before the change and inserted after it.
        let before = cache.stamp();
        cache.invalidate();
        assert!(cache.caller(&credential, now).is_none());
        insert(None, before);
        assert!(cache.caller(&credential, now).is_none());
        insert(Some(Timestamp(11)), cache.stamp());
        assert!(cache.caller(&credential, now).is_some());
        assert!(cache.caller(&credential, Timestamp(11)).is_none());
    }

    #[test]
    fn old_entries_are_not_used() {
        let cache = AuthCache::default();
        let credential = ([7; 32], false);
        let now = cache.stamp();
        let at = now.at.checked_sub(MAX_AGE).expect("the machine runs for a second");
        cache.insert_caller(credential, (Caller::anonymous(), None), ReadStamp { at, ..now });
        assert!(cache.caller(&credential, Timestamp(0)).is_none());
    }
}
