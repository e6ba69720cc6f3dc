//! Updates of a running engine: new versions, timers, replaced handlers.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_handlers::Registry;
use orrery_model::{DriftPolicies, ResourceId, Timestamp, VersionNumber};
use orrery_scheduler::Event;

use super::Engine;
use crate::request_tracker::RequestId;
use crate::state::EngineState;
use crate::update::Update;

impl Engine {
    /// Applies newer versions. The cost is proportional to the change.
    pub fn update(&self, update: Update) {
        self.update_with_requests(update, Vec::new());
    }

    /// Applies newer versions together with requests. No run ends in between, so work that both
    /// require is done once.
    pub fn update_with_requests(&self, update: Update, requests: Vec<Event>) -> Vec<RequestId> {
        let ids = self.with_state(|state| {
            state.update(update);
            requests.into_iter().map(|event| state.submit(event)).collect()
        });
        self.wake_workers();
        ids
    }

    /// Current desired version.
    pub fn version(&self) -> VersionNumber {
        self.with_state(|state| state.resources.version())
    }

    /// Fires due timers.
    pub fn tick(&self) {
        self.with_state(EngineState::tick_if_due);
        self.wake_workers();
    }

    /// Time of the next due timer, at which `tick` must be called.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.with_state(|state| state.clock.wake_at())
    }

    /// Returns true if the engine is idle and all results are persisted.
    pub fn is_quiescent(&self) -> bool {
        self.with_state(|state| state.scheduler.is_idle() && state.writes.is_settled())
    }

    /// Returns true if a handler runs.
    pub fn is_running(&self) -> bool {
        self.with_state(|state| match state.lifecycle.is_unauthorized() {
            // The scheduler still counts tasks that never started.
            true => !state.running.is_empty(),
            false => state.scheduler.counts().running > 0,
        })
    }

    /// Replaces the handlers for runs that start from now on.
    pub fn replace_handlers(&self, registry: Arc<Registry>) {
        self.with_state(|state| state.registry = registry);
    }

    /// Deploys the unavailable resources of some entities: their handlers are ready now.
    pub fn deploy_unavailable(&self, entities: &BTreeSet<String>) {
        self.with_state(|state| state.deploy_unavailable(entities));
        self.wake_workers();
    }

    /// Resolves the sites of agents anew for runs that start from now on.
    pub fn invalidate_sites(&self) {
        self.with_state(|state| state.sites.invalidate_sites());
    }

    /// Takes the resources parked since the last call, with the number of attempts.
    pub fn take_parked(&self) -> Vec<(ResourceId, u32)> {
        self.with_state(|state| state.progress.take_parked())
    }

    /// Takes the resources with an effect that became unknown since the last call.
    pub fn take_unknown_effects(&self) -> Vec<ResourceId> {
        self.with_state(|state| state.effects.take_unreported())
    }

    /// Sets the reactions to drift, for runs that start from now on.
    pub fn set_drift_policies(&self, policies: DriftPolicies) {
        self.with_state(|state| state.drift_policies = policies);
    }

    /// Takes the resources that drifted since the last call, and whose policy asks operators.
    pub fn take_drifted(&self) -> Vec<ResourceId> {
        self.with_state(|state| state.progress.take_drifted())
    }

    /// Takes the number of unknowns resolved since the last call.
    pub fn take_resolved(&self) -> usize {
        self.with_state(|state| state.progress.take_resolved())
    }
}
