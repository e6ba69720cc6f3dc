//! Worker threads that run handlers.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::error_chain::error_chain;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::clock::now;
use orrery_handlers::run::{HandlerRun, RunContext, RunOutcome, no_handler_outcome};
use orrery_handlers::{
    BeforeChange, CancelCause, EffectGate, Handler, HandlerError, JobSource, NextJob, ServerCalls,
    TargetCache, WorkerPool,
};
use orrery_model::{LogLevel, ResourceId};

use super::calls::CommandCalls;
use super::results::{interrupted_outcome, repetition_line};
use super::{QueuedCommand, Shared, State};
use crate::convert::{CommandContents, CommandSecrets};
use crate::journal::JournalError;
use crate::protocol::{CommandKind, FromAgent, RejectionCode};

/// A worker that got no command for this long exits.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Lifetime of cached data about the machine (packages, users): for commands in close succession.
const CACHE_TTL: Duration = Duration::from_secs(10);

/// Timeout for the server to record the start of a change.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(120);

/// Poll interval for cancellation while waiting.
pub(super) const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

impl JobSource for Shared {
    type State = State;
    type Job = Arc<QueuedCommand>;

    fn pool(&self) -> &WorkerPool {
        &self.pool
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    fn next_job(&self, state: &mut State) -> NextJob<Arc<QueuedCommand>> {
        match next_runnable(state) {
            Some(queued) => NextJob::Run(queued),
            None if !state.queue.is_empty() => NextJob::Blocked,
            None if state.closed => NextJob::Closed,
            None => NextJob::Empty,
        }
    }

    fn run_job<'s>(
        self: &'s Arc<Self>,
        state: MutexGuard<'s, State>,
        queued: Arc<QueuedCommand>,
    ) -> MutexGuard<'s, State> {
        drop(state);
        let run_outcome = {
            let _busy = self.pool.busy();
            self.run_command(&queued)
        };
        let mut state = self.state.lock().ignore_poison();
        let was_busy = state.busy_resources.remove(&queued.resource.id);
        debug_assert!(was_busy, "the resource of a running command is busy");
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
        self.pool.wake_all();
        state
    }
}

impl Shared {
    /// Wakes or adds a worker for the next command.
    pub(super) fn wake_worker(self: &Arc<Self>) {
        let waiting = self.state.lock().ignore_poison().queue.len();
        WorkerPool::grow(self, waiting, self.limits.running_max.max(1));
    }

    /// Runs a command. On an error nothing was done.
    fn run_command(&self, queued: &QueuedCommand) -> Result<RunOutcome, JournalError> {
        let command = &queued.command;
        let id = command.id;
        if let Some(journal) = &self.journal
            && command.what != CommandKind::DryRun
        {
            journal.lock().ignore_poison().record_started(id)?;
        }
        let Some(handler) = self.handler(queued) else {
            return Ok(no_handler_outcome(queued.resource.id.entity()).into());
        };
        // Foreign code does not promise that a part of it can be repeated.
        if queued.repeated
            && command.what == CommandKind::Deploy
            && (command.code.is_some() || handler.must_not_repeat(&queued.resource.attributes))
        {
            return Ok(interrupted_outcome());
        }
        let announce = || self.announce(queued);
        let calls = CommandCalls { shared: self, queued };
        let begin = || calls.begin_effect();
        let has_effects = command.code.is_some() && command.what == CommandKind::Deploy;
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
            effects: has_effects
                .then_some(EffectGate { is_unknown: command.unknown_effect, begin: &begin }),
        };
        let target_cache = self.fresh_cache();
        let context = RunContext {
            cache: &target_cache,
            contents: &CommandContents(&command.contents),
            secrets: &CommandSecrets {
                sent: &command.secrets,
                confined: self.policy.is_some().then_some((&*self.target, &queued.stop)),
            },
            clock: &now,
            log_level: command.log_level,
            server: command.code.is_some().then_some(&calls as &dyn ServerCalls),
        };
        let mut run_outcome = run.run(&*handler, &*self.target, &context);
        if queued.repeated {
            run_outcome.repeated = true;
            if command.log_level <= LogLevel::Info {
                run_outcome.outcome.log.insert(0, repetition_line());
            }
        }
        tracing::debug!(command = %id, resource = %queued.resource.id, status = run_outcome.outcome.status.as_str(), "command ended");
        Ok(run_outcome)
    }

    /// Returns the handler of a command.
    fn handler(&self, queued: &QueuedCommand) -> Option<Arc<dyn Handler>> {
        let command = &queued.command;
        match &command.code {
            Some(code) => {
                let runner = self.code_runner.as_ref()?;
                Some(runner.handler(code, command.resource.version))
            }
            None => self.registry.handler(queued.resource.id.entity()).cloned(),
        }
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
        if let Some(journal) = &self.journal {
            let synced = journal.lock().ignore_poison().sync();
            synced.map_err(|error| HandlerError::failed(error_chain(&error)))?;
        }
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
    debug_assert!(state.active_commands.contains_key(&queued.id()), "a queued command is active");
    state.busy_resources.insert(queued.resource.id.clone());
    Some(queued)
}
