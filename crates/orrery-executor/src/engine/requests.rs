//! Requests to a running engine, and refreshes of facts.

use std::collections::BTreeSet;

use orrery_model::{Compliance, ResourceId};
use orrery_scheduler::{Event, Scheduler};
use rustc_hash::FxHashMap;

use super::Engine;
use crate::fact_watch::FactWatch;
use crate::request_tracker::{RequestBlockers, RequestId, RequestOutcome, RequestProgress};

impl Engine {
    /// Submits an event as a tracked request.
    pub fn submit(&self, event: Event) -> RequestId {
        let id = self.with_state(|state| state.submit(event));
        self.wake_workers();
        id
    }

    /// Takes the ended requests with persisted results.
    pub fn take_finished_requests(&self) -> Vec<(RequestId, RequestOutcome)> {
        self.with_state(|state| state.requests.take_finished(state.writes.persisted()))
    }

    /// Progress of a request.
    pub fn request_progress(&self, id: RequestId) -> RequestProgress {
        self.with_state(|state| state.request_progress(id))
    }

    /// Resources that a request still waits for, in no order.
    pub fn request_remaining(&self, id: RequestId) -> Vec<ResourceId> {
        self.with_state(|state| state.request_remaining(id))
    }

    /// Causes for which a request waits and that an operator can remove.
    pub fn request_blockers(&self, id: RequestId) -> RequestBlockers {
        self.with_state(|state| state.requests.blockers(id, &state.scheduler))
    }

    /// Refreshes facts of resources when they are deployed; of compliant ones at once, unless all
    /// their facts were requested before. Replaces the facts awaited so far.
    pub fn watch_facts(
        &self,
        facts: impl IntoIterator<Item = (ResourceId, String)>,
        already_requested: &BTreeSet<(ResourceId, String)>,
    ) {
        let mut awaited: FxHashMap<ResourceId, Vec<String>> = FxHashMap::default();
        let mut new: BTreeSet<ResourceId> = BTreeSet::new();
        for fact in facts {
            if !already_requested.contains(&fact) {
                new.insert(fact.0.clone());
            }
            awaited.entry(fact.0).or_default().push(fact.1);
        }
        self.with_state(|state| {
            awaited.retain(|id, _| !is_compliant(&state.scheduler, id));
            new.retain(|id| !awaited.contains_key(id));
            state.fact_watch = FactWatch::new(awaited);
            state.apply(Event::FactRefresh(new.into_iter().collect()));
        });
        self.wake_workers();
    }

    /// Refreshes the facts of resources, except those that are about to be deployed.
    pub fn refresh_facts(&self, ids: impl IntoIterator<Item = ResourceId>) {
        self.with_state(|state| {
            let idle = |id: &ResourceId| {
                let index = state.scheduler.index_of(id.as_str());
                index.is_some_and(|index| state.scheduler.scheduled(index).is_none())
            };
            let ids = ids.into_iter().filter(idle).collect();
            state.apply(Event::FactRefresh(ids));
        });
        self.wake_workers();
    }
}

/// Returns true if a resource is compliant and at rest.
fn is_compliant(scheduler: &Scheduler, id: &ResourceId) -> bool {
    let index = scheduler.index_of(id.as_str());
    let state = index.and_then(|index| {
        let at_rest = scheduler.scheduled(index).is_none();
        scheduler.state(index).filter(|_| at_rest)
    });
    state.is_some_and(|state| state.compliance() == Some(Compliance::Compliant))
}
