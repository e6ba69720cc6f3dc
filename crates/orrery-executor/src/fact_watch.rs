//! Facts that a compile waits for. They are refreshed once their resource is deployed, since before
//! that there is nothing to read.

use std::collections::BTreeSet;

use orrery_model::{Compliance, Outcome, OutcomeStatus, ResourceId};
use orrery_scheduler::Event;
use rustc_hash::FxHashMap;

use crate::engine::Engine;
use crate::pending_run::PendingRun;
use crate::state::EngineState;

/// Awaited fact names, by resources that were not deployed since.
#[derive(Debug, Default)]
pub(crate) struct FactWatch(FxHashMap<ResourceId, Vec<String>>);

impl FactWatch {
    /// Returns true if a deployed resource needs a fact refresh, that is, its run did not report
    /// all awaited facts.
    pub(crate) fn is_refresh_due(&mut self, run: &PendingRun, outcome: &Outcome) -> bool {
        if self.0.is_empty() || outcome.status != OutcomeStatus::Deployed {
            return false;
        }
        let is_reported = |name: &String| outcome.facts.iter().any(|fact| fact.name == *name);
        self.0.remove(&run.resource.id).is_some_and(|names| !names.iter().all(is_reported))
    }
}

impl Engine {
    /// Refreshes facts of resources when they are deployed; of compliant ones at once, unless all
    /// of it was `ids` for before. Replaces the facts awaited so far.
    pub fn watch_facts(
        &self,
        facts: impl IntoIterator<Item = (ResourceId, String)>,
        already_requested: &BTreeSet<(ResourceId, String)>,
    ) {
        let mut end_condition: FxHashMap<ResourceId, Vec<String>> = FxHashMap::default();
        let mut new: BTreeSet<ResourceId> = BTreeSet::new();
        for fact in facts {
            if !already_requested.contains(&fact) {
                new.insert(fact.0.clone());
            }
            end_condition.entry(fact.0).or_default().push(fact.1);
        }
        self.with_state(|state| {
            end_condition.retain(|id, _| !state.is_compliant(id));
            new.retain(|id| !end_condition.contains_key(id));
            state.fact_watch = FactWatch(end_condition);
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

impl EngineState {
    fn is_compliant(&self, id: &ResourceId) -> bool {
        let index = self.scheduler.index_of(id.as_str());
        let state = index.and_then(|index| {
            let at_rest = self.scheduler.scheduled(index).is_none();
            self.scheduler.state(index).filter(|_| at_rest)
        });
        state.is_some_and(|state| state.compliance() == Some(Compliance::Compliant))
    }
}
