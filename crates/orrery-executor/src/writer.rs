//! Persists results: writes everything that is queued in one transaction.

use std::sync::Arc;
use std::time::Duration;

use orrery_base::clock::monotonic;
use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_model::ChangeKind;
use orrery_store::{
    ActionRecord, ParameterEffect, ResultBatch, ResultRecord, StateRecord, StoreError,
};

use crate::effects::Effect;
use crate::placement::TargetResolver;
use crate::setup::{Notice, StoreHandle};
use crate::shared::Shared;
use crate::state::EngineState;
use crate::write_queue::{BATCH_SIZE, ResourceRecord, Write, WriterState};

/// Time to collect a smaller batch, so one disk sync serves many results.
const BATCH_WINDOW: Duration = Duration::from_millis(20);

/// The thread exits after this long without a write.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Retry period for an unavailable store where the permit has no end, and when the engine closes.
const RETRY_FOR: Duration = Duration::from_secs(30);
const CLOSING_RETRY_FOR: Duration = Duration::from_secs(10);

/// Pause before a retry, initial and maximum.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Wakes the writer. Its thread exists only while there is something to write.
pub(crate) fn wake_writer(shared: &Arc<Shared>, state: &mut EngineState) {
    if state.writes.writer() != WriterState::Absent {
        shared.writes_queued.notify_one();
        return;
    }
    let Some(store_handle) = shared.store_handle.clone() else { return };
    let (owner, targets) = (Arc::clone(shared), Arc::clone(&shared.targets));
    match spawn_named("writer", move || writer_loop(&owner, &store_handle, &*targets)) {
        Ok(thread) => {
            state.writes.set_writer(WriterState::Idle);
            *shared.writer.lock().ignore_poison() = Some(thread);
        }
        // The next result retries.
        Err(error) => tracing::error!(%error, "cannot start the writer thread"),
    }
}

/// Writes until the queue is empty and the engine is closed. A temporary error is retried as long
/// as the permit holds; any other error ends the engine.
fn writer_loop(shared: &Arc<Shared>, store_handle: &StoreHandle, targets: &dyn TargetResolver) {
    loop {
        let writes = {
            let mut state = shared.lock();
            state.writes.set_writer(WriterState::Idle);
            let until = monotonic() + IDLE_TIMEOUT;
            while state.writes.is_empty() && !state.lifecycle.is_closed() {
                let time_left = until.saturating_duration_since(monotonic());
                if time_left.is_zero() {
                    break;
                }
                let waited = shared.writes_queued.wait_timeout(state, time_left);
                state = waited.ignore_poison().0;
            }
            if state.writes.is_empty() {
                state.writes.set_writer(WriterState::Absent);
                return;
            }
            state.writes.set_writer(WriterState::Batching);
            let until = monotonic() + BATCH_WINDOW;
            while state.writes.len() < BATCH_SIZE
                && !state.lifecycle.is_closed()
                && !state.scheduler.is_idle()
            {
                let time_left = until.saturating_duration_since(monotonic());
                if time_left.is_zero() {
                    break;
                }
                let waited = shared.writes_queued.wait_timeout(state, time_left);
                state = waited.ignore_poison().0;
            }
            state.writes.take_batch()
        };
        shared.queue_space.notify_all();
        match write_with_retry(shared, store_handle, targets, &writes) {
            Ok(effect) => {
                let mut state = shared.lock();
                state.progress.add_resolved(effect.resolved);
                state.writes.finish_batch(writes.len());
                let at_rest = state.scheduler.is_idle() && state.writes.is_empty();
                let answers = state.requests.has_finished(state.writes.persisted());
                drop(state);
                shared.notify(Notice::Written);
                // Resolved unknowns concern other components, whatever else is running.
                if at_rest || answers || effect.resolved > 0 {
                    shared.notify(Notice::Attention);
                }
            }
            Err(error) => {
                let mut state = shared.lock();
                state.lifecycle.fail(error);
                state.writes.set_writer(WriterState::Absent);
                drop(state);
                shared.notify_all_threads();
                shared.notify(Notice::Attention);
                return;
            }
        }
    }
}

