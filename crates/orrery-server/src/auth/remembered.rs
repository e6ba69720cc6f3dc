//! What was read a moment ago to admit requests: who somebody is, and which environment they mean.
//!
//! Most requests come in bursts from the same few callers, and what they may do hardly ever changes. So requests that only
//! read are admitted with what was read for one before, if that is younger than [`MAX_AGE`] and nothing was changed by this
//! server since. What other servers change is noticed after that time at most. Requests that change something are always
//! admitted with what the store says now.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use orrery_model::Timestamp;
use orrery_store::EnvironmentRecord;

use crate::auth::Caller;

/// How long what another server changes may go unnoticed.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Whoever comes with more different credentials than this within a second is not helped by remembering them.
const MAX: usize = 10_000;

/// A credential as it was shown: its hash, and whether it came as a cookie.
pub(crate) type Credential = ([u8; 32], bool);

/// Somebody, and until when their credential is good.
pub(crate) type Known = (Caller, Option<Timestamp>);

/// When the store was asked: at which time, and after how many changes that this server made. What was read before one of them
/// is not used after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    at: Instant,
    generation: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Remembered {
    generation: AtomicU64,
    callers: Mutex<HashMap<Credential, Kept<Known>>>,
    environments: Mutex<HashMap<[u8; 16], Kept<EnvironmentRecord>>>,
}

#[derive(Debug)]
struct Kept<T> {
    value: T,
    asked: Moment,
}

impl Remembered {
    /// To be asked before the store is read.
    pub(crate) fn moment(&self) -> Moment {
        Moment { at: Instant::now(), generation: self.generation.load(Ordering::SeqCst) }
    }

    /// Something changed: nothing that was read before is used again.
    pub(crate) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn find<K: Hash + Eq, T: Clone>(&self, of: &Mutex<HashMap<K, Kept<T>>>, key: &K) -> Option<T> {
        let now = self.moment();
        let kept = of.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.get(key)?;
        let Moment { at, generation } = found.asked;
        let is_current = generation == now.generation && now.at - at < MAX_AGE;
        is_current.then(|| found.value.clone())
    }

    fn keep<K: Hash + Eq, T>(of: &Mutex<HashMap<K, Kept<T>>>, key: K, value: T, asked: Moment) {
        let mut kept = of.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX {
            kept.clear();
        }
        kept.insert(key, Kept { value, asked });
    }

    pub(crate) fn caller(&self, credential: &Credential, now: Timestamp) -> Option<Caller> {
        let (caller, expires) = self.find(&self.callers, credential)?;
        expires.is_none_or(|expires| now < expires).then_some(caller)
    }

    /// Remembers who somebody is, until their credential expires, as of the moment when that was asked.
    pub(crate) fn keep_caller(&self, credential: Credential, known: Known, asked: Moment) {
        Self::keep(&self.callers, credential, known, asked);
    }

    pub(crate) fn environment(&self, id: &[u8; 16]) -> Option<EnvironmentRecord> {
        self.find(&self.environments, id)
    }

    pub(crate) fn keep_environment(&self, environment: EnvironmentRecord, asked: Moment) {
        Self::keep(&self.environments, environment.uuid, environment, asked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_a_change_is_not_used_after_it() {
        let remembered = Remembered::default();
        let (credential, now) = (([7; 32], false), Timestamp(10));
        let keep = |expires, asked| {
            remembered.keep_caller(credential, (Caller::nobody(), expires), asked);
        };
        keep(None, remembered.moment());
        assert!(remembered.caller(&credential, now).is_some());
        assert!(remembered.caller(&([7; 32], true), now).is_none());
        // Read before the change, and kept only after it.
        let before = remembered.moment();
        remembered.forget();
        assert!(remembered.caller(&credential, now).is_none());
        keep(None, before);
        assert!(remembered.caller(&credential, now).is_none());
        keep(Some(Timestamp(11)), remembered.moment());
        assert!(remembered.caller(&credential, now).is_some());
        assert!(remembered.caller(&credential, Timestamp(11)).is_none());
    }

    #[test]
    fn what_is_old_is_not_used() {
        let remembered = Remembered::default();
        let credential = ([7; 32], false);
        let now = remembered.moment();
        let at = now.at.checked_sub(MAX_AGE).expect("the machine runs for a second");
        remembered.keep_caller(credential, (Caller::nobody(), None), Moment { at, ..now });
        assert!(remembered.caller(&credential, Timestamp(0)).is_none());
    }
}
