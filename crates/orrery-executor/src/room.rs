//! How many handlers may run at once: few begin together, and room is made as they turn out to be slow.
//!
//! A handler that has run for a while mostly waits: for a command, a device, a network. It keeps a thread, but should
//! not keep a place that a quick one could use, or a few slow targets would hold up all others. So a few may begin
//! at once, which keeps many short runs from treading on each other's toes, and whoever is slow no longer counts. The
//! scheduler is told how many that makes; what it does not start keeps its place in line, and may still be overtaken.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use orrery_scheduler::Event;

use crate::core::Core;

/// A handler that has run for so long is slow.
pub(crate) const SLOW: Duration = Duration::from_millis(50);

/// Handlers that may run at once for one engine, if nothing else is said.
const HANDLERS_MAX: usize = 1_000;

/// Places for slow handlers, beside those that each engine has from the start, in all engines of this process.
const EXTRA_MAX: usize = 4_000;

/// How many handlers may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// So many may begin together.
    at_first: usize,
    /// So many may run, if most of them are slow.
    at_most: usize,
}

impl Workers {
    /// So many begin together, and others as those turn out to be slow.
    pub fn growing_from(at_first: usize) -> Self {
        let at_first = at_first.max(1);
        Workers { at_first, at_most: HANDLERS_MAX.max(at_first) }
    }

    /// Never more than was asked for; if nothing was, `usual` begin together, and others as those turn out to be slow.
    pub fn asked_for(given: Option<u16>, usual: u16) -> Self {
        let usual = Workers::growing_from(usual.into());
        given.map_or(usual, |limit| usual.at_most(limit.into()))
    }

    /// Never more than this, however slow they are.
    #[must_use]
    pub fn at_most(self, limit: usize) -> Self {
        let limit = limit.max(1);
        Workers { at_first: self.at_first.min(limit), at_most: limit }
    }
}

/// How many jobs wait for a thread, and how many threads there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hiring {
    pub(crate) jobs: usize,
    pub(crate) limit: usize,
}

/// The places that an engine has now.
#[derive(Debug)]
pub(crate) struct Room {
    workers: Workers,
    /// Beyond those that it has from the start; taken from what the process has.
    extra: usize,
}

impl Room {
    pub(crate) fn new(workers: Workers) -> Self {
        Room { workers, extra: 0 }
    }

    pub(crate) fn places(&self) -> usize {
        self.workers.at_first + self.extra
    }

    /// The same for the scheduler.
    pub(crate) fn limit(&self) -> Option<u32> {
        Some(u32::try_from(self.places()).unwrap_or(u32::MAX))
    }

    /// Makes room for so many slow ones; says whether that changed anything.
    fn fit(&mut self, slow: usize) -> bool {
        // As many again, so that room for hundreds is there within a few looks.
        let wanted = (2 * slow).min(self.workers.at_most - self.workers.at_first);
        let before = self.extra;
        self.extra = exchange(before, wanted);
        self.extra != before
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        exchange(self.extra, 0);
    }
}

static EXTRA: AtomicUsize = AtomicUsize::new(0);

/// Gives places back to the process, or takes more, if there are any; says how many there are then.
fn exchange(had: usize, wanted: usize) -> usize {
    let mut got = had;
    let _ = EXTRA.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
        let others = taken.saturating_sub(had);
        got = wanted.min(EXTRA_MAX.saturating_sub(others));
        Some(others + got)
    });
    got
}

impl Core {
    pub(crate) fn hiring(&self) -> Hiring {
        // Threads that are stuck in a handler that was given up do not count.
        Hiring { jobs: self.jobs.len(), limit: self.room.places() + self.lost }
    }

    /// Whether something could begin if there were more room.
    pub(crate) fn is_tight(&self) -> bool {
        self.scheduler.is_held_up()
    }

    /// Makes room for what is held up by slow handlers, and takes it back when they have ended.
    pub(crate) fn make_room(&mut self) {
        let now = self.now();
        let old = self.underway.values().filter(|one| now.since(one.started) >= SLOW).count();
        // A job that no thread has taken yet is not slow.
        let slow = old.saturating_sub(self.jobs.len());
        if self.room.fit(slow) {
            let limit = self.room.limit();
            self.apply(Event::Room(limit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_follows_what_is_slow_up_to_the_limits() {
        let mut room = Room::new(Workers::growing_from(16));
        assert_eq!(room.places(), 16);
        let mut places = Vec::new();
        for _ in 0..8 {
            room.fit(room.places());
            places.push(room.places());
        }
        assert_eq!(places, [48, 112, 240, 496, 1000, 1000, 1000, 1000]);
        assert!(room.fit(3) && room.places() == 22);
        assert!(room.fit(0) && !room.fit(0) && room.places() == 16);

        let mut exact = Room::new(Workers::growing_from(16).at_most(20));
        assert!(exact.fit(16) && exact.places() == 20);
        let mut one = Room::new(Workers::growing_from(16).at_most(1));
        assert!(!one.fit(1) && one.places() == 1);

        // All engines of a process share what is beyond their first places.
        let mut rooms: Vec<Room> = (0..10).map(|_| Room::new(Workers::growing_from(10))).collect();
        for room in &mut rooms {
            room.fit(10_000);
        }
        let all: usize = rooms.iter().map(Room::places).sum();
        assert!(all <= EXTRA_MAX + 100 && all > EXTRA_MAX / 2, "{all}");
        assert!(rooms.iter().all(|room| room.places() >= 10));
        drop(rooms);
        drop((exact, one, room));
        assert_eq!(EXTRA.load(Ordering::Relaxed), 0);
    }
}