/// Writes a batch, with retries.
fn write_with_retry(
    shared: &Shared,
    store_handle: &StoreHandle,
    targets: &dyn TargetResolver,
    writes: &[Write],
) -> Result<ParameterEffect, StoreError> {
    let mut progress = BatchProgress::default();
    let (mut since, mut pause) = (None, RETRY_PAUSE);
    loop {
        let error = match write(store_handle, targets, writes, &mut progress) {
            Ok(()) => return Ok(progress.effect),
            Err(error) => error,
        };
        let began = *since.get_or_insert_with(monotonic);
        let limit = match (shared.lock().lifecycle.is_closed(), store_handle.permit.end()) {
            (true, _) => CLOSING_RETRY_FOR,
            (false, Some(_)) => Duration::MAX,
            (false, None) => RETRY_FOR,
        };
        if !error.is_temporary() || store_handle.permit.is_over() || began.elapsed() > limit {
            return Err(error);
        }
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            results = writes.len(),
            "cannot store results; retrying"
        );
        progress.is_retry = true;
        std::thread::sleep(pause);
        pause = (pause * 2).min(RETRY_PAUSE_MAX);
    }
}

/// Progress within a batch.
#[derive(Default)]
struct BatchProgress {
    at: usize,
    /// The next write may have been committed by a failed attempt.
    is_retry: bool,
    effect: ParameterEffect,
}

fn write(
    store_handle: &StoreHandle,
    targets: &dyn TargetResolver,
    writes: &[Write],
    progress: &mut BatchProgress,
) -> Result<(), StoreError> {
    let StoreHandle { store, lease, .. } = store_handle;
    let changed = |write: &Write| {
        matches!(write, Write::Result(ResourceRecord { action: Some(action), .. })
            if action.change.kind != ChangeKind::NoChange)
    };
    if !progress.is_retry && writes.iter().any(changed) {
        // What is recorded as deployed must survive a power loss.
        targets.sync();
    }
    while let Some(next) = writes.get(progress.at) {
        let count = match next {
            Write::Processed { version, states } => {
                let records: Vec<_> = states
                    .iter()
                    .map(|(resource, state)| StateRecord { resource: *resource, state })
                    .collect();
                store.engine().process_version(lease, *version, &records)?;
                1
            }
            Write::Began(started) => {
                store.engine().begin_actions(lease, std::slice::from_ref(started))?;
                1
            }
            Write::Result(_) => {
                let rest = writes[progress.at..].iter();
                let results: Vec<&ResourceRecord> = rest.map_while(as_record).collect();
                let stored = record(store_handle, &results, progress.is_retry)?;
                progress.effect += stored;
                // The result of the first attempt is lost, so facts may have resolved unknowns.
                let has_facts = results.iter().any(|record| !record.facts.is_empty());
                progress.effect.resolved += usize::from(progress.is_retry && has_facts);
                results.len()
            }
        };
        progress.at += count;
        progress.is_retry = false;
    }
    Ok(())
}

fn record(
    store_handle: &StoreHandle,
    results: &[&ResourceRecord],
    is_retry: bool,
) -> Result<ParameterEffect, StoreError> {
    let records: Vec<ResultRecord<'_>> = results.iter().map(|record| as_result(record)).collect();
    let (mut ended, mut unknown) = (Vec::new(), Vec::new());
    for record in results {
        match record.effect {
            Some(Effect::Ended(started)) => ended.push((record.resource, started)),
            Some(Effect::Unknown) => unknown.push(record.resource),
            None => {}
        }
    }
    let (ended, unknown) = (&ended, &unknown);
    let batch = ResultBatch { results: &records, ended, unknown, is_retry };
    store_handle.store.engine().record_batch(&store_handle.lease, &batch)
}

fn as_record(write: &Write) -> Option<&ResourceRecord> {
    match write {
        Write::Result(record) => Some(record),
        Write::Processed { .. } | Write::Began(_) => None,
    }
}

fn as_result(record: &ResourceRecord) -> ResultRecord<'_> {
    let action = record.action.as_ref().map(|action| ActionRecord {
        kind: action.kind,
        version: action.version,
        started: action.started,
        finished: action.finished,
        outcome: action.outcome,
        change: &action.change,
        wants_absence: action.wants_absence,
        log: &action.log,
    });
    ResultRecord {
        resource: record.resource,
        state: record.state.as_ref(),
        action,
        facts: &record.facts,
    }
}
