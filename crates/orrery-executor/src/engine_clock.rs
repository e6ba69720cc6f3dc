//! Time of an engine, which never goes back, and the next time at which it has work.

use orrery_model::Timestamp;

#[derive(Debug)]
pub(crate) struct EngineClock {
    read: fn() -> Timestamp,
    /// Latest time seen.
    latest: Timestamp,
    wake_at: Option<Timestamp>,
    /// True if `wake_at` was set since the last notice.
    moved: bool,
}

impl EngineClock {
    pub(crate) fn new(read: fn() -> Timestamp) -> Self {
        EngineClock { read, latest: Timestamp::default(), wake_at: None, moved: false }
    }

    pub(crate) fn now(&mut self) -> Timestamp {
        self.latest = self.latest.max((self.read)());
        self.latest
    }

    pub(crate) fn set_wake_at(&mut self, at: Timestamp) {
        self.wake_at = Some(at);
        self.moved = true;
    }

    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        self.wake_at
    }

    /// Returns true, once, if the time has come.
    pub(crate) fn take_due(&mut self) -> bool {
        let now = self.now();
        self.wake_at.take_if(|at| *at <= now).is_some()
    }

    pub(crate) fn has_moved(&self) -> bool {
        self.moved
    }

    /// Records that the owner hears of the next time.
    pub(crate) fn mark_noticed(&mut self) {
        self.moved = false;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static TIME: Cell<i64> = const { Cell::new(10) };
    }

    #[test]
    fn time_does_not_go_back_and_a_wake_up_is_due_once() {
        let mut clock = EngineClock::new(|| Timestamp(TIME.get()));
        assert_eq!(clock.now(), Timestamp(10));
        TIME.set(5);
        assert_eq!(clock.now(), Timestamp(10));
        clock.set_wake_at(Timestamp(20));
        assert!(clock.has_moved() && !clock.take_due());
        clock.mark_noticed();
        assert!(!clock.has_moved() && clock.wake_at() == Some(Timestamp(20)));
        TIME.set(20);
        assert!(clock.take_due() && !clock.take_due());
        assert_eq!(clock.wake_at(), None);
    }
}
