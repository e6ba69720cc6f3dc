//! Cancellation of work: by a caller, a deadline, or the end of a permit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;

use super::Permit;

/// Cancellation flag with a deadline, shared by clones. Long work polls it.
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
    /// Permit of the work; `None` if it needs none.
    permit: Option<Permit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelCause {
    Cancelled,
    DeadlinePassed,
}

impl CancelToken {
    /// Creates a token without a deadline.
    pub fn never() -> Self {
        CancelToken::default()
    }

    pub fn at(deadline: Instant) -> Self {
        CancelToken { deadline: Some(deadline), ..CancelToken::default() }
    }

    /// Derives a token with the same flag and an earlier deadline.
    #[must_use]
    pub fn within(&self, limit: Duration) -> Self {
        let limit = monotonic().checked_add(limit);
        let deadline = match (self.deadline, limit) {
            (Some(deadline), Some(limit)) => Some(deadline.min(limit)),
            (deadline, limit) => deadline.or(limit),
        };
        CancelToken {
            cancelled: Arc::clone(&self.cancelled),
            deadline,
            permit: self.permit.clone(),
        }
    }

    /// Cancels also when the permit ends.
    #[must_use]
    pub fn under(mut self, permit: &Permit) -> Self {
        self.permit = Some(permit.clone());
        self
    }

    /// Permit of the work, if it needs one.
    pub fn permit(&self) -> Option<&Permit> {
        self.permit.as_ref()
    }

    /// Returns true after the permit ended: another process may act at any moment, so nothing may
    /// wait.
    pub fn is_unauthorized(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::is_over)
    }

    /// Cancels all work with this flag.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire) || self.is_unauthorized()
    }

    pub fn reason(&self) -> Option<CancelCause> {
        if self.is_cancelled() {
            Some(CancelCause::Cancelled)
        } else if self.deadline.is_some_and(|deadline| deadline <= monotonic()) {
            Some(CancelCause::DeadlinePassed)
        } else {
            None
        }
    }

    /// Remaining time; `None` without a deadline.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(monotonic()))
    }

    /// Sleeps for `duration`, or until cancelled.
    pub fn sleep(&self, duration: Duration) -> Option<CancelCause> {
        const STEP: Duration = Duration::from_millis(20);
        let until = monotonic() + duration;
        loop {
            if let Some(reason) = self.reason() {
                return Some(reason);
            }
            let time_left = until.saturating_duration_since(monotonic());
            if time_left.is_zero() {
                return None;
            }
            let time_left =
                self.remaining().map_or(time_left, |remaining| time_left.min(remaining));
            std::thread::sleep(time_left.min(STEP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_flag_cancels_all_clones() {
        let stop = CancelToken::never();
        let shorter = stop.within(Duration::from_secs(3600));
        assert_eq!(shorter.reason(), None);
        stop.cancel();
        assert_eq!(shorter.reason(), Some(CancelCause::Cancelled));
        assert_eq!(shorter.sleep(Duration::from_secs(3600)), Some(CancelCause::Cancelled));
    }

    #[test]
    fn the_end_of_a_permit_cancels() {
        let permit = Permit::unlimited();
        let stop = CancelToken::never().under(&permit);
        let shorter = stop.within(Duration::from_secs(3600));
        assert_eq!((shorter.reason(), shorter.is_unauthorized()), (None, false));
        permit.revoke();
        assert_eq!(shorter.reason(), Some(CancelCause::Cancelled));
        assert!(shorter.is_cancelled() && shorter.is_unauthorized());
        assert_eq!(shorter.sleep(Duration::from_secs(3600)), Some(CancelCause::Cancelled));
    }

    #[test]
    fn the_earlier_deadline_counts() {
        let stop = CancelToken::at(Instant::now());
        assert_eq!(stop.reason(), Some(CancelCause::DeadlinePassed));
        assert_eq!(
            stop.within(Duration::from_secs(3600)).reason(),
            Some(CancelCause::DeadlinePassed)
        );
        assert_eq!(CancelToken::never().within(Duration::MAX).reason(), None);
    }
}
