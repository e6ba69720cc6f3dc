//! Roll-up: the state of a cluster and its operation, derived from the states of its resources.
//!
//! Everything is derived from the store and written only if it still holds, so a roll-up may be
//! repeated, interrupted, or done by another process.

use orrery_api::{ClusterOperationKind, ClusterOperationRequest, ClusterProgress};
use orrery_cluster::intent::ClusterIntent;
use orrery_cluster::render::{self, RenderPolicy, entity};
use orrery_model::{Status, Timestamp};
use orrery_store::{
    ClusterOperationPhase, ClusterOperationRecord, ClusterPhase, ClusterQuota, ClusterRecord,
    Lease, OperationEnd, ResourceQuery, Store, StoreError,
};

use super::intents::{self, ClusterState};
use super::operations::{self, compute, stored_policy};
use super::progress;
use super::storing::{self, Attempt, SYSTEM};
use crate::error::ServerError;

/// Failed attempts to reach a machine after which it is replaced.
const UNREACHABLE_MAX: u32 = 3;
/// Machines of one node that an operation replaces.
const REPLACEMENTS_MAX: u32 = 3;
/// Maximum number of unreachable machines that are replaced together.
const REPLACED_MAX: usize = 1_000;

/// Result of a roll-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RollUp {
    /// Nothing is expected to change without further runs.
    Settled,
    /// An operation is in progress.
    Open,
    /// Something was written.
    Changed,
}

/// Number of resources by what is expected of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    total: u64,
    done: u64,
    /// Given up by the engine.
    parked: u64,
    /// Run, or will run without a request.
    active: u64,
}

fn tally(store: &Store, cluster: &ClusterRecord) -> Result<Tally, StoreError> {
    let mut tally = Tally::default();
    for count in store.resources().count(cluster.environment)? {
        match count.status {
            // What no version has any more.
            Status::Orphaned => continue,
            Status::Deployed => tally.done += count.count,
            Status::Skipped if count.parked == 0 => {}
            _ => {
                tally.parked += count.parked;
                tally.active += count.count.saturating_sub(count.parked);
            }
        }
        tally.total += count.count;
    }
    Ok(tally)
}

/// Updates the operation and the status of a cluster.
pub(crate) fn roll_up(
    store: &Store,
    id: &str,
    lease: &Lease,
    now: Timestamp,
) -> Result<RollUp, ServerError> {
    let record = store.clusters().get(id)?;
    if record.terminated.is_some() {
        return Ok(RollUp::Settled);
    }
    let processed = store.engine().processed_version(record.environment)?;
    match store.cluster_operations().open(record.key)? {
        Some(open) if open.state == ClusterOperationPhase::Running => {
            if processed.is_none_or(|processed| processed < open.version) {
                return Ok(RollUp::Open);
            }
            follow(store, &record, &open, lease, now)
        }
        Some(_) => Ok(RollUp::Settled),
        None => watch(store, &record, now),
    }
}

/// Follows an open operation.
fn follow(
    store: &Store,
    record: &ClusterRecord,
    open: &ClusterOperationRecord,
    lease: &Lease,
    now: Timestamp,
) -> Result<RollUp, ServerError> {
    let tally = tally(store, record)?;
    if tally.done == tally.total {
        return complete(store, record, open, lease, now);
    }
    let unreachable = unreachable(store, record)?;
    if !unreachable.is_empty() && amend(store, record, open, &unreachable, lease, now)? {
        return Ok(RollUp::Changed);
    }
    let is_stuck = tally.parked > 0 && tally.active == 0;
    // A lost outcome waits for an operator, who may take any time.
    if !is_stuck || !store.effects().unknown(record.environment)?.is_empty() {
        return Ok(RollUp::Open);
    }
    let progress = progress::of_environment(store, record.environment)?;
    let message = failure_text(&progress, tally);
    end(
        store,
        record,
        open,
        ClusterOperationPhase::Failed,
        failed_status(open),
        &message,
        &progress,
        now,
    )
}

/// Follows a transition, or ends the operation.
fn complete(
    store: &Store,
    record: &ClusterRecord,
    open: &ClusterOperationRecord,
    lease: &Lease,
    now: Timestamp,
) -> Result<RollUp, ServerError> {
    if open.is_transition {
        let intent = intents::read(store, record.key, open.intent)?;
        let settled =
            render::settled(&intent).map_err(|error| ServerError::Internal(error.to_string()))?;
        storing::settle(store, record, open, settled, lease, now)?;
        return Ok(RollUp::Changed);
    }
    let is_deletion = open.kind == ClusterOperationKind::Delete.as_str();
    let is_gone = is_deletion || record.size == 0;
    let status = if is_gone { ClusterPhase::Terminated } else { ClusterPhase::Active };
    let progress = progress::of_environment(store, record.environment)?;
    end(store, record, open, ClusterOperationPhase::Done, status, "", &progress, now)
}

