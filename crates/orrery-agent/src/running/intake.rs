//! What becomes of a command when it arrives: it was answered before, it is underway, it is refused, or it waits for its turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_handlers::Stop;
use uuid::Uuid;

use super::{Item, Shared, lock};
use crate::errors::chain;
use crate::journal::Known;
use crate::protocol::{Command, FromAgent, RejectionCode, What};

/// Why a command is not carried out.
enum Refused {
    Busy,
    Rejected(RejectionCode, String),
}

impl Shared {
    pub(super) fn take(self: &Arc<Self>, command: Command) {
        let _one_at_a_time = lock(&self.intake);
        let id = command.id;
        if self.is_underway(id) {
            return;
        }
        let repeated = match lock(&self.journal).find(id) {
            Ok(Some(Known::Finished(answer))) => return self.say(FromAgent::Result(answer)),
            Ok(Some(Known::Started)) => true,
            Ok(None) => false,
            // It was done, and nobody knows what it came to: it is done again from its read.
            Err(error) => {
                tracing::error!(%error, command = %id, "an answer of the journal is lost");
                true
            }
        };
        match self.enqueue(command, repeated) {
            Ok(()) => {
                self.say(FromAgent::Accepted { id });
                self.hire();
            }
            Err(Refused::Busy) => self.say(FromAgent::Busy { id }),
            Err(Refused::Rejected(code, reason)) => {
                tracing::warn!(command = %id, ?code, reason, "a command is refused");
                self.say(FromAgent::Rejected { id, code, reason });
            }
        }
    }

    /// Says how far a command is that is underway.
    fn is_underway(&self, id: Uuid) -> bool {
        let (underway, asks) = {
            let state = lock(&self.state);
            (state.underway.contains_key(&id), state.announcing.get(&id) == Some(&false))
        };
        if underway {
            self.say(FromAgent::Accepted { id });
        }
        if asks {
            self.say(FromAgent::Announce { id });
        }
        underway
    }

    fn enqueue(&self, command: Command, repeated: bool) -> Result<(), Refused> {
        let arrived = Instant::now();
        let refuse = |code, reason: String| Err(Refused::Rejected(code, reason));
        let resource = match command.resource.read() {
            Ok(resource) => resource,
            Err(error) => return refuse(RejectionCode::Unreadable, error.to_string()),
        };
        if command.environment != self.environment {
            let text = format!("this agent serves the environment {}", self.environment);
            return refuse(RejectionCode::Unreadable, text);
        }
        if !self.names.iter().any(|name| name == resource.id.agent()) {
            let text = format!("this agent serves {}", self.names.join(", "));
            return refuse(RejectionCode::Unreadable, text);
        }
        if self.registry.handler(resource.id.entity()).is_none() {
            let text = format!(
                "this agent has no handler for {}; it may be older than the server",
                resource.id.entity()
            );
            return refuse(RejectionCode::UnknownType, text);
        }
        self.pass_the_fence(&command)?;
        let mut state = lock(&self.state);
        let full = state.underway.len() >= self.limits.running_max + self.limits.queued_max;
        if state.closed || full {
            return Err(Refused::Busy);
        }
        let deadline =
            command.deadline_ms.and_then(|left| arrived.checked_add(Duration::from_millis(left)));
        let stop = deadline.map_or_else(Stop::never, Stop::at);
        let item = Arc::new(Item { command, resource, stop, repeated });
        state.underway.insert(item.id(), Arc::clone(&item));
        state.queue.push_back(item);
        Ok(())
    }

    /// Whoever acts under an older epoch than somebody before must not act any more.
    fn pass_the_fence(&self, command: &Command) -> Result<(), Refused> {
        if command.what == What::DryRun {
            return Ok(());
        }
        let refuse = |code, reason: &str| Err(Refused::Rejected(code, reason.to_owned()));
        let Some(epoch) = command.epoch else {
            return refuse(RejectionCode::Unreadable, "the command does not say its epoch");
        };
        let mut journal = lock(&self.journal);
        if epoch < journal.epoch() {
            let text = format!(
                "its epoch is {epoch}, and there was {}; if the server was restored from a backup, this agent has to join again with --replace",
                journal.epoch()
            );
            return refuse(RejectionCode::Fenced, &text);
        }
        if epoch == journal.epoch() {
            return Ok(());
        }
        if let Err(error) = journal.raise_epoch(epoch) {
            return refuse(RejectionCode::Unable, &chain(&error));
        }
        drop(journal);
        self.fence_off(epoch);
        Ok(())
    }

    /// Ends what was asked for under older epochs.
    fn fence_off(&self, epoch: u64) {
        let is_older = |item: &Item| item.command.epoch.is_some_and(|older| older < epoch);
        let mut fenced = Vec::new();
        {
            let mut state = lock(&self.state);
            state.queue.retain(|item| {
                let keep = !is_older(item);
                if !keep {
                    fenced.push(item.id());
                }
                keep
            });
            for id in &fenced {
                state.underway.remove(id);
            }
            state
                .underway
                .values()
                .filter(|item| is_older(item))
                .for_each(|item| item.stop.cancel());
        }
        self.noted.notify_all();
        self.ended.notify_all();
        for id in fenced {
            let reason = format!("somebody acts under epoch {epoch} by now");
            self.say(FromAgent::Rejected { id, code: RejectionCode::Fenced, reason });
        }
    }
}
