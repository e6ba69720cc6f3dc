//! Limits of a search: cancellation and a deterministic number of steps.

use std::cell::Cell;
use std::fmt;

/// Bounds of one call of the solver.
#[derive(Clone, Copy, Default)]
pub struct SearchLimits<'a> {
    /// Maximum number of search steps. The same request stops at the same step everywhere.
    pub max_steps: Option<u64>,
    /// Polled during the search, about every millisecond. The search stops when it returns true:
    /// for a deadline, as this crate reads no clock, or because the request was cancelled.
    pub stop: Option<&'a dyn Fn() -> bool>,
}

impl fmt::Debug for SearchLimits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits")
            .field("max_steps", &self.max_steps)
            .field("stop", &self.stop.is_some())
            .finish()
    }
}

/// The search was stopped before it found an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Interruption {
    #[error("the search was cancelled or ran out of time")]
    Stopped,
    #[error("the search reached its limit of {0} steps")]
    Steps(u64),
    #[error("the search became too deep")]
    Depth,
}

/// Counter of search steps.
pub(crate) struct Meter<'a> {
    limits: SearchLimits<'a>,
    steps: Cell<u64>,
}

/// Steps between two polls of the stop function.
const POLL_INTERVAL: u64 = 64;

impl<'a> Meter<'a> {
    pub(crate) fn new(limits: SearchLimits<'a>) -> Self {
        Self { limits, steps: Cell::new(0) }
    }

    /// Counts one step and checks the limits.
    pub(crate) fn step(&self) -> Result<(), Interruption> {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if let Some(max) = self.limits.max_steps
            && steps > max
        {
            return Err(Interruption::Steps(max));
        }
        if steps % POLL_INTERVAL == 1
            && let Some(stop) = self.limits.stop
            && stop()
        {
            return Err(Interruption::Stopped);
        }
        Ok(())
    }
}
