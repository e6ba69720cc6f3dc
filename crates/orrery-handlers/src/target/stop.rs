//! When work has to end: a deadline, somebody who cancels, or the end of the right to act.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Permit;

/// A flag that is shared with whoever may cancel, and a deadline. Long work polls it.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
    /// What this work is done under; `None` if it needs no right.
    permit: Option<Permit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    Cancelled,
    DeadlinePassed,
}

impl Stop {
    /// Never, unless somebody cancels.
    pub fn never() -> Self {
        Stop::default()
    }

    pub fn at(deadline: Instant) -> Self {
        Stop { deadline: Some(deadline), ..Stop::default() }
    }

    /// Shares the flag, but ends after `limit` at the latest.
    pub fn within(&self, limit: Duration) -> Self {
        let limit = Instant::now().checked_add(limit);
        let deadline = match (self.deadline, limit) {
            (Some(deadline), Some(limit)) => Some(deadline.min(limit)),
            (deadline, limit) => deadline.or(limit),
        };
        Stop { cancelled: Arc::clone(&self.cancelled), deadline, permit: self.permit.clone() }
    }

    /// Ends also when the permit does.
    #[must_use]
    pub fn under(mut self, permit: &Permit) -> Self {
        self.permit = Some(permit.clone());
        self
    }

    /// The right that this work is done under, if it needs one.
    pub fn permit(&self) -> Option<&Permit> {
        self.permit.as_ref()
    }

    /// Whether the right to act is over: another process may act any moment, and nothing may be waited for.
    pub fn is_unauthorized(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::is_over)
    }

    /// Asks everybody who shares the flag to end.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire) || self.is_unauthorized()
    }

    pub fn reason(&self) -> Option<StopReason> {
        if self.is_cancelled() {
            Some(StopReason::Cancelled)
        } else if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            Some(StopReason::DeadlinePassed)
        } else {
            None
        }
    }

    /// Time that is left; `None` without a deadline.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Waits for `duration`, or until there is a reason to stop.
    pub fn sleep(&self, duration: Duration) -> Option<StopReason> {
        const STEP: Duration = Duration::from_millis(20);
        let until = Instant::now() + duration;
        loop {
            if let Some(reason) = self.reason() {
                return Some(reason);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let left = self.remaining().map_or(left, |remaining| left.min(remaining));
            std::thread::sleep(left.min(STEP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_flag_cancels_all_that_share_it() {
        let stop = Stop::never();
        let shorter = stop.within(Duration::from_secs(3600));
        assert_eq!(shorter.reason(), None);
        stop.cancel();
        assert_eq!(shorter.reason(), Some(StopReason::Cancelled));
        assert_eq!(shorter.sleep(Duration::from_secs(3600)), Some(StopReason::Cancelled));
    }

    #[test]
    fn the_end_of_a_permit_cancels() {
        let permit = Permit::unlimited();
        let stop = Stop::never().under(&permit);
        let shorter = stop.within(Duration::from_secs(3600));
        assert_eq!((shorter.reason(), shorter.is_unauthorized()), (None, false));
        permit.revoke();
        assert_eq!(shorter.reason(), Some(StopReason::Cancelled));
        assert!(shorter.is_cancelled() && shorter.is_unauthorized());
        assert_eq!(shorter.sleep(Duration::from_secs(3600)), Some(StopReason::Cancelled));
    }

    #[test]
    fn the_earlier_deadline_counts() {
        let stop = Stop::at(Instant::now());
        assert_eq!(stop.reason(), Some(StopReason::DeadlinePassed));
        assert_eq!(
            stop.within(Duration::from_secs(3600)).reason(),
            Some(StopReason::DeadlinePassed)
        );
        assert_eq!(Stop::never().within(Duration::MAX).reason(), None);
    }
}
