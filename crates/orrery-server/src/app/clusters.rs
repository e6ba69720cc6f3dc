//! Clusters: creation, operations, leases, and what is known about their nodes.

use std::collections::BTreeMap;

use orrery_api::{
    AbortPolicy, ClusterOperationKind, ClusterOperationRequest, ClusterPlan, ClusterUpdate,
    NewCluster,
};
use orrery_model::{ProjectId, Timestamp};
use orrery_store::{
    ClusterOperationPhase, ClusterOperationRecord, ClusterPhase, ClusterQuota, ClusterRecord,
    ClusterRecordChange, DocumentSnapshot, LeaseEnd, NewClusterRecord, OperationEnd, Store,
    StoreError,
};
use rand::TryRng as _;
use rand::rngs::SysRng;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::auth::Caller;
use crate::cluster::{self, Attempt, ClusterState, ComputedOperation, OperationInputs};
use crate::error::ServerError;
use crate::services::Services;

/// Length of the id of a cluster.
const ID_LENGTH: usize = 8;
const NAME_MAX: usize = 63;
const DESCRIPTION_MAX: usize = 255;
/// Failed runs after which a resource of a cluster is parked, and its operation fails.
const ATTEMPTS_MAX: u32 = 5;
/// Seconds between retries.
const RETRY_SECONDS: u32 = 10;
/// Seconds between health checks of a small cluster; one more for each ten nodes.
const REPAIR_SECONDS: u32 = 60;

/// Answer to the request of a change.
pub(crate) enum Requested {
    Plan(ClusterPlan),
    Operation(Box<(ClusterRecord, ClusterOperationRecord)>),
}

/// What an operation reads from the store before it is computed.
struct Snapshot {
    documents: DocumentSnapshot,
    quota: ClusterQuota,
    digests: BTreeMap<String, String>,
}

/// Id of a new cluster: letters and digits, a letter first.
fn new_id() -> Result<String, ServerError> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
    const ALL: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut bytes = [0; ID_LENGTH];
    SysRng.try_fill_bytes(&mut bytes).map_err(|error| {
        ServerError::Internal(format!("the machine gives no random numbers: {error}"))
    })?;
    let pick = |(at, byte): (usize, &u8)| {
        let from = if at == 0 { LETTERS } else { ALL };
        char::from(from[usize::from(*byte) % from.len()])
    };
    Ok(bytes.iter().enumerate().map(pick).collect())
}

fn check_name(name: &str) -> Result<(), ServerError> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = (1..=NAME_MAX).contains(&name.len())
        && name.chars().all(is_allowed)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if is_name {
        return Ok(());
    }
    let reason = format!(
        "must have 1 to {NAME_MAX} lower-case letters, digits and hyphens, with no hyphen at either end"
    );
    Err(ServerError::field("name", reason))
}

fn check_description(description: &str) -> Result<(), ServerError> {
    match description.chars().count() {
        0..=DESCRIPTION_MAX => Ok(()),
        _ => {
            let reason = format!("must have at most {DESCRIPTION_MAX} characters");
            Err(ServerError::field("description", reason))
        }
    }
}

fn snapshot(store: &Store, project: ProjectId) -> Result<Snapshot, StoreError> {
    let name = store.projects().get(project)?.name;
    let documents = store.cluster_documents().snapshot()?;
    let tenant = cluster::tenant_of(store, &name)?;
    let quota = ClusterQuota { clusters_max: tenant.max_clusters, nodes_max: tenant.max_nodes };
    let live = store.plugin_resources().list(project)?.into_iter().filter(|one| one.is_live);
    let digests = live.map(|one| (format!("{}/{}", one.kind, one.name), one.digest)).collect();
    Ok(Snapshot { documents, quota, digests })
}

/// Author of a change, as in the audit log, and the name for macros.
fn names(caller: &Caller) -> (String, String) {
    let plain = caller.name.split_once(':').map_or(&*caller.name, |(_, name)| name);
    (caller.name.clone(), plain.to_owned())
}

