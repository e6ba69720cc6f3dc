//! Keeps results: takes what has gathered, and writes it in one transaction.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use orrery_model::VersionNumber;
use orrery_model::{Change, ChangeKind, Fact, LogLine, OutcomeStatus, ResourceState, Timestamp};
use orrery_store::{
    ActionKind, ActionRecord, ParameterEffect, Recording, ResourceKey, ResultRecord, Started,
    StateRecord, StoreError,
};

use crate::begun::Effect;
use crate::engine::{Keeper, Notice, Shared};
use crate::targets::Targets;

/// So many results are written without waiting for more.
pub(crate) const BATCH: usize = 2_000;

/// How long results gather otherwise, so that one sync to the disk serves many of them.
const GATHER_FOR: Duration = Duration::from_millis(20);

/// After so long without anything to write, the thread ends.
const STAY_FOR: Duration = Duration::from_secs(2);

/// How long a store that cannot be used is waited for where the right to act has no end, and when the engine ends.
const PATIENCE: Duration = Duration::from_secs(30);
const CLOSING_PATIENCE: Duration = Duration::from_secs(10);

/// The pause before it is tried again, at first and at most.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What the writer does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterState {
    /// There is none: it ends when there was nothing to write for a while.
    Absent,
    /// It waits for something to write.
    Waits,
    /// There is something; it waits for more.
    Gathers,
    Writes,
}

/// Something to be kept.
#[derive(Debug)]
pub(crate) enum Write {
    Processed {
        version: VersionNumber,
        states: Vec<(ResourceKey, ResourceState)>,
    },
    Result(Record),
    /// A run takes long.
    Began(Started),
}

/// What one resource came to; the parts that are `None` or empty stay as they were.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) resource: ResourceKey,
    pub(crate) state: Option<ResourceState>,
    pub(crate) action: Option<Action>,
    pub(crate) facts: Vec<Fact>,
    /// How an effect ended that must not be repeated.
    pub(crate) effect: Option<Effect>,
}

#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) kind: ActionKind,
    pub(crate) version: VersionNumber,
    pub(crate) started: Timestamp,
    pub(crate) finished: Timestamp,
    pub(crate) outcome: OutcomeStatus,
    pub(crate) change: Change,
    pub(crate) wants_absence: bool,
    pub(crate) log: Vec<LogLine>,
}

/// Writes until there is nothing left and the engine is closed. An error that time may mend is no reason to forget what happened:
/// it is tried again as long as this process may act. Any other error ends the engine.
pub(crate) fn run(shared: &Arc<Shared>, keeper: &Keeper, targets: &dyn Targets) {
    loop {
        let writes = {
            let mut core = shared.lock();
            core.writer = WriterState::Waits;
            let until = Instant::now() + STAY_FOR;
            while core.writes.is_empty() && !core.closed {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let waited = shared.written.wait_timeout(core, left);
                core = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if core.writes.is_empty() {
                core.writer = WriterState::Absent;
                return;
            }
            core.writer = WriterState::Gathers;
            let until = Instant::now() + GATHER_FOR;
            while core.writes.len() < BATCH && !core.closed && !core.scheduler.is_idle() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let waited = shared.written.wait_timeout(core, left);
                core = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            core.writer = WriterState::Writes;
            core.take_writes()
        };
        shared.space.notify_all();
        match write_patiently(shared, keeper, targets, &writes) {
            Ok(effect) => {
                let mut core = shared.lock();
                core.resolved += effect.resolved;
                core.writer = WriterState::Waits;
                core.kept += writes.len() as u64;
                let at_rest = core.scheduler.is_idle() && core.writes.is_empty();
                let answers = core.requests.has_answers(core.kept);
                drop(core);
                shared.notify(Notice::Written);
                // What became known is a reason for others to act, whatever else is still going on.
                if at_rest || answers || effect.resolved > 0 {
                    shared.notify(Notice::Attention);
                }
            }
            Err(error) => {
                let mut core = shared.lock();
                core.failure.get_or_insert(error);
                core.closed = true;
                core.writer = WriterState::Absent;
                drop(core);
                shared.wake_everybody();
                shared.notify(Notice::Attention);
                return;
            }
        }
    }
}

/// Writes all of it, however often the store has to be asked.
fn write_patiently(
    shared: &Shared,
    keeper: &Keeper,
    targets: &dyn Targets,
    writes: &[Write],
) -> Result<ParameterEffect, StoreError> {
    let mut progress = Progress::default();
    let (mut since, mut pause) = (None, PAUSE);
    loop {
        let error = match write(keeper, targets, writes, &mut progress) {
            Ok(()) => return Ok(progress.effect),
            Err(error) => error,
        };
        let began = *since.get_or_insert_with(Instant::now);
        let limit = match (shared.lock().closed, keeper.permit.end()) {
            (true, _) => CLOSING_PATIENCE,
            (false, Some(_)) => Duration::MAX,
            (false, None) => PATIENCE,
        };
        if !error.is_temporary() || keeper.permit.is_over() || began.elapsed() > limit {
            return Err(error);
        }
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            results = writes.len(),
            "results cannot be kept now; they are kept in memory, and it is tried again"
        );
        progress.again = true;
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// How far a batch is written.
#[derive(Default)]
struct Progress {
    at: usize,
    /// Nobody knows whether what comes next was written before.
    again: bool,
    effect: ParameterEffect,
}

fn write(
    keeper: &Keeper,
    targets: &dyn Targets,
    writes: &[Write],
    progress: &mut Progress,
) -> Result<(), StoreError> {
    let Keeper { store, lease, .. } = keeper;
    let changed = |write: &Write| {
        matches!(write, Write::Result(Record { action: Some(action), .. })
            if action.change.kind != ChangeKind::NoChange)
    };
    if !progress.again && writes.iter().any(changed) {
        // What is recorded as deployed must not be lost with the power.
        targets.sync();
    }
    while let Some(next) = writes.get(progress.at) {
        let count = match next {
            Write::Processed { version, states } => {
                let records: Vec<_> = states
                    .iter()
                    .map(|(resource, state)| StateRecord { resource: *resource, state })
                    .collect();
                store.process_version(lease, *version, &records)?;
                1
            }
            Write::Began(started) => {
                store.begin(lease, std::slice::from_ref(started))?;
                1
            }
            Write::Result(_) => {
                let rest = writes[progress.at..].iter();
                let results: Vec<&Record> = rest.map_while(as_record).collect();
                let kept = record(keeper, &results, progress.again)?;
                progress.effect += kept;
                // Whether facts made something known when they were first kept, nobody heard.
                let has_facts = results.iter().any(|record| !record.facts.is_empty());
                progress.effect.resolved += usize::from(progress.again && has_facts);
                results.len()
            }
        };
        progress.at += count;
        progress.again = false;
    }
    Ok(())
}

fn record(
    keeper: &Keeper,
    results: &[&Record],
    again: bool,
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
    let recording = Recording { results: &records, ended: &ended, unknown: &unknown, again };
    keeper.store.record(&keeper.lease, &recording)
}

fn as_record(write: &Write) -> Option<&Record> {
    match write {
        Write::Result(record) => Some(record),
        Write::Processed { .. } | Write::Began(_) => None,
    }
}

fn as_result(record: &Record) -> ResultRecord<'_> {
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
