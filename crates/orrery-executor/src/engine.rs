//! The engine: threads around the shared state.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::Permit;
use orrery_handlers::clock::now;
use orrery_scheduler::{Event, Scheduler};

use crate::concurrency::{Concurrency, SLOW_RUN, WorkerDemand};
use crate::effects::EffectLog;
use crate::long_running::LONG_RUN;
use crate::pending_run::RunKind;
use crate::pool::{Pool, Threads};
use crate::progress::{Progress, Tally};
use crate::recovery::{DesiredState, StartState};
use crate::requests::RequestId;
use crate::setup::{EngineError, EngineSetup, Notice};
use crate::shared::Shared;
use crate::state::EngineState;
use crate::worker::run_task;
use crate::writer::wake_writer;

/// Workers block while more writes than this are queued.
const QUEUED_WRITES_MAX: usize = 100_000;
/// A worker that got no run for this long exits.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum pause between two records of long runs.
const MONITOR_INTERVAL: Duration = Duration::from_millis(100);

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
        engine.shared.lock().unknown = unknown;
        let stays_halted = std::mem::replace(&mut recovery.halted, true);
        engine.shared.lock().recover(recovery, &former, &states);
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
        let state = EngineState::new(
            scheduler,
            desired,
            registry,
            Arc::clone(&targets),
            concurrency,
            permit,
        );
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            contents,
            secrets,
            log_level,
            store_handle,
            effect_log: EffectLog::default(),
            pool: Pool::default(),
            runs_pending: Condvar::new(),
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
                state.scheduler.is_idle() || state.failure.is_some() || time_left.is_zero();
            if progress_due {
                break state.take_progress();
            }
            // Under the lock: otherwise a worker that finishes the last run now would wake no
            // thread.
            spawn_workers(&self.shared, state.worker_demand());
            ensure_run_monitor(&self.shared, &mut state);
            if !state.writes.is_empty() {
                wake_writer(&self.shared, &mut state);
            }
            let due = state.wake_at.map(|at| at.since(now()));
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
        self.shared.lock().failure.is_some()
    }

    /// Returns true after the permit ended: the engine then starts nothing more.
    pub fn is_unauthorized(&self) -> bool {
        self.shared.lock().is_unauthorized
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
        match state.failure.take() {
            Some(error) => Err(error.into()),
            None => Ok(state.tally()),
        }
    }

    fn close(&mut self) {
        {
            let mut state = self.shared.lock();
            if !state.writes.is_empty() && state.failure.is_none() {
                wake_writer(&self.shared, &mut state);
            }
            state.closed = true;
        }
        self.shared.notify_all_threads();
        let writer = self.shared.writer.lock().ignore_poison().take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!("the writer crashed");
        }
        self.shared.pool.wait_for_exit();
    }

    /// Wakes or spawns workers for pending runs.
    pub(crate) fn wake_workers(&self) {
        let mut state = self.shared.lock();
        if !state.writes.is_empty() {
            wake_writer(&self.shared, &mut state);
        }
        ensure_run_monitor(&self.shared, &mut state);
        let demand = state.worker_demand();
        drop(state);
        spawn_workers(&self.shared, demand);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

/// Starts or wakes the run monitor, which adds workers for held-up tasks and records long runs.
/// One thread does both, and exists only while needed.
pub(crate) fn ensure_run_monitor(shared: &Arc<Shared>, state: &mut EngineState) {
    let is_at_capacity = state.is_at_capacity();
    if state.has_run_monitor {
        if is_at_capacity && !std::mem::replace(&mut state.monitor_alerted, true) {
            shared.monitor_wakeup.notify_one();
        }
        return;
    }
    if !is_at_capacity && (shared.store_handle.is_none() || !state.has_unrecorded_runs()) {
        return;
    }
    let owner = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("run-monitor".to_owned());
    match thread.spawn(move || watch_long_runs(&owner)) {
        Ok(thread) => {
            state.has_run_monitor = true;
            shared.pool.lock().add(thread);
        }
        // The next run retries.
        Err(error) => tracing::warn!(%error, "cannot start the run monitor thread"),
    }
}

/// Monitors running tasks. The first record waits: most runs end earlier, and recording each would
/// cost more than the run.
fn watch_long_runs(shared: &Arc<Shared>) {
    let mut state = shared.lock();
    let mut record_after = Some(LONG_RUN);
    while !state.closed {
        state.adjust_concurrency();
        spawn_workers(shared, state.worker_demand());
        state.monitor_alerted = state.is_at_capacity();
        let record = record_after.map(|after| after.max(MONITOR_INTERVAL));
        let check = state.monitor_alerted.then_some(SLOW_RUN);
        let Some(pause) = [record, check].into_iter().flatten().min() else { break };
        let waited = shared.monitor_wakeup.wait_timeout(state, pause);
        state = waited.ignore_poison().0;
        record_after = state.record_long_runs();
        if !state.writes.is_empty() && !state.closed {
            wake_writer(shared, &mut state);
        }
    }
    state.has_run_monitor = false;
}

/// Ensures enough workers for pending runs, within the limit.
fn spawn_workers(shared: &Arc<Shared>, WorkerDemand { pending_runs, limit }: WorkerDemand) {
    if pending_runs == 0 {
        return;
    }
    let mut state = shared.pool.lock();
    for _ in 0..pending_runs.min(state.idle) {
        shared.runs_pending.notify_one();
    }
    let mut missing = pending_runs.saturating_sub(state.idle);
    while missing > 0 && state.workers < limit {
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("worker".to_owned());
        match thread.spawn(move || worker_loop(&shared)) {
            Ok(thread) => {
                state.workers += 1;
                state.add(thread);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot start another worker");
                return;
            }
        }
        missing -= 1;
    }
}

/// Main loop of a worker.
fn worker_loop(shared: &Arc<Shared>) {
    let count = |change: fn(&mut Threads)| change(&mut shared.pool.lock());
    let mut state = shared.lock();
    loop {
        if state.closed {
            break;
        }
        let Some(run) = state.pending_runs.pop_front() else {
            count(|pool| pool.idle += 1);
            let waited = shared.runs_pending.wait_timeout(state, IDLE_TIMEOUT);
            let (lock, timeout) = waited.ignore_poison();
            state = lock;
            count(|pool| pool.idle -= 1);
            if timeout.timed_out() && state.pending_runs.is_empty() {
                break;
            }
            continue;
        };
        if state.permit.as_ref().is_some_and(Permit::is_over) {
            // Results of finished runs may still be persisted, as long as the store accepts them.
            state.is_unauthorized = true;
            state.closed = true;
            // Neither this run nor the pending ones are started.
            state.running_tasks.remove(&run.task);
            state.drop_pending_runs();
            if !state.writes.is_empty() {
                wake_writer(shared, &mut state);
            }
            drop(state);
            shared.notify_all_threads();
            shared.notify(Notice::Attention);
            state = shared.lock();
            continue;
        }
        let (site, registry) = (state.agent_context(&run), Arc::clone(&state.registry));
        ensure_run_monitor(shared, &mut state);
        let demand = state.worker_demand();
        drop(state);
        spawn_workers(shared, demand);
        let began = monotonic();
        count(|pool| pool.busy += 1);
        let (run_outcome, effect) = run_task(&run, &site, &registry, shared);
        count(|pool| pool.busy -= 1);
        if run.kind == RunKind::Deploy && run.skip.is_none() {
            let outcome = run_outcome.outcome.status;
            shared.notify(Notice::Ran { outcome, took: began.elapsed() });
        }
        state = shared.lock();
        state.finish_run(run, run_outcome, effect);
        if state.must_wake_writer() {
            wake_writer(shared, &mut state);
        }
        if state.scheduler.is_idle() {
            shared.progress_changed.notify_all();
        }
        let wants_attention = state.scheduler.is_idle()
            || state.wake_moved
            || !state.parked.is_empty()
            || !state.became_unknown.is_empty()
            || state.requests.has_finished(state.persisted);
        if shared.listener.is_some() && wants_attention {
            state.wake_moved = false;
            drop(state);
            shared.notify(Notice::Attention);
            state = shared.lock();
        }
        while state.writes.len() > QUEUED_WRITES_MAX && !state.closed {
            state = shared.queue_space.wait(state).ignore_poison();
        }
    }
    // Under the lock: a later run must see that there is one worker less.
    count(|pool| pool.workers -= 1);
    drop(state);
}
