//! Worker threads that run handlers.

use std::sync::Arc;
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::error_chain::error_chain;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::clock::now;
use orrery_handlers::run::{HandlerRun, RunContext, RunOutcome, no_handler_outcome};
use orrery_handlers::{BeforeChange, CancelCause, HandlerError, TargetCache};
use orrery_model::ResourceId;

use super::results::interrupted_outcome;
use super::{QueuedCommand, Shared, State};
use crate::convert::{CommandContents, CommandSecrets};
use crate::journal::JournalError;
use crate::protocol::{CommandKind, FromAgent, RejectionCode};

/// A worker that got no command for this long exits.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Lifetime of cached data about the machine (packages, users): for commands in close succession.
const CACHE_TTL: Duration = Duration::from_secs(10);

/// Timeout for the server to record the start of a change.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(120);

/// Poll interval for cancellation while waiting.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

impl Shared {
    /// Wakes or spawns a worker for the next command.
    pub(super) fn spawn_worker(self: &Arc<Self>) {
        let mut state = self.state.lock().ignore_poison();
        self.commands_queued.notify_one();
        // A woken worker counts as idle until it has the lock: several commands may target the same
        // worker.
        let short_of_workers = state.queue.len() > state.idle;
        if !short_of_workers || state.workers >= self.limits.running_max.max(1) {
            return;
        }
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("worker".to_owned());
        match thread.spawn(move || shared.worker_loop()) {
            Ok(_) => state.workers += 1,
            // Existing workers continue; the next command retries.
            Err(error) => tracing::warn!(%error, "cannot start another worker"),
        }
    }

    fn worker_loop(self: Arc<Self>) {
        let mut state = self.state.lock().ignore_poison();
        loop {
            let Some(queued) = next_runnable(&mut state) else {
                if state.closed && state.queue.is_empty() {
                    break;
                }
                state.idle += 1;
                let waited = self.commands_queued.wait_timeout(state, IDLE_TIMEOUT);
                let (lock, timeout) = waited.ignore_poison();
                state = lock;
                state.idle -= 1;
                if timeout.timed_out() && state.queue.is_empty() {
                    break;
                }
                continue;
            };
            drop(state);
            let run_outcome = self.run_command(&queued);
            state = self.state.lock().ignore_poison();
            state.busy_resources.remove(&queued.resource.id);
            match run_outcome {
                Ok(run_outcome) => state.ended.push((queued, run_outcome)),
                Err(error) => {
                    let (id, reason) = (queued.id(), error_chain(&error));
                    tracing::error!(command = %id, reason, "cannot start a command");
                    // Under one lock: otherwise a repeated command in between would get no result.
                    state.active_commands.remove(&id);
                    self.send(FromAgent::Rejected { id, code: RejectionCode::Unable, reason });
                }
            }
            self.ended.notify_all();
            // A queued command may wait for this resource.
            self.commands_queued.notify_all();
        }
        state.workers -= 1;
    }

    /// Runs a command. On an error nothing was done.
    fn run_command(&self, queued: &QueuedCommand) -> Result<RunOutcome, JournalError> {
        let command = &queued.command;
        let id = command.id;
        if command.what != CommandKind::DryRun {
            self.journal.lock().ignore_poison().record_started(id)?;
        }
        let entity = queued.resource.id.entity();
        let Some(handler) = self.registry.handler(entity) else {
            return Ok(no_handler_outcome(entity).into());
        };
        if queued.repeated
            && command.what == CommandKind::Deploy
            && handler.must_not_repeat(&queued.resource.attributes)
        {
            return Ok(interrupted_outcome());
        }
        let announce = || self.announce(queued);
        let run = HandlerRun {
            purpose: command.purpose(),
            resource: &queued.resource,
            version: command.resource.version,
            epoch: command.epoch,
            deployed_before: command.deployed_before,
            changed_dependencies: &command.changed_dependencies,
            reason: &command.reason,
            stop: &queued.stop,
            before_change: command.wants_announcement.then_some(BeforeChange(&announce)),
            effects: None,
        };
        let target_cache = self.fresh_cache();
        let context = RunContext {
            cache: &target_cache,
            contents: &CommandContents(&command.contents),
            secrets: &CommandSecrets(&command.secrets),
            clock: &now,
            log_level: command.log_level,
        };
        let mut run_outcome = run.run(&**handler, &*self.target, &context);
        run_outcome.repeated |= queued.repeated;
        tracing::debug!(command = %id, resource = %queued.resource.id, status = run_outcome.outcome.status.as_str(), "command ended");
        Ok(run_outcome)
    }

    fn fresh_cache(&self) -> Arc<TargetCache> {
        let mut target_cache = self.target_cache.lock().ignore_poison();
        if target_cache.0.elapsed() > CACHE_TTL {
            *target_cache = (monotonic(), Arc::default());
        }
        Arc::clone(&target_cache.1)
    }

    /// Waits until the server has recorded the start of a change.
    fn announce(&self, queued: &QueuedCommand) -> Result<(), HandlerError> {
        // After a power loss between change and result, the start must be known.
        self.journal
            .lock()
            .ignore_poison()
            .sync()
            .map_err(|error| HandlerError::failed(error_chain(&error)))?;
        let id = queued.id();
        self.state.lock().ignore_poison().announcing.insert(id, false);
        self.send(FromAgent::Announce { id });
        let until = monotonic() + ANNOUNCE_TIMEOUT;
        let mut state = self.state.lock().ignore_poison();
        let noted = loop {
            if state.announcing.get(&id) == Some(&true) {
                break Ok(());
            }
            match queued.stop.reason() {
                Some(CancelCause::Cancelled) => break Err(HandlerError::Cancelled),
                Some(CancelCause::DeadlinePassed) => break Err(HandlerError::DeadlinePassed),
                None if monotonic() >= until => {
                    let text = "the server did not record the start of the change in time; nothing was changed";
                    break Err(HandlerError::failed(text));
                }
                None => {}
            }
            let waited = self.change_recorded.wait_timeout(state, CANCEL_POLL_INTERVAL);
            state = waited.ignore_poison().0;
        };
        state.announcing.remove(&id);
        noted
    }
}

/// Takes the first command of a free resource.
fn next_runnable(state: &mut State) -> Option<Arc<QueuedCommand>> {
    let is_free = |id: &ResourceId| !state.busy_resources.contains(id);
    let at = state.queue.iter().position(|queued| is_free(&queued.resource.id))?;
    let queued = state.queue.remove(at)?;
    state.busy_resources.insert(queued.resource.id.clone());
    Some(queued)
}