/// Status of a cluster after a failed operation.
pub(crate) fn failed_status(operation: &ClusterOperationRecord) -> ClusterPhase {
    let halfway = [ClusterOperationKind::Create.as_str(), ClusterOperationKind::Delete.as_str()];
    match halfway.contains(&&*operation.kind) {
        true => ClusterPhase::Incomplete,
        false => ClusterPhase::Inconsistent,
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of one record")]
fn end(
    store: &Store,
    record: &ClusterRecord,
    open: &ClusterOperationRecord,
    state: ClusterOperationPhase,
    status: ClusterPhase,
    message: &str,
    progress: &ClusterProgress,
    now: Timestamp,
) -> Result<RollUp, ServerError> {
    let progress = serde_json::to_value(progress).unwrap_or_default();
    let end = OperationEnd { state, status, message, progress: Some(&progress), halt: false };
    store.cluster_operations().end(&record.id, open.number, &end, now)?;
    tracing::info!(
        cluster = %record.name,
        operation = open.number,
        kind = %open.kind,
        state = state.as_str(),
        message,
        "cluster operation ended"
    );
    Ok(RollUp::Changed)
}

fn failure_text(progress: &ClusterProgress, tally: Tally) -> String {
    let failed = format!("{} of {} resources failed", tally.parked, tally.total);
    match progress.failures.first() {
        None => failed,
        Some(first) => format!("{failed}, such as {}: {}", first.resource, first.message),
    }
}

/// Nodes whose machine was not reached in several attempts.
fn unreachable(store: &Store, record: &ClusterRecord) -> Result<Vec<String>, StoreError> {
    let query = ResourceQuery {
        entity: Some(entity::REACHABLE.to_owned()),
        statuses: vec![Status::Failed, Status::Unavailable],
        ..ResourceQuery::default()
    };
    let lines = store.resources().list(record.environment, &query, None, REPLACED_MAX)?.lines;
    let failed = lines.into_iter().filter(|line| line.summary.state.attempts >= UNREACHABLE_MAX);
    Ok(failed.map(|line| line.summary.id.agent().to_owned()).collect())
}

/// Replaces machines in an intent. `None` if nothing is left to be replaced.
fn replaced(
    intent: &ClusterIntent,
    base: Option<&ClusterIntent>,
    nodes: &[String],
) -> Result<Option<ClusterIntent>, ServerError> {
    let mut next = None;
    for name in nodes {
        let Some(node) = intent.nodes.get(name) else { continue };
        let before = base.and_then(|base| base.nodes.get(name)).map_or(1, |node| node.incarnation);
        if node.incarnation.saturating_sub(before) >= REPLACEMENTS_MAX {
            continue;
        }
        let current = next.as_ref().unwrap_or(intent);
        let replaced = current.replace(name);
        next = Some(replaced.map_err(|error| ServerError::Internal(error.to_string()))?);
    }
    Ok(next)
}

/// Replaces the unreachable machines of an open operation. Returns false if each was replaced often
/// enough.
fn amend(
    store: &Store,
    record: &ClusterRecord,
    open: &ClusterOperationRecord,
    unreachable: &[String],
    lease: &Lease,
    now: Timestamp,
) -> Result<bool, ServerError> {
    let ClusterState { intent, existing, .. } = intents::load(store, &record.id)?;
    let base = match open.base {
        0 => None,
        base => Some(intents::read(store, record.key, base)?),
    };
    let Some(next) = replaced(&intent, base.as_ref(), unreachable)? else { return Ok(false) };
    let kind = ClusterOperationKind::Replace;
    let policy = stored_policy(&open.request);
    let computed = compute((kind, open.request.clone()), Some(&existing), &next, &policy)?;
    tracing::warn!(cluster = %record.name, nodes = ?unreachable, "replacing unreachable machines");
    storing::amend(store, record, open, &computed, lease, now)?;
    Ok(true)
}

/// Watches a cluster without an open operation.
fn watch(store: &Store, record: &ClusterRecord, now: Timestamp) -> Result<RollUp, ServerError> {
    if !matches!(record.status, ClusterPhase::Active | ClusterPhase::Degraded) {
        return Ok(RollUp::Settled);
    }
    let unreachable = unreachable(store, record)?;
    if !unreachable.is_empty() {
        let state = intents::load(store, &record.id)?;
        if let Some(next) = replaced(&state.intent, Some(&state.intent), &unreachable)? {
            let request = ClusterOperationRequest {
                node: unreachable.first().cloned(),
                ..ClusterOperationRequest::new(ClusterOperationKind::Replace)
            };
            let told = serde_json::to_value(&request).unwrap_or_default();
            let replace = (ClusterOperationKind::Replace, told);
            let policy = RenderPolicy::default();
            let computed = compute(replace, Some(&state.existing), &next, &policy)?;
            let attempt = Attempt { author: SYSTEM, quota: ClusterQuota::default(), now };
            tracing::warn!(cluster = %record.name, nodes = ?unreachable, "replacing unreachable machines");
            storing::begin(store, (record, None), &computed, None, attempt)?;
            return Ok(RollUp::Changed);
        }
    }
    let tally = tally(store, record)?;
    let (status, message) = match tally.total - tally.done {
        0 => (ClusterPhase::Active, String::new()),
        differing => {
            let text =
                format!("{differing} of {} resources are not as they should be", tally.total);
            (ClusterPhase::Degraded, text)
        }
    };
    if (record.status, &record.message) != (status, &message) {
        store.clusters().set_health(record, status, &message, now)?;
        return Ok(RollUp::Changed);
    }
    Ok(RollUp::Settled)
}

/// Computes and begins the deletion of a cluster whose lease has ended.
pub(crate) fn expire(
    store: &Store,
    record: &ClusterRecord,
    now: Timestamp,
) -> Result<(), ServerError> {
    let state = intents::load(store, &record.id)?;
    let request = ClusterOperationRequest::new(ClusterOperationKind::Delete);
    let told = serde_json::to_value(&request).unwrap_or_default();
    let deletion = (ClusterOperationKind::Delete, told);
    let policy = operations::policy(&request);
    let computed = compute(deletion, Some(&state.existing), &state.intent.delete(), &policy)?;
    let attempt = Attempt { author: SYSTEM, quota: ClusterQuota::default(), now };
    storing::begin(store, (&state.record, None), &computed, None, attempt)?;
    Ok(())
}
