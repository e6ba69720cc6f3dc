//! Results of dry runs that replace the runs of unchanged resources.
//!
//! A result is used once, within seconds, and only if nothing was sent to the helper since that may
//! change something.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use orrery_base::lock::IgnorePoison;
use orrery_handlers::ReadAheadWindow;
use orrery_handlers::run::{HandlerRun, Purpose, RunOutcome};
use orrery_model::{AttributeHash, ChangeKind, OutcomeStatus, Resource, ResourceId};

/// Lifetime of a result.
const TTL: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct VerifiedRuns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Grows with each change.
    changes: u64,
    verified_at: Option<Instant>,
    results: BTreeMap<ResourceId, (AttributeHash, RunOutcome)>,
    window: ReadAheadWindow,
}

impl State {
    /// Drops results that are too old.
    fn expire(&mut self) {
        if self.verified_at.is_none_or(|at| at.elapsed() > TTL) {
            self.results.clear();
        }
    }
}

fn is_unchanged(run_outcome: &RunOutcome) -> bool {
    let outcome = &run_outcome.outcome;
    outcome.status == OutcomeStatus::Deployed
        && outcome.change.kind == ChangeKind::NoChange
        && !run_outcome.unclear
}

impl VerifiedRuns {
    /// Takes the outcome of a run, if its dry run has the same.
    pub(super) fn take(&self, run: &HandlerRun<'_>) -> Option<RunOutcome> {
        if run.purpose == Purpose::Facts {
            return None;
        }
        let mut state = self.0.lock().ignore_poison();
        state.expire();
        let (hash, run_outcome) = state.results.remove(&run.resource.id)?;
        let is_same = hash == run.resource.hash && run.changed_dependencies.is_empty();
        let is_enough = run.purpose == Purpose::DryRun || is_unchanged(&run_outcome);
        if !(is_same && is_enough) {
            return None;
        }
        state.window.record_use();
        Some(run_outcome)
    }

    /// Number of resources to verify before the run of this one; 0 if it is verified.
    pub(super) fn batch_size(&self, next: &ResourceId) -> usize {
        let mut state = self.0.lock().ignore_poison();
        state.expire();
        if state.results.contains_key(next) { 0 } else { state.window.size() }
    }

    /// Drops all results: something may change.
    pub(super) fn invalidate(&self) {
        let mut state = self.0.lock().ignore_poison();
        state.changes += 1;
        if !state.results.is_empty() {
            state.results.clear();
            state.window.drop_rest();
        }
    }

    /// Records a run that was not verified before. An unchanged one makes the next batch larger.
    pub(super) fn record_run(&self, run_outcome: Option<&RunOutcome>) {
        let mut state = self.0.lock().ignore_poison();
        if run_outcome.is_some_and(is_unchanged) {
            state.window.start_batch();
            state.window.record_use();
        }
    }

    pub(super) fn changes(&self) -> u64 {
        self.0.lock().ignore_poison().changes
    }

    /// Replaces the results, unless something changed since `changes`.
    pub(super) fn replace(
        &self,
        changes: u64,
        verified_at: Instant,
        results: Vec<(&Resource, RunOutcome)>,
    ) {
        let mut state = self.0.lock().ignore_poison();
        if state.changes != changes {
            return;
        }
        state.verified_at = Some(verified_at);
        let known = |(resource, run_outcome): (&Resource, RunOutcome)| {
            (resource.id.clone(), (resource.hash, run_outcome))
        };
        state.results = results.into_iter().map(known).collect();
        state.window.start_batch();
    }
}
