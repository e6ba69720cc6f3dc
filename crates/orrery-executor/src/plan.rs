//! What would a deploy do? Every handler is asked, and nothing is changed.

use std::time::Duration;

use orrery_model::{Outcome, ResourceState};
use orrery_scheduler::{DryRunAnswer, DryRunId, DryRunRequest, Event, Filter, Intent};

use crate::core::Core;
use crate::dry_run::DryRunEntry;
use crate::engine::{Engine, EngineError, Setup};
use crate::load::Desired;
use crate::progress::Progress;

/// What would happen to one resource.
#[derive(Clone, Debug)]
pub enum Planned {
    /// The handler looked at it; what it would change is in the outcome.
    Asked(Outcome),
    /// Nobody can say: something about it is not known.
    NotAsked(DryRunAnswer),
    /// The handler did not answer, since the plan was cancelled.
    Unanswered,
}

/// How often whoever watches is told.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Asks the handlers of all resources of `desired`; the answers come in the same order. `states` is what is known
/// of them, also in that order. `watch` sees the progress and says whether to go on.
///
/// # Errors
/// If no thread can be started.
pub fn plan(
    setup: Setup,
    desired: Desired,
    states: Vec<Option<ResourceState>>,
    watch: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Vec<Planned>, EngineError> {
    let count = desired.resources.len();
    let engine = Engine::idle(setup, desired)?;
    let all = (0u32..).take(count).collect();
    let mut go_on = ask(&engine, DryRunId(1), all, states, watch);
    if go_on {
        // What a dependent would reload for is known only now: those are asked once more.
        let again = engine.with_core(Core::dependents_of_would_be_changes);
        if !again.is_empty() {
            go_on = ask(&engine, DryRunId(2), again, Vec::new(), watch);
        }
    }
    if go_on {
        // What removes a resource compares nothing: whether it is still as it was deployed is asked apart.
        let removals = engine.with_core(Core::take_removals_of_deployed);
        if !removals.is_empty() {
            let positions = removals.iter().map(|removal| removal.position).collect();
            go_on = ask(&engine, DryRunId(3), positions, Vec::new(), watch);
            engine.with_core(|core| core.put_back_removals(removals));
        }
    }
    if !go_on {
        engine.tell(Event::Cancel(Filter::all()));
    }
    let results = engine.with_core(|core| std::mem::take(&mut core.dry_run.answers));
    let answers = results.into_iter().map(|entry| match entry {
        Some(DryRunEntry::Outcome(outcome)) => Planned::Asked(outcome),
        Some(DryRunEntry::Answer(answer)) => Planned::NotAsked(answer),
        None => Planned::Unanswered,
    });
    Ok(answers.collect())
}

/// Asks the resources at these positions, and waits. `false` if it was cancelled.
fn ask(
    engine: &Engine,
    dry_run: DryRunId,
    positions: Vec<u32>,
    states: Vec<Option<ResourceState>>,
    watch: &mut dyn FnMut(&Progress) -> bool,
) -> bool {
    let request = engine.with_core(|core| {
        let resources = positions
            .iter()
            .map(|&at| Intent::from(&core.desired.resources[at as usize]))
            .collect();
        let version = core.desired.version;
        if !states.is_empty() {
            core.dry_run.states = states;
        }
        core.dry_run.positions = positions;
        core.dry_run.answers.resize(core.desired.resources.len(), None);
        DryRunRequest { dry_run, version, resources }
    });
    engine.tell(Event::DryRun(request));
    loop {
        let progress = engine.wait(LOOK_EVERY);
        if !watch(&progress) {
            return false;
        }
        if progress.idle {
            return true;
        }
    }
}
