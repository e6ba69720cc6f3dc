//! End of an engine: closed by its owner, by the end of its permit, or by a failed write.

use orrery_handlers::{CancelToken, Permit};
use orrery_store::StoreError;

#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// The right to act under the lease; `None` for dry runs.
    permit: Option<Permit>,
    is_closed: bool,
    is_unauthorized: bool,
    failure: Option<StoreError>,
}

impl Lifecycle {
    pub(crate) fn new(permit: Option<Permit>) -> Self {
        Lifecycle { permit, is_closed: false, is_unauthorized: false, failure: None }
    }

    /// Nothing starts any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Closes the engine if its permit is over; returns true if so.
    pub(crate) fn close_if_unauthorized(&mut self) -> bool {
        if !self.permit.as_ref().is_some_and(Permit::is_over) {
            return false;
        }
        self.is_unauthorized = true;
        self.is_closed = true;
        true
    }

    /// The permit ended.
    pub(crate) fn is_unauthorized(&self) -> bool {
        debug_assert!(!self.is_unauthorized || self.is_closed, "without a permit nothing starts");
        self.is_unauthorized
    }

    /// Closes the engine after a failed write; the first error counts.
    pub(crate) fn fail(&mut self, error: StoreError) {
        self.failure.get_or_insert(error);
        self.is_closed = true;
    }

    pub(crate) fn has_failed(&self) -> bool {
        debug_assert!(self.failure.is_none() || self.is_closed, "after a failure nothing starts");
        self.failure.is_some()
    }

    pub(crate) fn take_failure(&mut self) -> Option<StoreError> {
        self.failure.take()
    }

    /// Limits a run to the permit.
    pub(crate) fn limit(&self, stop: CancelToken) -> CancelToken {
        match &self.permit {
            Some(permit) => stop.under(permit),
            None => stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_permit_closes_an_engine() {
        let permit = Permit::unlimited();
        let mut lifecycle = Lifecycle::new(Some(permit.clone()));
        let stop = lifecycle.limit(CancelToken::never());
        assert!(!lifecycle.close_if_unauthorized() && !lifecycle.is_closed());
        permit.revoke();
        assert!(stop.is_unauthorized());
        assert!(lifecycle.close_if_unauthorized());
        assert!(lifecycle.is_closed() && lifecycle.is_unauthorized() && !lifecycle.has_failed());
    }

    #[test]
    fn the_first_failure_counts() {
        let mut lifecycle = Lifecycle::new(None);
        assert!(!lifecycle.close_if_unauthorized());
        lifecycle.fail(StoreError::NoVersion(orrery_model::VersionNumber(1)));
        lifecycle.fail(StoreError::NoVersion(orrery_model::VersionNumber(2)));
        assert!(lifecycle.is_closed() && lifecycle.has_failed());
        let failure = lifecycle.take_failure().map(|error| error.to_string());
        assert!(failure.is_some_and(|text| text.contains('1')));
    }
}
