//! Result thread: persists results, then sends them. Results that arrive meanwhile share one disk
//! sync.

use std::io;
use std::sync::Arc;

use orrery_base::error_chain::error_chain;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::clock::now;
use orrery_handlers::run::RunOutcome;
use orrery_model::{Change, ChangeKind, LogLevel, LogLine, Outcome, OutcomeStatus};
use serde_json::Value;

use super::{QueuedCommand, Shared};
use crate::calls::is_too_deep;
use crate::journal::JournalError;
use crate::protocol::{CommandKind, CommandResult, FromAgent};

/// Maximum size of a result, in bytes; larger ones are truncated.
const RESULT_MAX: usize = 16 * 1024 * 1024;

impl Shared {
    pub(super) fn result_loop(&self) {
        loop {
            let ended = {
                let mut state = self.state.lock().ignore_poison();
                loop {
                    if !state.ended.is_empty() {
                        break std::mem::take(&mut state.ended);
                    }
                    if state.closed && state.active_commands.is_empty() {
                        return;
                    }
                    state = self.ended.wait(state).ignore_poison();
                }
            };
            self.persist_and_send(ended);
        }
    }

    fn persist(&self, results: &[CommandResult]) -> Result<(), JournalError> {
        let Some(journal) = self.journal.as_ref().filter(|_| !results.is_empty()) else {
            return Ok(());
        };
        let mut journal = journal.lock().ignore_poison();
        journal.record_finished(results)?;
        // Without a change, a power loss costs only another run.
        let harmless = |result: &CommandResult| {
            result.outcome.status == OutcomeStatus::Deployed
                && result.outcome.change.kind == ChangeKind::NoChange
                && !result.announced
        };
        if results.iter().all(harmless) { Ok(()) } else { journal.sync() }
    }

    fn persist_and_send(&self, ended: Vec<(Arc<QueuedCommand>, RunOutcome)>) {
        let changed =
            |run_outcome: &RunOutcome| run_outcome.outcome.change.kind != ChangeKind::NoChange;
        if ended.iter().any(|(_, run_outcome)| changed(run_outcome))
            && let Err(error) = self.target.sync()
        {
            tracing::warn!(%error, "cannot sync written files; they may not survive a power loss");
        }
        let mut persistent = Vec::new();
        let mut transient = Vec::new();
        for (queued, run_outcome) in ended {
            let result = truncate_result(CommandResult::new(queued.id(), run_outcome));
            // A dry run can be repeated without harm.
            if queued.command.what == CommandKind::DryRun {
                transient.push(result);
            } else {
                persistent.push(result);
            }
        }
        if let Err(error) = self.persist(&persistent) {
            // The command is done, so its result is sent; if that is lost, too, it is repeated from
            // its read.
            tracing::error!(error = error_chain(&error), "cannot store results");
        }
        {
            // Under one lock: an empty `active_commands` means that every result is sent.
            let mut state = self.state.lock().ignore_poison();
            for result in persistent.into_iter().chain(transient) {
                state.active_commands.remove(&result.id);
                self.send(FromAgent::Result(Box::new(result)));
            }
        }
        self.ended.notify_all();
    }
}

/// Outcome of a command that was cancelled while queued.
pub(super) fn cancelled_outcome() -> RunOutcome {
    let message = "cancelled before it started".to_owned();
    let values = serde_json::Map::new();
    let line = LogLine { at: now(), level: LogLevel::Warning, message, values };
    let (status, change) = (OutcomeStatus::Skipped, Change::default());
    Outcome { status, change, facts: Vec::new(), log: vec![line] }.into()
}

/// Outcome of a command that started before a restart of the agent and must not be repeated.
pub(super) fn interrupted_outcome() -> RunOutcome {
    let message = "the agent was restarted during the run, which is not repeated: what it did is unknown, and the next run starts by reading the current state".to_owned();
    let values = serde_json::Map::new();
    let line = LogLine { at: now(), level: LogLevel::Error, message, values };
    let (status, change) = (OutcomeStatus::Failed, Change::default());
    let outcome = Outcome { status, change, facts: Vec::new(), log: vec![line] };
    RunOutcome { unclear: true, repeated: true, ..outcome.into() }
}

/// Log line of a command that started before a restart of the agent and runs again.
pub(super) fn repetition_line() -> LogLine {
    let message = "the agent was restarted during the run, which it repeats: commands that it had left running were ended first".to_owned();
    LogLine { at: now(), level: LogLevel::Info, message, values: serde_json::Map::new() }
}

/// Replaces values that are nested too deeply for parsers.
fn replace_deep_values(result: &mut CommandResult) {
    let replace = |value: &mut Value| {
        if is_too_deep(value) {
            *value = "left out: it is nested too deeply".into();
        }
    };
    result.outcome.log.iter_mut().flat_map(|line| line.values.values_mut()).for_each(replace);
    for change in &mut result.outcome.change.attributes {
        replace(&mut change.current);
        replace(&mut change.desired);
    }
}

/// Counts written bytes and drops them.
struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Truncates a result that exceeds the message size.
fn truncate_result(mut result: CommandResult) -> CommandResult {
    replace_deep_values(&mut result);
    let mut counted = ByteCounter(0);
    let length = serde_json::to_writer(&mut counted, &result).map_or(0, |()| counted.0);
    if length <= RESULT_MAX {
        return result;
    }
    let message = format!("dropped the log and changes: {length} bytes exceed the message size");
    let values = serde_json::Map::new();
    result.outcome.log = vec![LogLine { at: now(), level: LogLevel::Warning, message, values }];
    result.outcome.change.attributes.clear();
    result.outcome.facts.clear();
    result
}
