//! The threads that run handlers.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use orrery_executor::{Bench, Performed, Task};
use orrery_handlers::{Announcement, HandlerError, Session, StopReason};
use orrery_model::ResourceId;

use super::answering::cut_off;
use super::{Item, Shared, State, lock};
use crate::errors::chain;
use crate::journal::JournalError;
use crate::protocol::{FromAgent, RejectionCode, What};
use crate::wire::{Carried, CarriedSecrets};

/// After so long without a command, a worker ends.
const STAY_FOR: Duration = Duration::from_secs(5);

/// What was learned about the machine (packages, users) is used for commands that follow one another, and not later.
const LEARNED_FOR: Duration = Duration::from_secs(10);

/// If nobody notes within this time that a change begins, it does not.
const ANNOUNCE_WITHIN: Duration = Duration::from_secs(120);

/// So often somebody who waits looks whether it still should.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Shared {
    /// Sees to it that somebody takes the next command.
    pub(super) fn hire(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        self.work.notify_one();
        // Who was woken counts as idle until it has the lock: several commands may be meant for one and the same worker.
        let short_of_workers = state.queue.len() > state.idle;
        if !short_of_workers || state.workers >= self.limits.running_max.max(1) {
            return;
        }
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("worker".to_owned());
        match thread.spawn(move || shared.work()) {
            Ok(_) => state.workers += 1,
            // Those that are there go on; the next command tries again.
            Err(error) => tracing::warn!(%error, "no further worker could be started"),
        }
    }

    fn work(self: Arc<Self>) {
        let mut state = lock(&self.state);
        loop {
            let Some(item) = next(&mut state) else {
                if state.closed && state.queue.is_empty() {
                    break;
                }
                state.idle += 1;
                let waited = self.work.wait_timeout(state, STAY_FOR);
                let (lock, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = lock;
                state.idle -= 1;
                if timeout.timed_out() && state.queue.is_empty() {
                    break;
                }
                continue;
            };
            drop(state);
            let performed = self.perform(&item);
            state = lock(&self.state);
            state.occupied.remove(&item.resource.id);
            match performed {
                Ok(performed) => state.ended.push((item, performed)),
                Err(error) => {
                    let (id, reason) = (item.id(), chain(&error));
                    tracing::error!(command = %id, reason, "a command cannot be begun");
                    // Under one lock: if it comes again in between, nobody would answer it.
                    state.underway.remove(&id);
                    self.say(FromAgent::Rejected { id, code: RejectionCode::Unable, reason });
                }
            }
            self.ended.notify_all();
            // Somebody may have waited for this resource.
            self.work.notify_all();
        }
        state.workers -= 1;
    }

    /// If there is an error, nothing was done.
    fn perform(&self, item: &Item) -> Result<Performed, JournalError> {
        let command = &item.command;
        let id = command.id;
        if command.what != What::DryRun {
            lock(&self.journal).started(id)?;
        }
        let handler = self.registry.handler(item.resource.id.entity());
        let attributes = &item.resource.attributes;
        if item.repeated
            && command.what == What::Deploy
            && handler.is_some_and(|handler| handler.must_not_repeat(attributes))
        {
            return Ok(cut_off());
        }
        let announce = || self.announce(item);
        let task = Task {
            purpose: command.purpose(),
            resource: &item.resource,
            version: command.resource.version,
            deployed_before: command.deployed_before,
            changed_dependencies: &command.changed_dependencies,
            reason: &command.reason,
            stop: &item.stop,
            announce: command.wants_announcement.then_some(Announcement(&announce)),
            effects: None,
        };
        let learned = self.learned();
        let bench = Bench {
            registry: &self.registry,
            target: &*self.target,
            session: &learned,
            contents: &Carried(&command.contents),
            secrets: &CarriedSecrets(&command.secrets),
            log_level: command.log_level,
        };
        let mut performed = task.run(&bench);
        performed.repeated |= item.repeated;
        tracing::debug!(command = %id, resource = %item.resource.id, status = performed.outcome.status.as_str(), "a command ended");
        Ok(performed)
    }

    fn learned(&self) -> Arc<Session> {
        let mut learned = lock(&self.learned);
        if learned.0.elapsed() > LEARNED_FOR {
            *learned = (Instant::now(), Arc::default());
        }
        Arc::clone(&learned.1)
    }

    /// Waits until the server has noted that a change begins.
    fn announce(&self, item: &Item) -> Result<(), HandlerError> {
        // Power may be lost between the change and the answer; that it began must be known then.
        lock(&self.journal).sync().map_err(|error| HandlerError::failed(chain(&error)))?;
        let id = item.id();
        lock(&self.state).announcing.insert(id, false);
        self.say(FromAgent::Announce { id });
        let until = Instant::now() + ANNOUNCE_WITHIN;
        let mut state = lock(&self.state);
        let noted = loop {
            if state.announcing.get(&id) == Some(&true) {
                break Ok(());
            }
            match item.stop.reason() {
                Some(StopReason::Cancelled) => break Err(HandlerError::Cancelled),
                Some(StopReason::DeadlinePassed) => break Err(HandlerError::DeadlinePassed),
                None if Instant::now() >= until => {
                    let text =
                        "the server did not note in time that a change begins; nothing was changed";
                    break Err(HandlerError::failed(text));
                }
                None => {}
            }
            let waited = self.noted.wait_timeout(state, LOOK_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.announcing.remove(&id);
        noted
    }
}

/// The first command whose resource is free.
fn next(state: &mut State) -> Option<Arc<Item>> {
    let is_free = |id: &ResourceId| !state.occupied.contains(id);
    let at = state.queue.iter().position(|item| is_free(&item.resource.id))?;
    let item = state.queue.remove(at)?;
    state.occupied.insert(item.resource.id.clone());
    Some(item)
}
