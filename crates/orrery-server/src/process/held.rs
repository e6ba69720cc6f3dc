//! The leases of this process, where those can see them who must not wait for the runners of their environments.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orrery_handlers::{Moment, Permit};
use orrery_store::{EnvironmentKey, Lease};

/// The lease of one environment. It is renewed however long the runner is busy with something.
#[derive(Debug, Default)]
pub(super) struct HeldLease(Mutex<State>);

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    None,
    Held(Lease, Permit),
    /// Another process may act now. The runner is to let go.
    Lost,
}

impl HeldLease {
    pub(super) fn hold(&self, lease: Lease, permit: Permit) {
        *self.lock() = State::Held(lease, permit);
    }

    pub(super) fn let_go(&self) {
        *self.lock() = State::None;
    }

    /// What has to be renewed, and when the right to act under it ends if that does not work.
    pub(super) fn held(&self) -> Option<(Lease, Option<Moment>)> {
        match &*self.lock() {
            State::Held(lease, permit) => Some((*lease, permit.end())),
            State::None | State::Lost => None,
        }
    }

    /// The right to act, as long as it lasts.
    pub(super) fn permit(&self) -> Option<Permit> {
        match &*self.lock() {
            State::Held(_, permit) => Some(permit.clone()),
            State::None | State::Lost => None,
        }
    }

    /// It was renewed: this process may act until then. Whether it still has it: a renewal that comes too late changes nothing.
    pub(super) fn extend(&self, renewed: Lease, until: Moment) -> bool {
        match &*self.lock() {
            State::Held(lease, permit) if *lease == renewed => permit.extend(until),
            // It was let go of meanwhile.
            _ => true,
        }
    }

    /// Ends the right to act at once. Whether this was news: a lease that was let go of meanwhile is no loss.
    pub(super) fn lose(&self, lost: Lease) -> bool {
        let mut state = self.lock();
        let State::Held(lease, permit) = &*state else { return false };
        if *lease != lost {
            return false;
        }
        permit.revoke();
        *state = State::Lost;
        true
    }

    pub(super) fn is_lost(&self) -> bool {
        match &*self.lock() {
            State::None => false,
            State::Held(_, permit) => permit.is_over(),
            State::Lost => true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those of all environments that this process looks after.
#[derive(Debug, Default)]
pub(super) struct HeldLeases(Mutex<BTreeMap<EnvironmentKey, Arc<HeldLease>>>);

impl HeldLeases {
    pub(super) fn add(&self, environment: EnvironmentKey, held: Arc<HeldLease>) {
        self.lock().insert(environment, held);
    }

    pub(super) fn remove(&self, environment: EnvironmentKey) {
        self.lock().remove(&environment);
    }

    pub(super) fn get(&self, environment: EnvironmentKey) -> Option<Arc<HeldLease>> {
        self.lock().get(&environment).cloned()
    }

    /// All that are held now.
    pub(super) fn held(&self) -> Vec<(Lease, Option<Moment>)> {
        self.lock().values().filter_map(|held| held.held()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<EnvironmentKey, Arc<HeldLease>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
