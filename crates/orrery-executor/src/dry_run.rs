//! What the core knows of a dry run: who is asked, what was answered, and who would reload.

use orrery_model::{ChangeKind, Outcome, OutcomeStatus, Resource, ResourceId, ResourceState};
use orrery_scheduler::DryRunAnswer;
use rustc_hash::FxHashSet;

use crate::core::Core;

/// What a dry run found out about one of its resources.
#[derive(Clone, Debug)]
pub(crate) enum DryRunEntry {
    Outcome(Outcome),
    Answer(DryRunAnswer),
}

/// A question about the desired resources, none of which is managed here.
#[derive(Debug, Default)]
pub(crate) struct DryRun {
    /// Positions of the resources that are asked at present.
    pub(crate) positions: Vec<u32>,
    /// What is known of the desired resources, in their order; empty if nothing is.
    pub(crate) states: Vec<Option<ResourceState>>,
    /// In the order of the desired resources.
    pub(crate) answers: Vec<Option<DryRunEntry>>,
    /// Resources that send events and would be changed.
    would_change: FxHashSet<ResourceId>,
}

/// A resource that would be removed, and was last deployed with the same attributes.
#[derive(Debug)]
pub(crate) struct RemovalOfDeployed {
    pub(crate) position: u32,
    resource: Resource,
    outcome: Outcome,
}

/// The resource as it was before it was to be removed, if that is how it was deployed last.
fn deployed_form(resource: &Resource, state: &ResourceState) -> Option<Resource> {
    let attributes = resource.attributes.with_purged(false);
    let hash = attributes.hash(&resource.id);
    let is_last =
        state.last_deployed == Some(hash) && state.last_outcome == Some(OutcomeStatus::Deployed);
    is_last.then(|| Resource { attributes, hash, ..resource.clone() })
}

impl Core {
    /// Takes the answers of resources that would be removed, and wants them as they were deployed instead.
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

    /// Takes that back; what was found to differ becomes a part of the removals.
    pub(crate) fn put_back_removals(&mut self, removals: Vec<RemovalOfDeployed>) {
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

    pub(crate) fn dry_run_answer(&mut self, entry: u32, answer: DryRunEntry) {
        let position = self.dry_run.positions.get(entry as usize);
        if let Some(slot) = position.and_then(|&at| self.dry_run.answers.get_mut(at as usize)) {
            *slot = Some(answer);
        }
    }

    /// Positions of what requires something that would be changed and sends events.
    pub(crate) fn dependents_of_would_be_changes(&mut self) -> Vec<u32> {
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
        let asked = |at: u32| {
            matches!(self.dry_run.answers.get(at as usize), Some(Some(DryRunEntry::Outcome(_))))
        };
        (0u32..)
            .zip(resources)
            .filter(|(at, resource)| concerned(resource) && asked(*at))
            .map(|(at, _)| at)
            .collect()
    }

    /// What a dry run has to know of the resource at a position: whether it was ever deployed, and what it
    /// would reload for.
    pub(crate) fn before_dry_run(&self, position: u32) -> (bool, Vec<ResourceId>) {
        let resources = &self.desired.resources;
        let state = |at: usize| self.dry_run.states.get(at).and_then(Option::as_ref);
        // What has left the desired state and comes back is new, and runs like something new.
        let known = state(position as usize).filter(|state| state.intent.is_some());
        let last_success = known.and_then(|state| state.last_success);
        let deployed_before = last_success.is_some();
        let changed = |id: &&ResourceId| {
            if self.dry_run.would_change.contains(*id) {
                return true;
            }
            let Ok(at) = resources.binary_search_by(|other| other.id.cmp(id)) else { return false };
            resources[at].flags.send_event
                && state(at).is_some_and(|state| {
                    // A change that was interrupted counts, too: see `interrupted`.
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
