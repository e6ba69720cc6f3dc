//! The engine: threads around the shared state.

mod requests;
mod updates;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::WorkerPool;
use orrery_handlers::clock::now;
use orrery_scheduler::{Event, Scheduler};

use crate::concurrency::Concurrency;
use crate::effects::EffectLog;
use crate::engine_handle::EngineHandle;
use crate::progress::{Progress, Tally};
use crate::recovery::{DesiredState, StartState};
use crate::request_tracker::RequestId;
use crate::run_monitor::ensure_run_monitor;
use crate::setup::{EngineError, EngineSetup};
use crate::shared::Shared;
use crate::state::{EngineState, WorkerDemand};
use crate::workers::wake_workers;
use crate::writer::wake_writer;

/// A worker that got no run for this long exits.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum wait for threads without a running handler when an engine closes. A remaining thread
/// holds the store open, and SQLite keeps the write-ahead log until the last connection closes.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A running engine.
pub struct Engine {
    shared: Arc<Shared>,
}

impl Engine {
    /// Starts from the stored state. Runs begin after the `first` events are handled, so work that
    /// both require is done once.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        setup: EngineSetup,
        start: StartState,
        first: Vec<Event>,
    ) -> Result<Self, EngineError> {
        let started = Self::start_with(setup, start, |engine| {
            first.into_iter().for_each(|event| engine.handle_event(event));
        });
        started.map(|(engine, ())| engine)
    }

    /// Starts like `start`, and tracks the first events as requests.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start_with_requests(
        setup: EngineSetup,
        start: StartState,
        requests: Vec<Event>,
    ) -> Result<(Self, Vec<RequestId>), EngineError> {
        Self::start_with(setup, start, |engine| {
            requests.into_iter().map(|event| engine.submit(event)).collect()
        })
    }

    fn start_with<T>(
        setup: EngineSetup,
        start: StartState,
        first: impl FnOnce(&Self) -> T,
    ) -> Result<(Self, T), EngineError> {
        let StartState { desired, mut recovery, former, states, unknown } = start;
        let engine = Engine::new_idle(setup, desired)?;
        let stays_halted = std::mem::replace(&mut recovery.halted, true);
        engine.shared.lock().recover(recovery, &former, &states, unknown);
        let result = first(&engine);
        if !stays_halted {
            engine.handle_event(Event::Resume);
        }
        Ok((engine, result))
    }

    /// Creates an engine with a desired state and no managed resources. Dry runs use it as is.
    pub(crate) fn new_idle(setup: EngineSetup, desired: DesiredState) -> Result<Self, EngineError> {
        let EngineSetup {
            registry,
            targets,
            contents,
            secrets,
            mut settings,
            drift_policies,
            workers,
            log_level,
            store_handle,
            listener,
        } = setup;
        let workers = match settings.running_max {
            Some(limit) => workers.at_most(usize::try_from(limit).unwrap_or(usize::MAX)),
            None => workers,
        };
        let concurrency = Concurrency::new(workers);
        settings.running_max = concurrency.limit();
        let scheduler = Scheduler::new(settings);
        let permit = store_handle.as_ref().map(|store_handle| store_handle.permit.clone());
        let mut state = EngineState::new(
            scheduler,
            desired,
            registry,
            Arc::clone(&targets),
            concurrency,
            permit,
        );
        state.drift_policies = drift_policies;
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            contents,
            secrets,
            log_level,
            store_handle,
            effect_log: EffectLog::default(),
            pool: WorkerPool::new(IDLE_TIMEOUT),
            writes_queued: Condvar::new(),
            queue_space: Condvar::new(),
            progress_changed: Condvar::new(),
            monitor_wakeup: Condvar::new(),
            targets,
            listener,
            writer: Mutex::default(),
        });
        Ok(Engine { shared })
    }

    /// Handles an event: a request, a pause, settings.
    pub fn handle_event(&self, event: Event) {
        self.shared.lock().handle_external_event(event);
        self.wake_workers();
    }

    /// Access for other threads.
    pub fn handle(&self) -> EngineHandle {
        EngineHandle::new(&self.shared)
    }

    /// Reads the scheduler.
    pub fn with_scheduler<T>(&self, look: impl FnOnce(&Scheduler) -> T) -> T {
        look(&self.shared.lock().scheduler)
    }

    /// Waits until the engine is idle, or for `limit`, and returns the progress. Scheduler time
    /// advances only while a caller waits here.
    pub fn wait(&self, limit: Duration) -> Progress {
        let until = monotonic() + limit;
        let mut state = self.shared.lock();
        let progress = loop {
            state.tick_if_due();
            let time_left = until.saturating_duration_since(monotonic());
            let progress_due =
                state.scheduler.is_idle() || state.lifecycle.has_failed() || time_left.is_zero();
            if progress_due {
                break state.take_progress();
            }
            // Under the lock: otherwise a worker that finishes the last run now would wake no
            // thread.
            let WorkerDemand { pending_runs, limit } = state.worker_demand();
            WorkerPool::grow(&self.shared, pending_runs, limit);
            ensure_run_monitor(&self.shared, &mut state);
            if !state.writes.is_empty() {
                wake_writer(&self.shared, &mut state);
            }
            let due = state.clock.wake_at().map(|at| at.since(now()));
            let pause =
                due.map_or(time_left, |due| time_left.min(due)).max(Duration::from_millis(1));
            let waited = self.shared.progress_changed.wait_timeout(state, pause);
            state = waited.ignore_poison().0;
        };
        drop(state);
        self.wake_workers();
        progress
    }

    /// Returns true after a failed write: the engine then starts nothing more.
    pub fn has_failed(&self) -> bool {
        self.shared.lock().lifecycle.has_failed()
    }

    /// Returns true after the permit ended: the engine then starts nothing more.
    pub fn is_unauthorized(&self) -> bool {
        self.shared.lock().lifecycle.is_unauthorized()
    }

    pub(crate) fn with_state<T>(&self, work: impl FnOnce(&mut EngineState) -> T) -> T {
        work(&mut self.shared.lock())
    }

    /// Closes the engine after all queued results are written. Does not wait for running handlers.
    ///
    /// # Errors
    /// If a result cannot be persisted.
    pub fn finish(mut self) -> Result<Tally, EngineError> {
        self.close();
        let mut state = self.shared.lock();
        match state.lifecycle.take_failure() {
            Some(error) => Err(error.into()),
            None => Ok(state.progress.tally()),
        }
    }

    fn close(&mut self) {
        {
            let mut state = self.shared.lock();
            if !state.writes.is_empty() && !state.lifecycle.has_failed() {
                wake_writer(&self.shared, &mut state);
            }
            state.lifecycle.close();
        }
        self.shared.notify_all_threads();
        let writer = self.shared.writer.lock().ignore_poison().take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!("the writer crashed");
        }
        self.shared.pool.wait_for_exit(EXIT_TIMEOUT);
    }

    fn wake_workers(&self) {
        wake_workers(&self.shared);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}
