//! The right to act, which ends by the clock of this machine.
//!
//! A process that acts for an environment under a lease must stop before the lease ends, even if
//! the store is unavailable. Each successful renewal extends a [`Permit`], and every action checks
//! it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orrery_base::clock::since_boot_ns;

/// Time of a monotonic clock that includes suspend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    pub fn now() -> Self {
        Moment(since_boot_ns())
    }

    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // The maximum value means no end.
        Moment(self.0.saturating_add(nanoseconds).min(UNLIMITED - 1))
    }

    /// Nanoseconds since boot, comparable across processes of this machine.
    pub fn to_nanoseconds(self) -> u64 {
        self.0
    }

    /// Creates a moment from another process of this machine.
    pub fn from_nanoseconds(nanoseconds: u64) -> Self {
        Moment(nanoseconds.min(UNLIMITED - 1))
    }

    /// Remaining time; zero if it has passed.
    pub fn remaining(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(since_boot_ns()))
    }
}

const UNLIMITED: u64 = u64::MAX;
const OVER: u64 = 0;

/// The right to act until a moment that its holder extends. Clones share it. An ended permit stays
/// ended.
#[derive(Clone, Debug)]
pub struct Permit(Arc<AtomicU64>);

impl Permit {
    /// Creates a permit without end, for exclusive holders.
    pub fn unlimited() -> Self {
        Permit(Arc::new(AtomicU64::new(UNLIMITED)))
    }

    pub fn until(end: Moment) -> Self {
        Permit(Arc::new(AtomicU64::new(end.0)))
    }

    /// Extends the permit, never shortens it. Returns true if it holds: an ended permit is not
    /// revived, since work may have been abandoned meanwhile.
    pub fn extend(&self, end: Moment) -> bool {
        let moved = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |current| {
            (current > since_boot_ns()).then(|| current.max(end.0))
        });
        if moved.is_err() {
            self.revoke();
        }
        moved.is_ok()
    }

    /// Ends the permit.
    pub fn revoke(&self) {
        self.0.store(OVER, Ordering::Release);
    }

    pub fn is_over(&self) -> bool {
        let end = self.0.load(Ordering::Acquire);
        end != UNLIMITED && end <= since_boot_ns()
    }

    /// End of the permit, if it has one.
    pub fn end(&self) -> Option<Moment> {
        let end = self.0.load(Ordering::Acquire);
        (end != UNLIMITED).then_some(Moment(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_ends_on_time_and_is_not_revived() {
        let end = Moment::now().after(Duration::from_millis(50));
        let permit = Permit::until(end);
        let shared = permit.clone();
        let deadline = Moment::now().after(Duration::from_secs(60));
        while !shared.is_over() {
            assert!(Moment::now() < deadline, "it lasts longer than until its end");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(Moment::now() >= end, "it ended too early");
        assert!(!permit.extend(Moment::now().after(Duration::from_secs(60))));
        assert!(shared.is_over(), "what is over stays over");
    }

    #[test]
    fn an_extended_permit_lasts_longer() {
        let end = Moment::now().after(Duration::from_secs(1));
        let permit = Permit::until(end);
        let shared = permit.clone();
        assert!(permit.extend(Moment::now().after(Duration::from_secs(60))));
        while Moment::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!shared.is_over(), "its end was moved on");
    }

    #[test]
    fn a_permit_is_never_shortened() {
        let permit = Permit::until(Moment::now().after(Duration::from_secs(60)));
        assert!(permit.extend(Moment::now()));
        assert!(!permit.is_over());
        permit.revoke();
        assert!(permit.is_over());
        let unlimited = Permit::unlimited();
        assert!(unlimited.extend(Moment::now()) && !unlimited.is_over());
        assert_eq!(unlimited.end(), None);
    }
}