/// Creates a cluster, or returns the plan.
pub(crate) async fn create(
    services: &Services,
    caller: &Caller,
    project: Uuid,
    new: NewCluster,
) -> Result<Requested, ServerError> {
    check_name(&new.name)?;
    check_description(&new.description)?;
    let read = services.with_store(move |store| snapshot(store, project.into())).await?;
    let Snapshot { documents, quota, digests } = read;
    let (author, owner) = names(caller);
    let id = new_id()?;
    let computed = {
        let (id, owner, new) = (id.clone(), owner.clone(), new.clone());
        let work = move |stop: &dyn Fn() -> bool| {
            let catalog = cluster::catalog(&documents, Some(project));
            let limits = cluster::limits(stop);
            cluster::create(&catalog, (&id, &owner), &new, digests, limits)
        };
        cluster::search(services, work).await??
    };
    if new.plan_only {
        return Ok(Requested::Plan(computed.plan));
    }
    let now = services.now();
    let rules = &computed.intent.template.administration.leaseduration;
    let requested = new.lease_seconds.map(|seconds| seconds.saturating_mul(1_000));
    let expires = cluster::lease::initial(rules, requested, now)
        .map_err(|reason| ServerError::field("lease_seconds", reason))?;
    let created = services.try_change(move |store| {
        let repair = REPAIR_SECONDS + new.size / 10;
        let settings = [
            ("park_after_attempts", json!(ATTEMPTS_MAX)),
            ("autostart_agent_deploy_interval", json!(RETRY_SECONDS.to_string())),
            ("autostart_agent_repair_interval", json!(repair.to_string())),
        ];
        let record = NewClusterRecord {
            id: &id,
            project: project.into(),
            environment: Uuid::new_v4().into(),
            name: &new.name,
            description: &new.description,
            owner: &owner,
            provider: &computed.intent.provider.info.name,
            expires,
            settings: &settings,
        };
        let attempt = Attempt { author: &author, quota, now };
        let created = cluster::store_creation(store, &record, &computed, attempt)?;
        with_operation(store, created)
    });
    created.await
}

fn with_operation(store: &Store, record: ClusterRecord) -> Result<Requested, ServerError> {
    let last = store.cluster_operations().list(record.key, None, 1)?.into_iter().next();
    let last = last.ok_or_else(|| ServerError::Internal("no operation".to_owned()))?;
    Ok(Requested::Operation(Box::new((record, last))))
}

/// An operation that ends the open one.
struct Ending {
    number: i64,
    status: ClusterPhase,
}

/// Begins an operation on a cluster, or returns its plan.
pub(crate) async fn operate(
    services: &Services,
    caller: &Caller,
    id: &str,
    expected: Option<i64>,
    request: ClusterOperationRequest,
) -> Result<Requested, ServerError> {
    cluster::check(&request)?;
    compute_and_begin(services, caller, (id, expected), request, None).await
}

async fn compute_and_begin(
    services: &Services,
    caller: &Caller,
    (id, expected): (&str, Option<i64>),
    request: ClusterOperationRequest,
    ending: Option<Ending>,
) -> Result<Requested, ServerError> {
    let id = id.to_owned();
    let is_plan = request.plan_only;
    let is_ending = ending.is_some();
    let read = services.try_with_store(move |store| {
        let state = cluster::load(store, &id)?;
        check_alive(&state.record)?;
        crate::extract::unchanged(expected, state.record.revision)?;
        if !is_plan
            && !is_ending
            && let Some(open) = store.cluster_operations().open(state.record.key)?
        {
            return Err(operation_open(&state.record, open).into());
        }
        let previous = cluster::previous_intent(store, &state.record)?;
        let read = snapshot(store, state.record.project)?;
        Ok::<_, ServerError>((state, previous, read))
    });
    let (state, previous, Snapshot { documents, quota, digests }) = read.await?;
    let project = Some(state.record.project.uuid());
    let work = move |stop: &dyn Fn() -> bool| {
        let catalog = cluster::catalog(&documents, project);
        let inputs = OperationInputs { catalog: &catalog, previous, digests };
        let computed = cluster::operate(&state, &request, inputs, cluster::limits(stop));
        computed.map(|computed| (state, computed))
    };
    let (state, computed) = cluster::search(services, work).await??;
    if is_plan {
        return Ok(Requested::Plan(computed.plan));
    }
    let ((author, _), now) = (names(caller), services.now());
    let begun = services.try_change(move |store| {
        let attempt = Attempt { author: &author, quota, now };
        begin(store, (&state, expected), &computed, ending, attempt)
    });
    begun.await
}

fn begin(
    store: &Store,
    (state, expected): (&ClusterState, Option<i64>),
    computed: &ComputedOperation,
    ending: Option<Ending>,
    attempt: Attempt<'_>,
) -> Result<Requested, ServerError> {
    let progress = match &ending {
        Some(_) => Some(progress_json(store, &state.record)?),
        None => None,
    };
    let message = format!("aborted by {}, and reverted", attempt.author);
    let ends = ending.map(|Ending { number, status }| {
        let state = ClusterOperationPhase::Aborted;
        let progress = progress.as_ref();
        (number, OperationEnd { state, status, message: &message, progress, halt: false })
    });
    let begun = cluster::begin(store, (&state.record, expected), computed, ends, attempt)?;
    with_operation(store, begun)
}

fn progress_json(store: &Store, record: &ClusterRecord) -> Result<Value, StoreError> {
    let progress = cluster::progress(store, record.environment)?;
    Ok(serde_json::to_value(progress).unwrap_or_default())
}

fn operation_open(record: &ClusterRecord, open: ClusterOperationRecord) -> StoreError {
    StoreError::OperationOpen { cluster: record.id.clone(), number: open.number, kind: open.kind }
}

