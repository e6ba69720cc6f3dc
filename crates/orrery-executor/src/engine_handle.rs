//! Access to an engine from threads that do not own it.

use std::fmt;
use std::sync::{Arc, Weak};

use orrery_model::ResourceId;
use orrery_scheduler::{Event, Filter, ResourceIndex};

use crate::shared::Shared;
use crate::state::EngineState;
use crate::workers::wake_workers;

/// Access to an engine that does not keep it alive.
#[derive(Clone)]
pub struct EngineHandle(Weak<Shared>);

impl fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineHandle")
    }
}

impl EngineHandle {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        EngineHandle(Arc::downgrade(shared))
    }

    /// True if the engine manages resources of an agent.
    pub fn has_resources(&self, agent: &str) -> bool {
        self.with_state(|state| state.scheduler.has_resources(agent)).unwrap_or(false)
    }

    /// Returns the resources of an agent that a deploy of dirty resources would run, or that run
    /// now and may become dirty; without parked ones. Empty after the end of the engine.
    pub fn waiting_resources(&self, agent: &str) -> Vec<ResourceId> {
        let waiting = |state: &EngineState| {
            let scheduler = &state.scheduler;
            let is_waiting = |resource: &ResourceIndex| {
                let is_parked = scheduler.state(*resource).is_none_or(|state| state.parked);
                !is_parked
                    && (scheduler.is_dirty(*resource) || scheduler.has_deploy_task(*resource))
            };
            let resources = scheduler.resources_matching(&Filter::agent(agent)).into_iter();
            let waiting = resources.filter(is_waiting);
            waiting.filter_map(|resource| scheduler.id(resource).cloned()).collect()
        };
        self.with_state(waiting).unwrap_or_default()
    }

    /// Handles an event like [`Engine::handle_event`](crate::Engine::handle_event). Does nothing
    /// after the end of the engine.
    pub fn handle_event(&self, event: Event) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut state = shared.lock();
        if !state.lifecycle.is_closed() {
            state.handle_external_event(event);
            drop(state);
            wake_workers(&shared);
        }
    }

    /// `None` after the end of the engine.
    fn with_state<T>(&self, look: impl FnOnce(&EngineState) -> T) -> Option<T> {
        let shared = self.0.upgrade()?;
        let state = shared.lock();
        (!state.lifecycle.is_closed()).then(|| look(&state))
    }
}
