//! Turns at a steady pace, for public answers that cost more than their requests.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::problem::ServerError;

/// Hands out turns, one after the other.
#[derive(Debug)]
pub(crate) struct Pace {
    /// From one turn to the next.
    step: Duration,
    /// Who would have to wait for longer is refused.
    patience: Duration,
    next: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) const fn new(step: Duration, patience: Duration) -> Self {
        Pace { step, patience, next: Mutex::new(None) }
    }

    /// Waits for a turn.
    pub(crate) async fn turn(&self) -> Result<(), ServerError> {
        let now = Instant::now();
        match self.book(now) {
            Some(at) if at > now => tokio::time::sleep_until(at.into()).await,
            Some(_) => {}
            None => {
                let text = "too many ask for this at once: try again in some seconds";
                return Err(ServerError::Overloaded(text.to_owned()));
            }
        }
        Ok(())
    }

    /// The moment of the next turn, unless it is too far away.
    fn book(&self, now: Instant) -> Option<Instant> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = next.map_or(now, |next| next.max(now));
        (at.duration_since(now) <= self.patience).then(|| {
            *next = Some(at + self.step);
            at
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_each_other_and_a_long_queue_is_refused() {
        let pace = Pace::new(Duration::from_millis(10), Duration::from_millis(25));
        let now = Instant::now();
        let after = |milliseconds| Some(now + Duration::from_millis(milliseconds));
        assert_eq!(
            [pace.book(now), pace.book(now), pace.book(now)],
            [after(0), after(10), after(20)]
        );
        assert_eq!(pace.book(now), None, "that would be after 30 ms");
        let later = now + Duration::from_millis(12);
        assert_eq!(pace.book(later), after(30));
        let much_later = now + Duration::from_secs(1);
        assert_eq!(pace.book(much_later), Some(much_later), "turns are not saved up");
    }
}
