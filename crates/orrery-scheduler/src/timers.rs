//! Timer heap with lazy deletion: an entry (time, key) is valid only while its owner stores the
//! same time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use orrery_model::Timestamp;

/// Sentinel for no time, later than all others.
pub(crate) const NEVER: Timestamp = Timestamp(i64::MAX);

#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Timestamp, u32)>>,
    /// Number of valid entries.
    armed: usize,
}

impl Timers {
    /// Changes the owner's time from `old` to `new`; `NEVER` is none.
    pub(crate) fn change(&mut self, key: u32, old: Timestamp, new: Timestamp) {
        if old == new {
            return;
        }
        if old != NEVER {
            self.armed -= 1;
        }
        if new != NEVER {
            self.armed += 1;
            self.heap.push(Reverse((new, key)));
        }
    }

    /// Removes stale entries when they outnumber valid ones, which bounds memory and time.
    pub(crate) fn compact(&mut self, due: impl Fn(u32) -> Timestamp) {
        if self.heap.len() > 2 * self.armed + 64 {
            let mut entries = std::mem::take(&mut self.heap).into_vec();
            entries.retain(|Reverse((at, key))| due(*key) == *at);
            // A time that was cleared and set again has two entries.
            entries.sort_unstable();
            entries.dedup();
            self.heap = entries.into();
        }
    }

    /// Removes and returns the next valid entry, if due at `now`. The owner must clear its time.
    pub(crate) fn pop_due(
        &mut self,
        now: Timestamp,
        due: impl Fn(u32) -> Timestamp,
    ) -> Option<u32> {
        if self.next(due)? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, key))| key)
    }

    /// Returns the time of the next valid entry.
    pub(crate) fn next(&mut self, due: impl Fn(u32) -> Timestamp) -> Option<Timestamp> {
        while let Some(Reverse((at, key))) = self.heap.peek() {
            if due(*key) == *at {
                return Some(*at);
            }
            self.heap.pop();
        }
        None
    }

    pub(crate) fn armed(&self) -> usize {
        self.armed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timers with the owners' table of times.
    struct Owners {
        timers: Timers,
        due: Vec<Timestamp>,
    }

    impl Owners {
        fn set(&mut self, key: u32, at: Timestamp) {
            self.timers.change(key, self.due[key as usize], at);
            self.due[key as usize] = at;
            let due = &self.due;
            self.timers.compact(|key| due[key as usize]);
        }

        fn pop(&mut self, now: i64) -> Option<u32> {
            let due = &self.due;
            let key = self.timers.pop_due(Timestamp(now), |key| due[key as usize])?;
            self.set(key, NEVER);
            Some(key)
        }
    }

    #[test]
    fn only_the_last_time_of_an_owner_counts() {
        let mut owners = Owners { timers: Timers::default(), due: vec![NEVER; 3] };
        owners.set(0, Timestamp(5));
        owners.set(1, Timestamp(3));
        owners.set(0, Timestamp(9));
        owners.set(2, Timestamp(4));
        owners.set(2, NEVER);
        assert_eq!(owners.pop(2), None);
        assert_eq!(owners.pop(6), Some(1));
        assert_eq!(owners.pop(6), None);
        assert_eq!(owners.pop(9), Some(0));
        assert_eq!((owners.pop(100), owners.timers.armed()), (None, 0));
    }

    #[test]
    fn a_time_set_again_fires_once() {
        let mut owners = Owners { timers: Timers::default(), due: vec![NEVER; 1] };
        owners.set(0, Timestamp(5));
        owners.set(0, NEVER);
        owners.set(0, Timestamp(5));
        assert_eq!((owners.pop(5), owners.pop(5)), (Some(0), None));
    }

    #[test]
    fn dead_entries_do_not_pile_up() {
        let mut owners = Owners { timers: Timers::default(), due: vec![NEVER; 10] };
        for round in 0..10_000 {
            owners.set(round % 10, Timestamp(1_000_000 + i64::from(round)));
        }
        assert!(owners.timers.heap.len() <= 2 * 10 + 64);
    }
}
