//! Circuit breaker of one destination: backs off after failures, so a dead machine costs nothing.
//!
//! Pure: time and chance are arguments.

use std::time::{Duration, Instant};

/// Failures in a row after which the circuit is open.
const FAILURES_TO_OPEN: u32 = 3;
const DELAY_FIRST: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_mins(1);

/// State of the attempts to connect to one destination.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    retry_at: Option<Instant>,
    /// An attempt is under way.
    probing: bool,
}

/// State of a circuit, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circuit {
    /// Attempts are made whenever a connection is required.
    Closed,
    /// Attempts fail; none is made before the delay has passed.
    Open { failures: u32, retry_in: Duration },
    /// The delay has passed: the next attempt decides.
    HalfOpen { failures: u32 },
}

impl Circuit {
    /// Failed attempts in a row.
    pub fn failures(self) -> u32 {
        match self {
            Circuit::Closed => 0,
            Circuit::Open { failures, .. } | Circuit::HalfOpen { failures } => failures,
        }
    }

    /// True if so many attempts failed that the next ones are rare.
    pub fn is_open(self) -> bool {
        self.failures() >= FAILURES_TO_OPEN
    }
}

impl Breaker {
    /// Remaining time until the next attempt; `None` if one may be made now.
    pub(crate) fn delay(&self, now: Instant) -> Option<Duration> {
        let delay = self.retry_at?.saturating_duration_since(now);
        (!delay.is_zero()).then_some(delay)
    }

    /// Time since the next attempt is allowed.
    pub(crate) fn overdue(&self, now: Instant) -> Duration {
        self.retry_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    pub(crate) fn begin(&mut self) {
        self.probing = true;
    }

    pub(crate) fn succeed(&mut self) {
        *self = Breaker::default();
    }

    /// Records a failure. `chance` is a random number from 0 to 1: many destinations that failed
    /// together are not tried together again.
    pub(crate) fn fail(&mut self, now: Instant, chance: f64) {
        self.probing = false;
        self.failures = self.failures.saturating_add(1);
        let doublings = self.failures.saturating_sub(1).min(16);
        let delay = DELAY_FIRST.saturating_mul(1 << doublings).min(DELAY_MAX);
        self.retry_at = now.checked_add(delay.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0)));
    }

    /// Allows an attempt at once, for a person who asks for one.
    pub(crate) fn allow(&mut self) {
        self.retry_at = None;
    }

    pub(crate) fn circuit(&self, now: Instant) -> Circuit {
        let failures = self.failures;
        match self.delay(now) {
            Some(retry_in) => Circuit::Open { failures, retry_in },
            None if failures >= FAILURES_TO_OPEN || (failures > 0 && self.probing) => {
                Circuit::HalfOpen { failures }
            }
            None => Circuit::Closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_a_minute_and_ends_with_a_success() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        assert_eq!((breaker.delay(now), breaker.circuit(now)), (None, Circuit::Closed));
        let mut delays = Vec::new();
        for _ in 0..9 {
            breaker.begin();
            breaker.fail(now, 1.0);
            delays.push(breaker.delay(now).unwrap().as_secs());
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        let later = now + Duration::from_secs(61);
        assert_eq!(breaker.circuit(later), Circuit::HalfOpen { failures: 9 });
        breaker.succeed();
        assert_eq!(breaker.circuit(now), Circuit::Closed);
    }

    #[test]
    fn chance_spreads_attempts_over_half_of_the_delay() {
        let now = Instant::now();
        for (chance, expected) in [(0.0, 500), (0.5, 750), (1.0, 1000)] {
            let mut breaker = Breaker::default();
            breaker.fail(now, chance);
            assert_eq!(breaker.delay(now).unwrap().as_millis(), expected);
        }
    }

    #[test]
    fn a_person_may_ask_for_an_attempt_at_once() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        breaker.fail(now, 1.0);
        breaker.allow();
        assert_eq!(breaker.delay(now), None);
        breaker.fail(now, 1.0);
        assert_eq!(breaker.delay(now).unwrap().as_secs(), 2, "failures still count");
    }
}
