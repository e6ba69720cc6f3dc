//! Rate limit for public endpoints with expensive responses.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;

use crate::error::ServerError;

/// Admits callers at a fixed rate.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// Interval between two admissions.
    interval: Duration,
    /// Callers that would have to wait for longer are rejected.
    max_wait: Duration,
    next: Mutex<Option<Instant>>,
}

impl Throttle {
    pub(crate) const fn new(interval: Duration, max_wait: Duration) -> Self {
        Throttle { interval, max_wait, next: Mutex::new(None) }
    }

    /// Waits for admission.
    pub(crate) async fn turn(&self) -> Result<(), ServerError> {
        let now = monotonic();
        match self.reserve(now) {
            Some(at) if at > now => tokio::time::sleep_until(at.into()).await,
            Some(_) => {}
            None => {
                let text = "too many concurrent requests: retry in a few seconds";
                return Err(ServerError::Overloaded(text.to_owned()));
            }
        }
        Ok(())
    }

    /// Reserves the next admission; `None` if it is too far away.
    fn reserve(&self, now: Instant) -> Option<Instant> {
        let mut next = self.next.lock().ignore_poison();
        let at = next.map_or(now, |next| next.max(now));
        (at.duration_since(now) <= self.max_wait).then(|| {
            *next = Some(at + self.interval);
            at
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admissions_are_spaced_and_a_long_queue_is_refused() {
        let pace = Throttle::new(Duration::from_millis(10), Duration::from_millis(25));
        let now = Instant::now();
        let after = |milliseconds| Some(now + Duration::from_millis(milliseconds));
        assert_eq!(
            [pace.reserve(now), pace.reserve(now), pace.reserve(now)],
            [after(0), after(10), after(20)]
        );
        assert_eq!(pace.reserve(now), None, "that would be after 30 ms");
        let later = now + Duration::from_millis(12);
        assert_eq!(pace.reserve(later), after(30));
        let much_later = now + Duration::from_secs(1);
        assert_eq!(pace.reserve(much_later), Some(much_later), "turns are not saved up");
    }
}
