//! Facts that somebody waits for: a resource is asked for them as soon as it is deployed, since before that there is nothing
//! that could be asked.

use std::collections::BTreeSet;

use orrery_model::{Compliance, Outcome, OutcomeStatus, ResourceId};
use orrery_scheduler::Event;
use rustc_hash::FxHashMap;

use crate::core::Core;
use crate::engine::Engine;
use crate::job::Job;

/// Names of facts, by the resources that have not been deployed since somebody asked.
#[derive(Debug, Default)]
pub(crate) struct AwaitedFacts(FxHashMap<ResourceId, Vec<String>>);

impl AwaitedFacts {
    /// Whether a resource has to be asked now that it was deployed. What it told by itself need not be asked for.
    pub(crate) fn are_due(&mut self, job: &Job, outcome: &Outcome) -> bool {
        if self.0.is_empty() || outcome.status != OutcomeStatus::Deployed {
            return false;
        }
        let told = |name: &String| outcome.facts.iter().any(|fact| fact.name == *name);
        self.0.remove(&job.resource.id).is_some_and(|names| !names.iter().all(told))
    }
}

impl Engine {
    /// Asks resources for facts when they are deployed; those that are as wanted already at once, unless all of it was `asked` for
    /// before. What was awaited until now and is not among these is forgotten.
    pub fn await_facts(
        &self,
        facts: impl IntoIterator<Item = (ResourceId, String)>,
        asked: &BTreeSet<(ResourceId, String)>,
    ) {
        let mut awaited: FxHashMap<ResourceId, Vec<String>> = FxHashMap::default();
        let mut new: BTreeSet<ResourceId> = BTreeSet::new();
        for fact in facts {
            if !asked.contains(&fact) {
                new.insert(fact.0.clone());
            }
            awaited.entry(fact.0).or_default().push(fact.1);
        }
        self.with_core(|core| {
            awaited.retain(|id, _| !core.is_as_wanted(id));
            new.retain(|id| !awaited.contains_key(id));
            core.awaited_facts = AwaitedFacts(awaited);
            core.apply(Event::FactRefresh(new.into_iter().collect()));
        });
        self.set_to_work();
    }

    /// Asks resources for their facts, except those that are about to be deployed.
    pub fn ask_for_facts(&self, ids: impl IntoIterator<Item = ResourceId>) {
        self.with_core(|core| {
            let idle = |id: &ResourceId| {
                let index = core.scheduler.index_of(id.as_str());
                index.is_some_and(|index| core.scheduler.scheduled(index).is_none())
            };
            let asked = ids.into_iter().filter(idle).collect();
            core.apply(Event::FactRefresh(asked));
        });
        self.set_to_work();
    }
}

impl Core {
    fn is_as_wanted(&self, id: &ResourceId) -> bool {
        let index = self.scheduler.index_of(id.as_str());
        let state = index.and_then(|index| {
            let at_rest = self.scheduler.scheduled(index).is_none();
            self.scheduler.state(index).filter(|_| at_rest)
        });
        state.is_some_and(|state| state.compliance() == Some(Compliance::Compliant))
    }
}
