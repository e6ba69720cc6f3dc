//! Effects that must not be repeated: each is noted in the store before it begins.
//!
//! Only runs with such an effect pay for it, and runs that begin at the same time share a transaction: whoever comes while others
//! write waits, and writes for all who came meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orrery_handlers::HandlerError;
use orrery_model::{LogLevel, Outcome, OutcomeStatus, Timestamp, shell_word};
use orrery_store::{ActionKind, BegunEffect, EffectChoice, Started, StoreError};

use crate::engine::Keeper;
use crate::job::Job;
use crate::task::{Performed, ended};

/// How long a note is tried while the store cannot be used.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before it is tried again, at first and at most.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How the effect of a run ended, if the run has one that must not be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Its outcome is known. The time is when the run began that it is the outcome of.
    Ended(Timestamp),
    /// It may have happened or not.
    Unknown,
}

/// Notes for one engine.
#[derive(Debug, Default)]
pub(crate) struct BegunNotes {
    state: Mutex<State>,
    written: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Started>,
    /// How many ever came, and for how many of them it is known whether they were noted.
    came: u64,
    known: u64,
    /// Somebody writes.
    writes: bool,
    /// Those that were not noted: the first, the last, and why.
    failures: Vec<(u64, u64, String)>,
}

impl BegunNotes {
    /// Notes that an effect begins. Durable when this returns.
    pub(crate) fn note(&self, keeper: &Keeper, started: Started) -> Result<(), HandlerError> {
        let mut state = self.lock();
        state.waiting.push(started);
        state.came += 1;
        let mine = state.came;
        loop {
            if state.known >= mine {
                let failure =
                    state.failures.iter().find(|(from, to, _)| (*from..=*to).contains(&mine));
                return match failure {
                    None => Ok(()),
                    Some((_, _, reason)) => Err(HandlerError::failed(format!(
                        "it is not begun, because that cannot be noted: {reason}"
                    ))),
                };
            }
            if state.writes {
                let waited = self.written.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.writes = true;
            let batch = std::mem::take(&mut state.waiting);
            let (first, last) = (state.known + 1, state.came);
            drop(state);
            let written = write(keeper, &batch);
            state = self.lock();
            state.writes = false;
            state.known = last;
            if let Err(error) = written {
                state.failures.push((first, last, error.to_string()));
                // Those who asked have looked long before so many more failed.
                if state.failures.len() > 64 {
                    state.failures.remove(0);
                }
            }
            self.written.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tried again while the store is away for a moment, and this process may act.
fn write(keeper: &Keeper, batch: &[Started]) -> Result<(), StoreError> {
    let (began, mut pause) = (Instant::now(), PAUSE);
    loop {
        match keeper.store.records().begin_effects(&keeper.lease, batch) {
            Err(error)
                if error.is_temporary()
                    && !keeper.permit.is_over()
                    && began.elapsed() < PATIENCE =>
            {
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            done => return done,
        }
    }
}

/// Whether the effect of a run was noted, where the engine sees it, too.
#[derive(Debug, Default)]
pub(crate) struct IsBegun(AtomicBool);

impl IsBegun {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What is noted when the effect of a job begins.
pub(crate) fn started(job: &Job) -> Option<Started> {
    let kind = ActionKind::Deploy;
    job.key.map(|resource| Started { resource, kind, version: job.version, at: job.started })
}

/// What becomes of a run whose resource has an effect that may have happened.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It is run. The time is when an effect began that the run has to find out about.
    Run(Option<Timestamp>),
    /// It ends without being run.
    Ends(Outcome, Option<Effect>),
}

/// Decides about such a run. A handler that `reads_back` finds out itself what was done.
pub(crate) fn settle(effect: Option<&BegunEffect>, reads_back: bool) -> Verdict {
    let Some(effect) = effect else { return Verdict::Run(None) };
    match effect.choice {
        Some(EffectChoice::RunAgain) => Verdict::Run(None),
        Some(EffectChoice::Done) => {
            let text = format!(
                "it was begun at {}, and its result was lost; somebody said that it is done",
                effect.started
            );
            let outcome = ended(OutcomeStatus::Deployed, LogLevel::Info, text);
            Verdict::Ends(outcome, Some(Effect::Ended(effect.started)))
        }
        None if reads_back => Verdict::Run(Some(effect.started)),
        None => {
            let text = format!("it was begun at {}, and its result was lost", effect.started);
            let outcome = ended(OutcomeStatus::Failed, LogLevel::Error, text);
            Verdict::Ends(outcome, Some(Effect::Unknown))
        }
    }
}

/// How the effect of a run ended that was made. `unknown` is when an earlier effect began that the run had to find out about.
pub(crate) fn effect_of(
    job: &Job,
    performed: &Performed,
    unknown: Option<Timestamp>,
) -> Option<Effect> {
    if job.is_begun.get() {
        return Some(match performed.unclear {
            true => Effect::Unknown,
            false => Effect::Ended(job.started),
        });
    }
    // A run that ends well without beginning the effect has found it done.
    let is_done = !performed.unclear && performed.outcome.status == OutcomeStatus::Deployed;
    unknown.map(|started| if is_done { Effect::Ended(started) } else { Effect::Unknown })
}

/// The line that says what a person has to decide.
pub(crate) fn explain(outcome: &mut Outcome, id: &str) {
    let text = "whether it was done is not known, and it must not be done twice: it is not run again until somebody decides";
    let mut line = ended(OutcomeStatus::Failed, LogLevel::Error, text.to_owned()).log;
    let id = shell_word(id);
    let hint = format!(
        "look whether it was done; then `orrery settle --done {id}` counts it as done, and `orrery settle --again {id}` has it run again"
    );
    line.iter_mut().for_each(|line| {
        line.values.insert("hint".to_owned(), hint.clone().into());
    });
    outcome.log.append(&mut line);
}
