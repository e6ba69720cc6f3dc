//! Lease state shared between runner, renewal and supervisor, so that none of them waits for the
//! lock of a runner.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use orrery_base::lock::IgnorePoison;
use orrery_handlers::{Moment, Permit};
use orrery_store::{EnvironmentKey, Lease};

/// The lease of one environment, renewed however long its runner is busy.
#[derive(Debug, Default)]
pub(super) struct LeaseCell(Mutex<State>);

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    None,
    Held(Lease, Permit),
    /// Another process may act now; the runner must stop.
    Lost,
}

impl LeaseCell {
    pub(super) fn hold(&self, lease: Lease, permit: Permit) {
        *self.lock() = State::Held(lease, permit);
    }

    pub(super) fn clear_lease(&self) {
        *self.lock() = State::None;
    }

    /// Returns the lease to renew, and the end of its permit.
    pub(super) fn held(&self) -> Option<(Lease, Option<Moment>)> {
        match &*self.lock() {
            State::Held(lease, permit) => Some((*lease, permit.end())),
            State::None | State::Lost => None,
        }
    }

    /// Returns the permit of the held lease.
    pub(super) fn permit(&self) -> Option<Permit> {
        match &*self.lock() {
            State::Held(_, permit) => Some(permit.clone()),
            State::None | State::Lost => None,
        }
    }

    /// Extends the permit of a renewed lease. Returns false if the renewal came too late.
    pub(super) fn extend(&self, renewed: Lease, until: Moment) -> bool {
        match &*self.lock() {
            State::Held(lease, permit) if *lease == renewed => permit.extend(until),
            // Released in the meantime.
            _ => true,
        }
    }

    /// Revokes the permit at once. Returns false if the lease was released or lost before.
    pub(super) fn mark_lost(&self, lost: Lease) -> bool {
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
        self.0.lock().ignore_poison()
    }
}

/// Lease cells of all environments of this process.
#[derive(Debug, Default)]
pub(super) struct LeaseRegistry(Mutex<BTreeMap<EnvironmentKey, Arc<LeaseCell>>>);

impl LeaseRegistry {
    pub(super) fn add(&self, environment: EnvironmentKey, held: Arc<LeaseCell>) {
        self.lock().insert(environment, held);
    }

    pub(super) fn remove(&self, environment: EnvironmentKey) {
        self.lock().remove(&environment);
    }

    pub(super) fn get(&self, environment: EnvironmentKey) -> Option<Arc<LeaseCell>> {
        self.lock().get(&environment).cloned()
    }

    /// Returns all leases that are held now.
    pub(super) fn held(&self) -> Vec<(Lease, Option<Moment>)> {
        self.lock().values().filter_map(|held| held.held()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<EnvironmentKey, Arc<LeaseCell>>> {
        self.0.lock().ignore_poison()
    }
}
