//! Worker limit: starts small, and grows as handlers turn out to be slow.
//!
//! A slow handler mostly waits: for a command, a device, a network. It occupies a thread, but
//! should not occupy a slot that a quick one could use, or a few slow targets would hold up all
//! others. A small initial limit keeps many short runs from competing for the processor, and slow
//! runs do not count. The scheduler gets the resulting limit; tasks that it holds back stay queued
//! and may still be overtaken.
//!
//! Runs that act on this machine have a limit of their own, since they use its processor, memory
//! and disk; runs that wait for other machines only hold a thread. Local runs beyond their limit
//! are held in the queue of the engine and occupy no slot.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A handler that has run for this long is slow.
pub(crate) const SLOW_RUN: Duration = Duration::from_millis(50);

/// Default maximum of handlers at once per engine.
const WORKERS_MAX: usize = 5_000;

/// Default maximum of handlers at once per engine that act on this machine.
const LOCAL_WORKERS_MAX: usize = 1_000;

/// Extra slots for slow handlers, shared by all engines of this process.
const EXTRA_SLOTS_MAX: usize = 16_000;

/// Limits of concurrent handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Slots from the start.
    initial: usize,
    /// Maximum, if most of the handlers are slow.
    max: usize,
    /// Maximum of those that act on this machine.
    local_max: usize,
}

impl WorkerLimits {
    /// Starts with `initial` slots, and grows as handlers turn out to be slow.
    pub fn starting_at(initial: usize) -> Self {
        let initial = initial.max(1);
        WorkerLimits { initial, max: WORKERS_MAX.max(initial), local_max: LOCAL_WORKERS_MAX }
    }

    /// A configured number is a fixed maximum; without one, starts with `default` slots and grows.
    pub fn from_setting(configured: Option<u16>, default: u16) -> Self {
        let default = WorkerLimits::starting_at(default.into());
        configured.map_or(default, |limit| default.at_most(limit.into()))
    }

    /// Limits the number of handlers, however slow they are.
    #[must_use]
    pub fn at_most(self, limit: usize) -> Self {
        let limit = limit.max(1);
        WorkerLimits { initial: self.initial.min(limit), max: limit, ..self }
    }

    /// Limits the number of handlers that act on this machine.
    #[must_use]
    pub fn local_at_most(self, limit: usize) -> Self {
        WorkerLimits { local_max: limit.max(1), ..self }
    }
}

/// Current slots of an engine.
#[derive(Debug)]
pub(crate) struct Concurrency {
    workers: WorkerLimits,
    /// Extra slots, taken from the share of the process.
    extra: usize,
    /// Held runs, as of the last adjustment.
    held: usize,
}

impl Concurrency {
    pub(crate) fn new(workers: WorkerLimits) -> Self {
        Concurrency { workers, extra: 0, held: 0 }
    }

    pub(crate) fn slots(&self) -> usize {
        self.workers.initial + self.extra
    }

    /// Maximum of runs at once that act on this machine.
    pub(crate) fn local_max(&self) -> usize {
        self.workers.local_max
    }

    /// The scheduler's limit. Held runs need no slot; twice their number lets the tasks behind them
    /// start within a few steps, too.
    pub(crate) fn limit(&self) -> Option<u32> {
        Some(u32::try_from(self.slots() + 2 * self.held).unwrap_or(u32::MAX))
    }

    /// Adjusts the slots to the number of slow runs, and the limit to that of held runs; returns
    /// true if it changed.
    pub(crate) fn adjust(&mut self, slow: usize, held: usize) -> bool {
        // Twice as many, so hundreds of slots are reached within a few steps.
        let target = (2 * slow).min(self.workers.max - self.workers.initial);
        let before = (self.extra, self.held);
        self.extra = reserve_extra(self.extra, target);
        self.held = held;
        debug_assert!(self.slots() <= self.workers.max, "slots stay within the limit");
        (self.extra, self.held) != before
    }
}

impl Drop for Concurrency {
    fn drop(&mut self) {
        reserve_extra(self.extra, 0);
    }
}

/// State of the run monitor, which adds workers for held-up tasks and records long runs.
#[derive(Debug, Default)]
pub(crate) struct MonitorState {
    /// Its thread exists.
    exists: bool,
    /// It knows that tasks are held up.
    is_alerted: bool,
}

impl MonitorState {
    pub(crate) fn exists(&self) -> bool {
        self.exists
    }

    pub(crate) fn set_exists(&mut self, exists: bool) {
        debug_assert_ne!(self.exists, exists, "there is one monitor");
        self.exists = exists;
    }

    /// Alerts it to held-up tasks; returns true if it did not know.
    pub(crate) fn alert(&mut self) -> bool {
        !std::mem::replace(&mut self.is_alerted, true)
    }

    pub(crate) fn set_alerted(&mut self, is_alerted: bool) {
        self.is_alerted = is_alerted;
    }
}

static EXTRA_SLOTS: AtomicUsize = AtomicUsize::new(0);

/// Returns extra slots to the process, or takes more if available; returns the new number.
fn reserve_extra(had: usize, target: usize) -> usize {
    let mut got = had;
    let _ = EXTRA_SLOTS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
        let others = taken.saturating_sub(had);
        got = target.min(EXTRA_SLOTS_MAX.saturating_sub(others));
        Some(others + got)
    });
    got
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_slow_runs_up_to_the_limits() {
        let mut concurrency = Concurrency::new(WorkerLimits::starting_at(16));
        assert_eq!(concurrency.slots(), 16);
        let mut slots = Vec::new();
        for _ in 0..8 {
            concurrency.adjust(concurrency.slots(), 0);
            slots.push(concurrency.slots());
        }
        assert_eq!(slots, [48, 112, 240, 496, 1008, 2032, 4080, 5000]);
        assert!(concurrency.adjust(3, 0) && concurrency.slots() == 22);
        assert!(concurrency.adjust(0, 0) && !concurrency.adjust(0, 0) && concurrency.slots() == 16);

        let mut exact = Concurrency::new(WorkerLimits::starting_at(16).at_most(20));
        assert!(exact.adjust(16, 0) && exact.slots() == 20);
        // Held runs need no slot, and the tasks behind them may start.
        assert!(exact.adjust(16, 5) && exact.slots() == 20 && exact.limit() == Some(30));
        let mut one = Concurrency::new(WorkerLimits::starting_at(16).at_most(1));
        assert!(!one.adjust(1, 0) && one.slots() == 1);

        // All engines of a process share the extra slots.
        let mut engines: Vec<Concurrency> =
            (0..10).map(|_| Concurrency::new(WorkerLimits::starting_at(10))).collect();
        for concurrency in &mut engines {
            concurrency.adjust(10_000, 0);
        }
        let all: usize = engines.iter().map(Concurrency::slots).sum();
        assert!(all <= EXTRA_SLOTS_MAX + 100 && all > EXTRA_SLOTS_MAX / 2, "{all}");
        assert!(engines.iter().all(|concurrency| concurrency.slots() >= 10));
        drop(engines);
        drop((exact, one, concurrency));
        assert_eq!(EXTRA_SLOTS.load(Ordering::Relaxed), 0);
    }
}
