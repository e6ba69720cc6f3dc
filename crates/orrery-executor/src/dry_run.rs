//! State of a dry run: resources to evaluate, results, and planned reloads.

use orrery_model::{ChangeKind, Outcome, OutcomeStatus, Resource, ResourceId, ResourceState};
use orrery_scheduler::DryRunSkip;
use rustc_hash::FxHashSet;

/// Result of a dry run for one resource.
#[derive(Clone, Debug)]
pub(crate) enum DryRunEntry {
    Outcome(Outcome),
    Answer(DryRunSkip),
}

/// A dry run of desired resources, none of which this engine manages.
#[derive(Debug, Default)]
pub(crate) struct DryRun {
    /// Positions of the resources to evaluate.
    positions: Vec<u32>,
    /// States of the desired resources, in their order; empty if none is known.
    states: Vec<Option<ResourceState>>,
    /// In the order of the desired resources.
    answers: Vec<Option<DryRunEntry>>,
    /// Resources that send events and would change.
    would_change: FxHashSet<ResourceId>,
}

/// A resource to be removed that was last deployed with the same attributes.
#[derive(Debug)]
pub(crate) struct RemovalOfDeployed {
    pub(crate) position: u32,
    resource: Resource,
    outcome: Outcome,
}

/// Returns the resource without `purged`, if it was last deployed like that. Drift that was only
/// reported since then changes nothing about that.
fn deployed_form(resource: &Resource, state: &ResourceState) -> Option<Resource> {
    let attributes = resource.attributes.with_purged(false);
    let hash = attributes.hash(&resource.id);
    let was_successful =
        matches!(state.last_outcome, Some(OutcomeStatus::Deployed | OutcomeStatus::NonCompliant));
    let is_last = state.last_deployed == Some(hash) && was_successful;
    is_last.then(|| Resource { attributes, hash, ..resource.clone() })
}

impl DryRun {
    /// Begins to evaluate the resources at these positions, of `count` desired ones. Empty `states`
    /// leave the known ones as they are; answers of an earlier evaluation stay until replaced.
    pub(crate) fn begin(
        &mut self,
        positions: Vec<u32>,
        states: Vec<Option<ResourceState>>,
        count: usize,
    ) {
        debug_assert!(positions.iter().all(|&at| (at as usize) < count), "positions are desired");
        if !states.is_empty() {
            self.states = states;
        }
        self.positions = positions;
        self.answers.resize(count, None);
    }

    /// Position of an entry of the evaluation.
    pub(crate) fn position_of(&self, entry: u32) -> Option<u32> {
        self.positions.get(entry as usize).copied()
    }

    pub(crate) fn record(&mut self, entry: u32, answer: DryRunEntry) {
        let position = self.position_of(entry);
        if let Some(slot) = position.and_then(|at| self.answers.get_mut(at as usize)) {
            *slot = Some(answer);
        }
    }

    pub(crate) fn take_answers(&mut self) -> Vec<Option<DryRunEntry>> {
        std::mem::take(&mut self.answers)
    }

    /// Takes the results of planned removals, and replaces each resource by its deployed form.
    pub(crate) fn take_removals_of_deployed(
        &self,
        resources: &mut [Resource],
    ) -> Vec<RemovalOfDeployed> {
        let mut removals = Vec::new();
        let resources = resources.iter_mut();
        for ((position, resource), answer) in (0u32..).zip(resources).zip(&self.answers) {
            let state = self.states.get(position as usize).and_then(Option::as_ref);
            if let Some(DryRunEntry::Outcome(outcome)) = answer
                && outcome.status == OutcomeStatus::Deployed
                && outcome.change.kind == ChangeKind::Purged
                && let Some(deployed) = state.and_then(|state| deployed_form(resource, state))
            {
                let outcome = outcome.clone();
                let resource = std::mem::replace(resource, deployed);
                removals.push(RemovalOfDeployed { position, resource, outcome });
            }
        }
        removals
    }

    /// Restores the removals, and adds the differences that were found.
    pub(crate) fn restore_removals(
        &mut self,
        removals: Vec<RemovalOfDeployed>,
        resources: &mut [Resource],
    ) {
        for RemovalOfDeployed { position, resource, mut outcome } in removals {
            let at = position as usize;
            resources[at] = resource;
            if let Some(Some(DryRunEntry::Outcome(found))) = self.answers.get(at)
                && found.status == OutcomeStatus::Deployed
                && found.change.kind == ChangeKind::Updated
            {
                let edits = found.change.attributes.iter().filter(|one| one.name != "reload");
                outcome.change.attributes.extend(edits.cloned());
            }
            if let Some(answer) = self.answers.get_mut(at) {
                *answer = Some(DryRunEntry::Outcome(outcome));
            }
        }
    }

