//! Storing operations: each is one transaction with the version of the cluster's environment.

use std::sync::Arc;

use orrery_cluster::intent::ClusterIntent;
use orrery_cluster::render::Rendering;
use orrery_model::{Resource, Timestamp, VersionNumber};
use orrery_store::{
    ClusterOperationRecord, ClusterQuota, ClusterRecord, ClusterWrite, Lease, NewClusterOperation,
    NewClusterRecord, NewIntent, NewVersion, OperationEnd, PutScope, Store, StoreError,
};
use serde_json::{Value, json};

use super::intents;
use super::operations::ComputedOperation;

/// Author of operations that the server begins itself.
pub(crate) const SYSTEM: &str = "system";

/// Author and circumstances of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) author: &'a str,
    pub(crate) quota: ClusterQuota,
    pub(crate) now: Timestamp,
}

/// The resources of a rendering, in the order of their ids.
fn resources(rendering: Rendering) -> Vec<Resource> {
    let mut all = Vec::with_capacity(rendering.sets.values().map(Vec::len).sum());
    for (name, set) in rendering.sets {
        let name: Arc<str> = name.into();
        all.extend(set.into_iter().map(|mut resource| {
            resource.set = Some(Arc::clone(&name));
            resource
        }));
    }
    all.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    all
}

/// Stores a version with the change of its cluster.
fn put(
    store: &Store,
    write: &ClusterWrite<'_>,
    rendering: Rendering,
    (message, lease): (String, Option<&Lease>),
    now: Timestamp,
) -> Result<VersionNumber, StoreError> {
    let resources = resources(rendering);
    let info = json!({"message": message});
    let version = NewVersion {
        number: None,
        made_at: now,
        info: &info,
        scope: PutScope::All,
        base: None,
        resources: &resources,
        unknowns: &[],
        released: true,
        only_if_changed: false,
        lease,
        project: None,
    };
    Ok(store.clusters().put_version(write, &version)?.number)
}

/// What a stored operation is made of.
struct OperationParts {
    content: Vec<u8>,
    services: Vec<String>,
    size: u32,
    plan: Value,
}

impl OperationParts {
    fn new(computed: &ComputedOperation) -> Result<Self, StoreError> {
        let plan = serde_json::to_value(&computed.plan);
        let plan = plan.map_err(|error| StoreError::Unreadable(error.to_string()))?;
        Ok(OperationParts { plan, ..Self::of_intent(&computed.intent)? })
    }

    fn of_intent(intent: &ClusterIntent) -> Result<Self, StoreError> {
        Ok(OperationParts {
            content: intents::encode(intent)?,
            services: intent.placed_services().into_iter().map(str::to_owned).collect(),
            size: u32::try_from(intent.nodes.len()).unwrap_or(u32::MAX),
            plan: Value::Null,
        })
    }

    fn intent<'a>(&'a self, intent: &'a ClusterIntent) -> NewIntent<'a> {
        NewIntent {
            content: &self.content,
            template: intent.template.name(),
            template_revision: intent.template_revision,
            size: self.size,
            services: &self.services,
        }
    }

    fn operation<'a>(
        &'a self,
        computed: &'a ComputedOperation,
        attempt: Attempt<'a>,
    ) -> NewClusterOperation<'a> {
        NewClusterOperation {
            kind: computed.kind.as_str(),
            author: attempt.author,
            request: &computed.request,
            plan: &self.plan,
            intent: self.intent(&computed.intent),
            is_transition: !computed.rendering.is_settled,
            quota: attempt.quota,
        }
    }
}

/// Creates a cluster.
pub(crate) fn create(
    store: &Store,
    cluster: &NewClusterRecord<'_>,
    computed: &ComputedOperation,
    attempt: Attempt<'_>,
) -> Result<ClusterRecord, StoreError> {
    let parts = OperationParts::new(computed)?;
    let operation = parts.operation(computed, attempt);
    let write = ClusterWrite::Create { cluster, operation: &operation };
    let message = format!("cluster {}: create", cluster.name);
    put(store, &write, computed.rendering.clone(), (message, None), attempt.now)?;
    store.clusters().get(cluster.id)
}

/// Begins an operation on a cluster, after the end of the open one if it is given.
pub(crate) fn begin(
    store: &Store,
    (record, expected): (&ClusterRecord, Option<i64>),
    computed: &ComputedOperation,
    ends: Option<(i64, OperationEnd<'_>)>,
    attempt: Attempt<'_>,
) -> Result<ClusterRecord, StoreError> {
    let parts = OperationParts::new(computed)?;
    let operation = parts.operation(computed, attempt);
    let (cluster, base) = (&*record.id, record.intent);
    let write = ClusterWrite::Begin { cluster, expected, base, operation: &operation, ends };
    let message = format!("cluster {}: {}", record.name, computed.kind);
    put(store, &write, computed.rendering.clone(), (message, None), attempt.now)?;
    store.clusters().get(&record.id)
}

/// Changes the intent of an open operation.
pub(crate) fn amend(
    store: &Store,
    record: &ClusterRecord,
    operation: &ClusterOperationRecord,
    computed: &ComputedOperation,
    lease: &Lease,
    now: Timestamp,
) -> Result<VersionNumber, StoreError> {
    let parts = OperationParts::of_intent(&computed.intent)?;
    let write = ClusterWrite::Amend {
        cluster: &record.id,
        operation: operation.number,
        base: record.intent,
        intent: parts.intent(&computed.intent),
        author: SYSTEM,
    };
    let message = format!("cluster {}: {}, amended", record.name, operation.kind);
    put(store, &write, computed.rendering.clone(), (message, Some(lease)), now)
}

/// Follows the transition of an operation.
pub(crate) fn settle(
    store: &Store,
    record: &ClusterRecord,
    operation: &ClusterOperationRecord,
    settled: Rendering,
    lease: &Lease,
    now: Timestamp,
) -> Result<VersionNumber, StoreError> {
    let write = ClusterWrite::Settle {
        cluster: &record.id,
        operation: operation.number,
        version: operation.version,
    };
    let message = format!("cluster {}: {}, completed", record.name, operation.kind);
    put(store, &write, settled, (message, Some(lease)), now)
}
