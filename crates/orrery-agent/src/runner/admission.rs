//! Admission of commands: repeat a known result, queue, or reject.

use std::sync::Arc;
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::error_chain::error_chain;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::CancelToken;
use uuid::Uuid;

use super::{CommandScope, QueuedCommand, Shared};
use crate::journal::JournalEntry;
use crate::protocol::{Command, CommandKind, FromAgent, RejectionCode};

/// Reason why a command is not executed.
enum AdmissionError {
    Busy,
    Rejected(RejectionCode, String),
}

impl Shared {
    pub(super) fn admit(self: &Arc<Self>, command: Command) {
        let _one_at_a_time = self.admission.lock().ignore_poison();
        let id = command.id;
        if self.report_active(id) {
            return;
        }
        let known = self.journal.as_ref().map(|journal| journal.lock().ignore_poison().find(id));
        let repeated = match known.unwrap_or(Ok(None)) {
            Ok(Some(JournalEntry::Finished(result))) => {
                return self.send(FromAgent::Result(result));
            }
            Ok(Some(JournalEntry::Started)) => true,
            Ok(None) => false,
            // It was executed, and its result is lost: repeat it from its read.
            Err(error) => {
                tracing::error!(%error, command = %id, "cannot read a result from the journal");
                true
            }
        };
        match self.enqueue(command, repeated) {
            Ok(()) => {
                self.send(FromAgent::Accepted { id });
                self.wake_worker();
            }
            Err(AdmissionError::Busy) => self.send(FromAgent::Busy { id }),
            Err(AdmissionError::Rejected(code, reason)) => {
                tracing::warn!(command = %id, ?code, reason, "command rejected");
                self.send(FromAgent::Rejected { id, code, reason });
            }
        }
    }

    /// Reports the state of an active command; returns true if it is active.
    fn report_active(&self, id: Uuid) -> bool {
        let (is_active, is_announcing) = {
            let state = self.state.lock().ignore_poison();
            (state.active_commands.contains_key(&id), state.announcing.get(&id) == Some(&false))
        };
        if is_active {
            self.send(FromAgent::Accepted { id });
        }
        if is_announcing {
            self.send(FromAgent::Announce { id });
        }
        if is_active {
            self.repeat_calls(id);
        }
        is_active
    }

    fn enqueue(&self, command: Command, repeated: bool) -> Result<(), AdmissionError> {
        let arrived = monotonic();
        let refuse = |code, reason: String| Err(AdmissionError::Rejected(code, reason));
        let resource = match command.resource.to_resource() {
            Ok(resource) => resource,
            Err(error) => return refuse(RejectionCode::Unreadable, error.to_string()),
        };
        if let CommandScope::Agents { environment, names } = &self.scope {
            if command.environment != *environment {
                let text = format!("this agent serves the environment {environment}");
                return refuse(RejectionCode::Unreadable, text);
            }
            if !names.iter().any(|name| name == resource.id.agent()) {
                let text = format!("this agent serves {}", names.join(", "));
                return refuse(RejectionCode::Unreadable, text);
            }
        }
        if command.code.is_some() && self.code_runner.is_none() {
            let text = "this agent runs native handlers only, and the handler is in Python";
            return refuse(RejectionCode::UnknownType, text.to_owned());
        }
        if command.code.is_none() && self.registry.handler(resource.id.entity()).is_none() {
            let text = format!(
                "this agent has no handler for {}; it may be older than the server",
                resource.id.entity()
            );
            return refuse(RejectionCode::UnknownType, text);
        }
        let entity = resource.id.entity();
        if self.policy.as_ref().is_some_and(|policy| !policy.allows_type(entity)) {
            let text = format!("the policy of the machine does not list the type {entity}");
            return refuse(RejectionCode::Policy, text);
        }
        if command.code.is_some()
            && self.policy.as_ref().is_some_and(|policy| !policy.allows_python())
        {
            let text = format!(
                "the handler of {entity} is in Python, whose code can do whatever the user of the agent can; the policy of the machine does not allow that with `python = true`"
            );
            return refuse(RejectionCode::Policy, text);
        }
        self.check_epoch(&command)?;
        let mut state = self.state.lock().ignore_poison();
        let full = state.active_commands.len() >= self.limits.running_max + self.limits.queued_max;
        if state.closed || full {
            return Err(AdmissionError::Busy);
        }
        let deadline =
            command.deadline_ms.and_then(|left| arrived.checked_add(Duration::from_millis(left)));
        let stop = deadline.map_or_else(CancelToken::never, CancelToken::at);
        let queued = Arc::new(QueuedCommand { command, resource, stop, repeated });
        state.active_commands.insert(queued.id(), Arc::clone(&queued));
        state.queue.push_back(queued);
        Ok(())
    }

    /// Rejects commands of an epoch older than the highest one seen.
    fn check_epoch(&self, command: &Command) -> Result<(), AdmissionError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if command.what == CommandKind::DryRun {
            return Ok(());
        }
        let refuse = |code, reason: &str| Err(AdmissionError::Rejected(code, reason.to_owned()));
        let Some(epoch) = command.epoch else {
            return refuse(RejectionCode::Unreadable, "the command has no epoch");
        };
        let mut journal = journal.lock().ignore_poison();
        if epoch < journal.epoch() {
            let text = format!(
                "epoch {epoch} is older than {}, the highest seen; if the server was restored from a backup, join this agent again with --replace",
                journal.epoch()
            );
            return refuse(RejectionCode::Fenced, &text);
        }
        if epoch == journal.epoch() {
            return Ok(());
        }
        if let Err(error) = journal.raise_epoch(epoch) {
            return refuse(RejectionCode::Unable, &error_chain(&error));
        }
        drop(journal);
        self.cancel_older_epochs(epoch);
        Ok(())
    }

    /// Cancels commands of older epochs.
    fn cancel_older_epochs(&self, epoch: u64) {
        let is_older =
            |queued: &QueuedCommand| queued.command.epoch.is_some_and(|older| older < epoch);
        let mut fenced = Vec::new();
        {
            let mut state = self.state.lock().ignore_poison();
            state.queue.retain(|queued| {
                let keep = !is_older(queued);
                if !keep {
                    fenced.push(queued.id());
                }
                keep
            });
            for id in &fenced {
                state.active_commands.remove(id);
            }
            state
                .active_commands
                .values()
                .filter(|queued| is_older(queued))
                .for_each(|queued| queued.stop.cancel());
        }
        self.change_recorded.notify_all();
        self.ended.notify_all();
        for id in fenced {
            let reason = format!("superseded by epoch {epoch}");
            self.send(FromAgent::Rejected { id, code: RejectionCode::Fenced, reason });
        }
    }
}
