//! Keeps results: takes what has gathered, and writes it in one transaction.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use orrery_model::VersionNumber;
use orrery_model::{Change, ChangeKind, Fact, LogLine, OutcomeStatus, ResourceState, Timestamp};
use orrery_store::{
    ActionKind, ActionRecord, Lease, ParameterEffect, ResourceKey, ResultRecord, Started,
    StateRecord, Store, StoreError,
};

use crate::engine::{Notice, Shared};
use crate::targets::Targets;

/// So many results are written without waiting for more.
pub(crate) const BATCH: usize = 2_000;

/// How long results gather otherwise, so that one sync to the disk serves many of them.
const GATHER_FOR: Duration = Duration::from_millis(20);

/// After so long without anything to write, the thread ends.
const STAY_FOR: Duration = Duration::from_secs(2);

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

/// Writes until there is nothing left and the engine is closed. An error ends the engine.
pub(crate) fn run(shared: &Arc<Shared>, store: &dyn Store, lease: &Lease, targets: &dyn Targets) {
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
        match write(store, lease, targets, &writes) {
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

fn write(
    store: &dyn Store,
    lease: &Lease,
    targets: &dyn Targets,
    writes: &[Write],
) -> Result<ParameterEffect, StoreError> {
    let mut effect = ParameterEffect::default();
    let changed = |write: &Write| {
        matches!(write, Write::Result(Record { action: Some(action), .. })
            if action.change.kind != ChangeKind::NoChange)
    };
    if writes.iter().any(changed) {
        // What is recorded as deployed must not be lost with the power.
        targets.sync();
    }
    let mut at = 0;
    while at < writes.len() {
        if let Write::Processed { version, states } = &writes[at] {
            let records: Vec<_> = states
                .iter()
                .map(|(resource, state)| StateRecord { resource: *resource, state })
                .collect();
            store.process_version(lease, *version, &records)?;
            at += 1;
            continue;
        }
        if let Write::Began(started) = &writes[at] {
            store.begin(lease, std::slice::from_ref(started))?;
            at += 1;
            continue;
        }
        let rest = &writes[at..];
        let count = rest.iter().take_while(|write| matches!(write, Write::Result(_))).count();
        let records: Vec<ResultRecord<'_>> = rest[..count].iter().filter_map(as_result).collect();
        effect += store.record_results(lease, &records)?;
        at += count;
    }
    Ok(effect)
}

fn as_result(write: &Write) -> Option<ResultRecord<'_>> {
    let Write::Result(record) = write else { return None };
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
    Some(ResultRecord {
        resource: record.resource,
        state: record.state.as_ref(),
        action,
        facts: &record.facts,
    })
}