fn check_alive(record: &ClusterRecord) -> Result<(), ServerError> {
    match record.terminated {
        None => Ok(()),
        Some(at) => {
            Err(ServerError::Conflict(format!("the cluster {} was deleted at {at}", record.name)))
        }
    }
}

/// Aborts an operation: nothing more is done for it. With `Revert`, the intent before it is the
/// desired state again.
pub(crate) async fn abort(
    services: &Services,
    caller: &Caller,
    id: &str,
    number: i64,
    policy: AbortPolicy,
) -> Result<Requested, ServerError> {
    let open = {
        let id = id.to_owned();
        let read = services.try_with_store(move |store| {
            let record = store.clusters().get(&id)?;
            let operation = store.cluster_operations().get(record.key, number)?;
            if !operation.state.is_open() {
                let text = format!("the operation {number} is {}", operation.state.as_str());
                return Err(ServerError::Conflict(text));
            }
            Ok(operation)
        });
        read.await?
    };
    let status = cluster::failed_status(&open);
    if policy == AbortPolicy::Revert {
        let request = ClusterOperationRequest::new(ClusterOperationKind::Revert);
        let ending = Some(Ending { number, status });
        return compute_and_begin(services, caller, (id, None), request, ending).await;
    }
    let (id, now, author) = (id.to_owned(), services.now(), caller.name.clone());
    let aborted = services.try_change(move |store| {
        let record = store.clusters().get(&id)?;
        let progress = progress_json(store, &record)?;
        let message = format!("aborted by {author}; nothing more is done for it");
        let end = OperationEnd {
            state: ClusterOperationPhase::Aborted,
            status,
            message: &message,
            progress: Some(&progress),
            halt: true,
        };
        let ended = store.cluster_operations().end(&id, number, &end, now)?;
        let record = store.clusters().get(&id)?;
        Ok::<_, ServerError>(Requested::Operation(Box::new((record, ended))))
    });
    aborted.await
}

/// Pauses or resumes an operation.
pub(crate) async fn set_paused(
    services: &Services,
    id: &str,
    number: i64,
    paused: bool,
) -> Result<(ClusterRecord, ClusterOperationRecord), ServerError> {
    let (id, now) = (id.to_owned(), services.now());
    let changed = services.change(move |store| {
        let operations = store.cluster_operations();
        let changed = match paused {
            true => operations.pause(&id, number, now)?,
            false => operations.resume(&id, number, now)?,
        };
        Ok((store.clusters().get(&id)?, changed))
    });
    Ok(changed.await?)
}

/// Changes the description or the lease of a cluster.
pub(crate) async fn update(
    services: &Services,
    id: &str,
    expected: Option<i64>,
    update: ClusterUpdate,
) -> Result<ClusterRecord, ServerError> {
    check_description(update.description.as_deref().unwrap_or_default())?;
    if update.expires.is_some() && update.lease_seconds.is_some() {
        return Err(ServerError::field("expires", "excludes lease_seconds"));
    }
    let (id, now) = (id.to_owned(), services.now());
    let changed = services.try_change(move |store| {
        let record = store.clusters().get(&id)?;
        check_alive(&record)?;
        let expires = new_end(&update, now);
        if let Some(expires) = expires {
            check_lease(store, &record, expires.time())?;
        }
        let change = ClusterRecordChange { description: update.description.as_deref(), expires };
        // A lease was checked against this revision.
        let expected = expected.or_else(|| expires.map(|_| record.revision));
        Ok::<_, ServerError>(store.clusters().update(&id, expected, &change, now)?)
    });
    changed.await
}

/// The requested end of a lease, if a change is requested.
fn new_end(update: &ClusterUpdate, now: Timestamp) -> Option<LeaseEnd> {
    match (update.expires, update.lease_seconds) {
        (Some(expires), _) => Some(LeaseEnd::At(expires.into())),
        (None, Some(0)) => Some(LeaseEnd::Never),
        (None, Some(seconds)) => {
            let micros = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000);
            Some(LeaseEnd::At(Timestamp(now.0.saturating_add(micros))))
        }
        (None, None) => None,
    }
}

fn check_lease(
    store: &Store,
    record: &ClusterRecord,
    expires: Option<Timestamp>,
) -> Result<(), ServerError> {
    if record.status == ClusterPhase::Pending {
        let text = "an operation is open: change the lease when it has ended";
        return Err(ServerError::Conflict(text.to_owned()));
    }
    let intent = cluster::read_intent(store, record.key, record.intent)?;
    let rules = &intent.template.administration.leaseduration;
    let lease = cluster::lease::Lease { created: record.created, expires: record.expires };
    cluster::lease::check_change(rules, lease, expires)
        .map_err(|reason| ServerError::field("expires", reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ids_can_be_parts_of_machine_names() {
        for good in ["a", "web", "web-1", "0"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a b", "ä", &"a".repeat(64)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        for _ in 0..100 {
            let id = new_id().unwrap();
            assert!(id.len() == ID_LENGTH && id.starts_with(|c: char| c.is_ascii_lowercase()));
        }
    }
}
