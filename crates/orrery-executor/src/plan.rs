//! Plans a deploy: runs every handler in dry-run mode, and changes nothing.

use std::time::Duration;

use orrery_model::{Outcome, ResourceState};
use orrery_scheduler::{DryRunId, DryRunRequest, DryRunSkip, Event, Filter, Intent};

use crate::dry_run::DryRunEntry;
use crate::engine::Engine;
use crate::progress::Progress;
use crate::recovery::DesiredState;
use crate::setup::{EngineError, EngineSetup};

/// Planned result for one resource.
#[derive(Clone, Debug)]
pub enum PlanEntry {
    /// The handler ran; the outcome has the planned changes.
    Evaluated(Outcome),
    /// Not evaluated: something about it is undefined.
    NotEvaluated(DryRunSkip),
    /// The plan was cancelled before the handler ended.
    Cancelled,
}

/// Interval of progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the handlers of all resources of `desired` in dry-run mode; the results are in the same
/// order. `states` are their known states, in that order, too. `watch` gets the progress and
/// returns false to cancel.
///
/// # Errors
/// If no thread can be started.
pub fn plan(
    setup: EngineSetup,
    desired: DesiredState,
    states: Vec<Option<ResourceState>>,
    watch: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Vec<PlanEntry>, EngineError> {
    let count = desired.resources.len();
    let engine = Engine::new_idle(setup, desired)?;
    let all = (0u32..).take(count).collect();
    let mut go_on = run_dry_run(&engine, DryRunId(1), all, states, watch);
    if go_on {
        // Reloads of dependents are known only now: evaluate those once more.
        let again = engine.with_state(|state| {
            state.dry_run.dependents_of_planned_changes(state.resources.resources())
        });
        if !again.is_empty() {
            go_on = run_dry_run(&engine, DryRunId(2), again, Vec::new(), watch);
        }
    }
    if go_on {
        // A removal compares nothing: differences from the deployed form are evaluated separately.
        let removals = engine.with_state(|state| {
            state.dry_run.take_removals_of_deployed(state.resources.resources_mut())
        });
        if !removals.is_empty() {
            let positions = removals.iter().map(|removal| removal.position).collect();
            go_on = run_dry_run(&engine, DryRunId(3), positions, Vec::new(), watch);
            engine.with_state(|state| {
                state.dry_run.restore_removals(removals, state.resources.resources_mut());
            });
        }
    }
    if !go_on {
        engine.handle_event(Event::Cancel(Filter::all()));
    }
    let results = engine.with_state(|state| state.dry_run.take_answers());
    let answers = results.into_iter().map(|entry| match entry {
        Some(DryRunEntry::Outcome(outcome)) => PlanEntry::Evaluated(outcome),
        Some(DryRunEntry::Answer(answer)) => PlanEntry::NotEvaluated(answer),
        None => PlanEntry::Cancelled,
    });
    Ok(answers.collect())
}

/// Runs a dry run of the resources at these positions. Returns `false` if it was cancelled.
fn run_dry_run(
    engine: &Engine,
    dry_run: DryRunId,
    positions: Vec<u32>,
    states: Vec<Option<ResourceState>>,
    watch: &mut dyn FnMut(&Progress) -> bool,
) -> bool {
    let request = engine.with_state(|state| {
        let desired = state.resources.resources();
        let resources = positions.iter().map(|&at| Intent::from(&desired[at as usize])).collect();
        state.dry_run.begin(positions, states, desired.len());
        let version = state.resources.version();
        DryRunRequest { dry_run, version, resources }
    });
    engine.handle_event(Event::DryRun(request));
    loop {
        let progress = engine.wait(PROGRESS_INTERVAL);
        if !watch(&progress) {
            return false;
        }
        if progress.idle {
            return true;
        }
    }
}
