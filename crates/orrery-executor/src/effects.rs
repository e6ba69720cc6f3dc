//! Effects that must not be repeated: each start is recorded in the store first.
//!
//! Only runs with such an effect pay for it. Concurrent starts share a transaction: while one
//! thread writes, others queue, and one of them writes the next batch.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::HandlerError;
use orrery_handlers::run::{RunOutcome, outcome_without_run};
use orrery_model::{LogLevel, Outcome, OutcomeStatus, Timestamp, shell_word};
use orrery_store::{BegunEffect, EffectVerdict, StartedAction, StoreError};

use crate::pending_run::PendingRun;
use crate::setup::StoreHandle;

/// Retry period while the store is unavailable.
const RETRY_FOR: Duration = Duration::from_secs(30);
/// Pause before a retry, initial and maximum.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Result of an effect that must not be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Its outcome is known. The time is the start of the run that had it.
    Ended(Timestamp),
    /// Its outcome is unknown.
    Unknown,
}

/// Log of effect starts of one engine.
#[derive(Debug, Default)]
pub(crate) struct EffectLog {
    state: Mutex<State>,
    written: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<StartedAction>,
    /// Number of starts ever queued, and of those with a known write result.
    received: u64,
    completed: u64,
    /// A thread writes.
    is_writing: bool,
    /// Failed batches: first and last number, and the error.
    failures: Vec<(u64, u64, String)>,
}

impl EffectLog {
    /// Records the start of an effect. Durable when this returns.
    pub(crate) fn record_start(
        &self,
        store_handle: &StoreHandle,
        started: StartedAction,
    ) -> Result<(), HandlerError> {
        let mut state = self.lock();
        state.waiting.push(started);
        state.received += 1;
        let number = state.received;
        loop {
            if state.completed >= number {
                let failure =
                    state.failures.iter().find(|(from, to, _)| (*from..=*to).contains(&number));
                return match failure {
                    None => Ok(()),
                    Some((_, _, reason)) => Err(HandlerError::failed(format!(
                        "not started, because its start cannot be recorded: {reason}"
                    ))),
                };
            }
            if state.is_writing {
                let waited = self.written.wait(state);
                state = waited.ignore_poison();
                continue;
            }
            state.is_writing = true;
            let batch = std::mem::take(&mut state.waiting);
            let (first, last) = (state.completed + 1, state.received);
            drop(state);
            let written = write(store_handle, &batch);
            state = self.lock();
            state.is_writing = false;
            state.completed = last;
            if let Err(error) = written {
                state.failures.push((first, last, error.to_string()));
                // The waiting threads have read older failures long before.
                if state.failures.len() > 64 {
                    state.failures.remove(0);
                }
            }
            self.written.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }
}

/// Writes a batch; retries while the store is unavailable and the permit holds.
fn write(store_handle: &StoreHandle, batch: &[StartedAction]) -> Result<(), StoreError> {
    let (began, mut pause) = (monotonic(), RETRY_PAUSE);
    loop {
        match store_handle.store.effects().begin(&store_handle.lease, batch) {
            Err(error)
                if error.is_temporary()
                    && !store_handle.permit.is_over()
                    && began.elapsed() < RETRY_FOR =>
            {
                std::thread::sleep(pause);
                pause = (pause * 2).min(RETRY_PAUSE_MAX);
            }
            done => return done,
        }
    }
}

/// Decision about a run of a resource with a possibly unknown effect.
#[derive(Debug)]
pub(crate) enum RunDecision {
    /// The handler runs. The time is the start of an unknown effect that the run must resolve.
    Run(Option<Timestamp>),
    /// The run ends without the handler.
    Skip(Outcome, Option<Effect>),
}

/// Decides about such a run. A handler that `reads_back` finds out by itself if the effect
/// happened.
pub(crate) fn decide_run(effect: Option<&BegunEffect>, reads_back: bool) -> RunDecision {
    let Some(effect) = effect else { return RunDecision::Run(None) };
    match effect.choice {
        Some(EffectVerdict::RunAgain) => RunDecision::Run(None),
        Some(EffectVerdict::Done) => {
            let text = format!(
                "started at {} with a lost result; settled as done by an operator",
                effect.started
            );
            let outcome = outcome_without_run(OutcomeStatus::Deployed, LogLevel::Info, text);
            RunDecision::Skip(outcome, Some(Effect::Ended(effect.started)))
        }
        None if reads_back => RunDecision::Run(Some(effect.started)),
        None => {
            let text = format!("started at {}; its result was lost", effect.started);
            let outcome = outcome_without_run(OutcomeStatus::Failed, LogLevel::Error, text);
            RunDecision::Skip(outcome, Some(Effect::Unknown))
        }
    }
}

/// Result of the effect of an executed run. `unknown` is the start of an earlier effect that the
/// run had to resolve.
pub(crate) fn effect_after_run(
    run: &PendingRun,
    run_outcome: &RunOutcome,
    unknown: Option<Timestamp>,
) -> Option<Effect> {
    if run.effect_started.get() {
        return Some(match run_outcome.unclear {
            true => Effect::Unknown,
            false => Effect::Ended(run.started),
        });
    }
    // A run that succeeds without starting the effect has found it done.
    let is_done = !run_outcome.unclear && run_outcome.outcome.status == OutcomeStatus::Deployed;
    unknown.map(|started| if is_done { Effect::Ended(started) } else { Effect::Unknown })
}

/// Adds the log line that asks the operator for a decision.
pub(crate) fn add_settle_hint(outcome: &mut Outcome, id: &str) {
    let text = "unknown effect: it may have happened and must not be repeated; the resource is not run again until an operator settles it";
    let mut line = outcome_without_run(OutcomeStatus::Failed, LogLevel::Error, text.to_owned()).log;
    let id = shell_word(id);
    let hint = format!(
        "check the effect, then run `orrery settle --done {id}` if it happened, or `orrery settle --again {id}` to repeat it"
    );
    line.iter_mut().for_each(|line| {
        line.values.insert("hint".to_owned(), hint.clone().into());
    });
    outcome.log.append(&mut line);
}