    /// Positions of dependents of planned changes that send events.
    pub(crate) fn dependents_of_planned_changes(&mut self, resources: &[Resource]) -> Vec<u32> {
        let would_change = |at: usize| {
            matches!(self.answers.get(at), Some(Some(DryRunEntry::Outcome(outcome)))
                if outcome.change.kind != ChangeKind::NoChange)
        };
        let changing = resources
            .iter()
            .enumerate()
            .filter(|(at, resource)| resource.flags.send_event && would_change(*at));
        self.would_change = changing.map(|(_, resource)| resource.id.clone()).collect();
        let concerned =
            |resource: &Resource| resource.requires.iter().any(|id| self.would_change.contains(id));
        let is_evaluated =
            |at: u32| matches!(self.answers.get(at as usize), Some(Some(DryRunEntry::Outcome(_))));
        (0u32..)
            .zip(resources)
            .filter(|(at, resource)| concerned(resource) && is_evaluated(*at))
            .map(|(at, _)| at)
            .collect()
    }

    /// Inputs of the dry run of a resource: true if it was deployed before, and the changes it
    /// would reload for.
    pub(crate) fn inputs(&self, position: u32, resources: &[Resource]) -> (bool, Vec<ResourceId>) {
        let state = |at: usize| self.states.get(at).and_then(Option::as_ref);
        // A resource that returns to the desired state runs like a new one.
        let managed_state = state(position as usize).filter(|state| state.intent.is_some());
        let last_success = managed_state.and_then(|state| state.last_success);
        let deployed_before = last_success.is_some();
        let changed = |id: &&ResourceId| {
            if self.would_change.contains(*id) {
                return true;
            }
            let Ok(at) = resources.binary_search_by(|other| other.id.cmp(id)) else { return false };
            resources[at].flags.send_event
                && state(at).is_some_and(|state| {
                    // An interrupted change counts, too: see `interrupted`.
                    state.deploying || state.last_produced_events > last_success
                })
        };
        let resource = &resources[position as usize];
        if !resource.flags.receive_events {
            return (deployed_before, Vec::new());
        }
        (deployed_before, resource.requires.iter().filter(changed).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::Change;

    use super::*;
    use crate::test_support::resource;

    fn outcome(kind: ChangeKind) -> DryRunEntry {
        let change = Change { kind, attributes: Vec::new() };
        let (facts, log) = (Vec::new(), Vec::new());
        DryRunEntry::Outcome(Outcome { status: OutcomeStatus::Deployed, change, facts, log })
    }

    #[test]
    fn dependents_of_a_planned_change_are_evaluated_again() {
        let (mut first, mut second) = (resource("a"), resource("b"));
        first.flags.send_event = true;
        second.flags.receive_events = true;
        second.requires = vec![first.id.clone()];
        let resources = [first, second];
        let mut dry_run = DryRun::default();
        dry_run.begin(vec![0, 1], Vec::new(), 2);
        assert_eq!(dry_run.position_of(1), Some(1));
        dry_run.record(0, outcome(ChangeKind::Updated));
        dry_run.record(1, outcome(ChangeKind::NoChange));
        dry_run.record(9, outcome(ChangeKind::Created));
        assert_eq!(dry_run.inputs(1, &resources), (false, Vec::new()));
        assert_eq!(dry_run.dependents_of_planned_changes(&resources), [1]);
        assert_eq!(dry_run.inputs(1, &resources), (false, vec![resources[0].id.clone()]));
        // The entries of the next evaluation are other positions; its answers replace older ones.
        dry_run.begin(vec![1], Vec::new(), 2);
        dry_run.record(0, outcome(ChangeKind::Updated));
        let kinds = dry_run.take_answers().into_iter().map(|answer| match answer {
            Some(DryRunEntry::Outcome(outcome)) => Some(outcome.change.kind),
            _ => None,
        });
        let kinds: Vec<_> = kinds.collect();
        assert_eq!(kinds, [Some(ChangeKind::Updated), Some(ChangeKind::Updated)]);
    }
}
