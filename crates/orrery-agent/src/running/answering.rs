//! The thread that keeps what commands came to, and then tells it. What gathers meanwhile shares the waiting for the disk.

use std::io;
use std::sync::{Arc, PoisonError};

use orrery_executor::Performed;
use orrery_model::{Change, ChangeKind, LogLevel, LogLine, Outcome, OutcomeStatus};

use super::{Item, Shared, lock};
use crate::clock::now;
use crate::errors::chain;
use crate::journal::JournalError;
use crate::protocol::{Answer, FromAgent, What};

/// Longer answers are shortened, in bytes.
const ANSWER_MAX: usize = 16 * 1024 * 1024;

impl Shared {
    pub(super) fn answer(&self) {
        loop {
            let ended = {
                let mut state = lock(&self.state);
                loop {
                    if !state.ended.is_empty() {
                        break std::mem::take(&mut state.ended);
                    }
                    if state.closed && state.underway.is_empty() {
                        return;
                    }
                    state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            };
            self.keep_and_tell(ended);
        }
    }

    fn keep(&self, answers: &[Answer]) -> Result<(), JournalError> {
        if answers.is_empty() {
            return Ok(());
        }
        let mut journal = lock(&self.journal);
        journal.finished(answers)?;
        // Where nothing was changed, a loss of power costs another look.
        let harmless = |answer: &Answer| {
            answer.outcome.status == OutcomeStatus::Deployed
                && answer.outcome.change.kind == ChangeKind::NoChange
                && !answer.announced
        };
        if answers.iter().all(harmless) { Ok(()) } else { journal.sync() }
    }

    fn keep_and_tell(&self, ended: Vec<(Arc<Item>, Performed)>) {
        let changed = |performed: &Performed| performed.outcome.change.kind != ChangeKind::NoChange;
        if ended.iter().any(|(_, performed)| changed(performed))
            && let Err(error) = self.target.sync()
        {
            tracing::warn!(%error, "what was written may not survive a loss of power");
        }
        let mut kept = Vec::new();
        let mut told = Vec::new();
        for (item, performed) in ended {
            let answer = shortened(Answer::new(item.id(), performed));
            // A dry run can be asked for again without harm.
            if item.command.what == What::DryRun { told.push(answer) } else { kept.push(answer) }
        }
        if let Err(error) = self.keep(&kept) {
            // What is done is done, and is told; if that is lost too, it is done again from its read.
            tracing::error!(error = chain(&error), "results cannot be kept");
        }
        {
            // Under one lock: who finds that nothing is underway knows that everything is told.
            let mut state = lock(&self.state);
            for answer in kept.into_iter().chain(told) {
                state.underway.remove(&answer.id);
                self.say(FromAgent::Result(Box::new(answer)));
            }
        }
        self.ended.notify_all();
    }
}

/// What a command comes to that was cancelled while it waited.
pub(super) fn never_begun() -> Performed {
    let message = "it was cancelled before it began".to_owned();
    let values = serde_json::Map::new();
    let line = LogLine { at: now(), level: LogLevel::Warning, message, values };
    let (status, change) = (OutcomeStatus::Skipped, Change::default());
    Outcome { status, change, facts: Vec::new(), log: vec![line] }.into()
}

/// What a command comes to that had begun before this agent was restarted, and must not be done twice.
pub(super) fn cut_off() -> Performed {
    let message = "the agent was restarted in the middle of it".to_owned();
    let values = serde_json::Map::new();
    let line = LogLine { at: now(), level: LogLevel::Error, message, values };
    let (status, change) = (OutcomeStatus::Failed, Change::default());
    let outcome = Outcome { status, change, facts: Vec::new(), log: vec![line] };
    Performed { unclear: true, repeated: true, ..outcome.into() }
}

/// Measures what is written, and keeps nothing of it.
struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Cuts an answer down that would not fit into a message.
fn shortened(mut answer: Answer) -> Answer {
    let mut counted = Counted(0);
    let length = serde_json::to_writer(&mut counted, &answer).map_or(0, |()| counted.0);
    if length <= ANSWER_MAX {
        return answer;
    }
    let message = format!(
        "the log and the changes have {length} bytes, too many to be sent, and are left out"
    );
    let values = serde_json::Map::new();
    answer.outcome.log = vec![LogLine { at: now(), level: LogLevel::Warning, message, values }];
    answer.outcome.change.attributes.clear();
    answer.outcome.facts.clear();
    answer
}
