//! Workers of an engine: each takes pending runs, executes them, and reports to the scheduler.

use std::sync::{Arc, MutexGuard};

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_handlers::{JobSource, NextJob, WorkerPool};

use crate::pending_run::{PendingRun, RunKind};
use crate::run_monitor::ensure_run_monitor;
use crate::setup::Notice;
use crate::shared::Shared;
use crate::state::{EngineState, WorkerDemand};
use crate::worker::run_task;
use crate::writer::wake_writer;

/// Workers block while more writes than this are queued.
const QUEUED_WRITES_MAX: usize = 100_000;

impl JobSource for Shared {
    type State = EngineState;
    type Job = PendingRun;

    fn pool(&self) -> &WorkerPool {
        &self.pool
    }

    fn lock(&self) -> MutexGuard<'_, EngineState> {
        Shared::lock(self)
    }

    fn next_job(&self, state: &mut EngineState) -> NextJob<PendingRun> {
        if state.lifecycle.is_closed() {
            return NextJob::Closed;
        }
        state.queue.pop().map_or(NextJob::Empty, NextJob::Run)
    }

    fn run_job<'s>(
        self: &'s Arc<Self>,
        mut state: MutexGuard<'s, EngineState>,
        run: PendingRun,
    ) -> MutexGuard<'s, EngineState> {
        if state.lifecycle.close_if_unauthorized() {
            return self.end_unauthorized(state, &run);
        }
        let agent = state.sites.get(run.agent, run.resource.id.agent());
        let registry = Arc::clone(&state.registry);
        ensure_run_monitor(self, &mut state);
        let WorkerDemand { pending_runs, limit } = state.worker_demand();
        drop(state);
        WorkerPool::grow(self, pending_runs, limit);
        let began = monotonic();
        let (run_outcome, effect) = {
            let _busy = self.pool.busy();
            run_task(&run, &agent, &registry, self)
        };
        if run.kind == RunKind::Deploy && run.skip.is_none() {
            let outcome = run_outcome.outcome.status;
            self.notify(Notice::Ran { outcome, took: began.elapsed() });
        }
        let mut state = Shared::lock(self);
        state.finish_run(run, run_outcome, effect);
        if state.must_wake_writer() {
            wake_writer(self, &mut state);
        }
        if state.scheduler.is_idle() {
            self.progress_changed.notify_all();
        }
        if self.listener.is_some() && state.wants_attention() {
            state.clock.mark_noticed();
            drop(state);
            self.notify(Notice::Attention);
            state = Shared::lock(self);
        }
        while state.writes.len() > QUEUED_WRITES_MAX && !state.lifecycle.is_closed() {
            state = self.queue_space.wait(state).ignore_poison();
        }
        state
    }
}

impl Shared {
    /// Drops the pending runs after the end of the permit. Results of finished runs may still be
    /// persisted, as long as the store accepts them.
    fn end_unauthorized<'s>(
        self: &'s Arc<Self>,
        mut state: MutexGuard<'s, EngineState>,
        run: &PendingRun,
    ) -> MutexGuard<'s, EngineState> {
        // Neither this run nor the pending ones are started.
        state.running.drop_pending(run.task);
        state.drop_pending_runs();
        if !state.writes.is_empty() {
            wake_writer(self, &mut state);
        }
        drop(state);
        self.notify_all_threads();
        self.notify(Notice::Attention);
        Shared::lock(self)
    }
}

/// Wakes or adds workers for pending runs, and the writer for queued writes.
pub(crate) fn wake_workers(shared: &Arc<Shared>) {
    let mut state = Shared::lock(shared);
    if !state.writes.is_empty() {
        wake_writer(shared, &mut state);
    }
    ensure_run_monitor(shared, &mut state);
    let WorkerDemand { pending_runs, limit } = state.worker_demand();
    drop(state);
    WorkerPool::grow(shared, pending_runs, limit);
}
