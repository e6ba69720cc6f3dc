//! Facts that a compile waits for. They are refreshed once their resource is deployed, since before
//! that there is nothing to read.

use orrery_model::{Outcome, OutcomeStatus, ResourceId};
use rustc_hash::FxHashMap;

use crate::pending_run::PendingRun;

/// Awaited fact names, by resources that were not deployed since.
#[derive(Debug, Default)]
pub(crate) struct FactWatch(FxHashMap<ResourceId, Vec<String>>);

impl FactWatch {
    pub(crate) fn new(awaited: FxHashMap<ResourceId, Vec<String>>) -> Self {
        FactWatch(awaited)
    }

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

#[cfg(test)]
mod tests {
    use orrery_model::{Change, Fact};

    use super::*;
    use crate::test_support::pending_run;

    #[test]
    fn a_deployed_resource_is_asked_for_the_facts_it_did_not_report() {
        let run = pending_run(1);
        let awaited = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            FactWatch::new([(run.resource.id.clone(), names)].into_iter().collect())
        };
        let fact = Fact { name: "ip".to_owned(), value: "::1".to_owned(), expires: false };
        let outcome = |status| Outcome {
            status,
            change: Change::default(),
            facts: vec![fact.clone()],
            log: Vec::new(),
        };
        let deployed = outcome(OutcomeStatus::Deployed);
        assert!(!awaited(&["ip"]).is_refresh_due(&run, &deployed));
        let mut watch = awaited(&["ip", "mac"]);
        assert!(!watch.is_refresh_due(&run, &outcome(OutcomeStatus::Failed)));
        assert!(watch.is_refresh_due(&run, &deployed));
        assert!(!watch.is_refresh_due(&run, &deployed), "it is asked once");
    }
}
