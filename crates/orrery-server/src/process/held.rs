//! The lease of one environment, where those can see it who must not wait for its runner.

use std::sync::{Mutex, MutexGuard, PoisonError};

use orrery_store::Lease;

/// Renewed by the supervisor, however long the runner is busy with something.
#[derive(Debug, Default)]
pub(super) struct HeldLease(Mutex<State>);

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    None,
    Held(Lease),
    /// Somebody else may act now. The runner is to let go.
    Lost,
}

impl HeldLease {
    pub(super) fn hold(&self, lease: Lease) {
        *self.lock() = State::Held(lease);
    }

    pub(super) fn let_go(&self) {
        *self.lock() = State::None;
    }

    /// What has to be renewed.
    pub(super) fn held(&self) -> Option<Lease> {
        match *self.lock() {
            State::Held(lease) => Some(lease),
            State::None | State::Lost => None,
        }
    }

    /// Whether this was news: a lease that was let go of meanwhile is no loss.
    pub(super) fn lose(&self, lost: Lease) -> bool {
        let mut state = self.lock();
        let is_news = matches!(*state, State::Held(lease) if lease == lost);
        if is_news {
            *state = State::Lost;
        }
        is_news
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(*self.lock(), State::Lost)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
