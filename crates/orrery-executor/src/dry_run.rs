//! State of a dry run: resources to evaluate, results, and planned reloads.

use orrery_model::{ChangeKind, Outcome, OutcomeStatus, Resource, ResourceId, ResourceState};
use orrery_scheduler::DryRunSkip;
use rustc_hash::FxHashSet;

use crate::state::EngineState;

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
    pub(crate) positions: Vec<u32>,
    /// States of the desired resources, in their order; empty if none is known.
    pub(crate) states: Vec<Option<ResourceState>>,
    /// In the order of the desired resources.
    pub(crate) answers: Vec<Option<DryRunEntry>>,
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

/// Returns the resource without `purged`, if it was last deployed like that.
fn deployed_form(resource: &Resource, state: &ResourceState) -> Option<Resource> {
    let attributes = resource.attributes.with_purged(false);
    let hash = attributes.hash(&resource.id);
    let is_last =
        state.last_deployed == Some(hash) && state.last_outcome == Some(OutcomeStatus::Deployed);
    is_last.then(|| Resource { attributes, hash, ..resource.clone() })
}

impl EngineState {
    /// Takes the results of planned removals, and replaces each resource by its deployed form.
    pub(crate) fn take_removals_of_deployed(&mut self) -> Vec<RemovalOfDeployed> {
        let mut removals = Vec::new();
        let DryRun { states, answers, .. } = &mut self.dry_run;
        let resources = self.desired.resources.iter_mut();
        for ((position, resource), answer) in (0u32..).zip(resources).zip(answers) {
            let state = states.get(position as usize).and_then(Option::as_ref);
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
    pub(crate) fn restore_removals(&mut self, removals: Vec<RemovalOfDeployed>) {
        for RemovalOfDeployed { position, resource, mut outcome } in removals {
            let at = position as usize;
            self.desired.resources[at] = resource;
            if let Some(Some(DryRunEntry::Outcome(found))) = self.dry_run.answers.get(at)
                && found.status == OutcomeStatus::Deployed
                && found.change.kind == ChangeKind::Updated
            {
                let edits = found.change.attributes.iter().filter(|one| one.name != "reload");
                outcome.change.attributes.extend(edits.cloned());
            }
            if let Some(answer) = self.dry_run.answers.get_mut(at) {
                *answer = Some(DryRunEntry::Outcome(outcome));
            }
        }
    }

    pub(crate) fn record_dry_run_entry(&mut self, entry: u32, answer: DryRunEntry) {
        let position = self.dry_run.positions.get(entry as usize);
        if let Some(slot) = position.and_then(|&at| self.dry_run.answers.get_mut(at as usize)) {
            *slot = Some(answer);
        }
    }

    /// Positions of dependents of planned changes that send events.
    pub(crate) fn dependents_of_planned_changes(&mut self) -> Vec<u32> {
        let would_change = |at: usize| {
            matches!(self.dry_run.answers.get(at), Some(Some(DryRunEntry::Outcome(outcome)))
                if outcome.change.kind != ChangeKind::NoChange)
        };
        let resources = &self.desired.resources;
        let changing = resources
            .iter()
            .enumerate()
            .filter(|(at, resource)| resource.flags.send_event && would_change(*at));
        self.dry_run.would_change = changing.map(|(_, resource)| resource.id.clone()).collect();
        let concerned = |resource: &Resource| {
            resource.requires.iter().any(|id| self.dry_run.would_change.contains(id))
        };
        let is_evaluated = |at: u32| {
            matches!(self.dry_run.answers.get(at as usize), Some(Some(DryRunEntry::Outcome(_))))
        };
        (0u32..)
            .zip(resources)
            .filter(|(at, resource)| concerned(resource) && is_evaluated(*at))
            .map(|(at, _)| at)
            .collect()
    }

    /// Inputs of the dry run of a resource: true if it was deployed before, and the changes it
    /// would reload for.
    pub(crate) fn dry_run_inputs(&self, position: u32) -> (bool, Vec<ResourceId>) {
        let resources = &self.desired.resources;
        let state = |at: usize| self.dry_run.states.get(at).and_then(Option::as_ref);
        // A resource that returns to the desired state runs like a new one.
        let managed_state = state(position as usize).filter(|state| state.intent.is_some());
        let last_success = managed_state.and_then(|state| state.last_success);
        let deployed_before = last_success.is_some();
        let changed = |id: &&ResourceId| {
            if self.dry_run.would_change.contains(*id) {
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
