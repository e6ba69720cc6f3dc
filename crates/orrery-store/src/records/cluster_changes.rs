//! Changes of clusters that are stored in one transaction with a version of their environment: the
//! intent, the operation, and for a new cluster its record and its environment.

use orrery_model::{Timestamp, VersionNumber};

use crate::backend::PutTarget;
use crate::cluster_types::{
    ClusterOperationPhase, ClusterPhase, ClusterWrite, NewClusterOperation, NewClusterRecord,
    NewIntent,
};
use crate::encoding::Code as _;
use crate::records::cluster_operations::{end_operation, open_operation};
use crate::records::clusters::{
    CLUSTER, find_cluster, lock_cluster, lock_project, record_cluster_change, usage,
};
use crate::records::environments::{insert_environment, set_halted};
use crate::records::settings::set_values;
use crate::records::{
    ClusterKey, ClusterRecord, Clusters, NewEnvironmentRecord, Transactions as _,
};
use crate::sql::{RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, NewVersion, PutOutcome, Result, StoreError, values};

impl Clusters<'_> {
    /// Changes a cluster and stores the version of its environment, in one transaction.
    ///
    /// # Errors
    /// Those of [`Versions::put`](crate::Versions::put); `Exists` if the name is taken;
    /// `QuotaExceeded`; `OperationOpen`; `Outdated` after a concurrent change; `Conflict` if the
    /// operation or the cluster has ended.
    pub fn put_version(
        &self,
        write: &ClusterWrite<'_>,
        version: &NewVersion<'_>,
    ) -> Result<PutOutcome> {
        self.backend().put_version(PutTarget::Cluster(write), version)
    }
}

/// Writes the change of a cluster, and returns the environment of its version.
pub(crate) fn prepare(
    sql: &mut dyn Sql,
    target: PutTarget<'_>,
    now: Timestamp,
) -> Result<(EnvironmentKey, Option<PreparedWrite>)> {
    match target {
        PutTarget::Environment(environment) => Ok((environment, None)),
        PutTarget::Cluster(write) => {
            let prepared = write.prepare(sql, now)?;
            Ok((prepared.record.environment, Some(prepared)))
        }
    }
}

impl ClusterWrite<'_> {
    /// Checks the change and writes all but the number of the version. Returns the environment that
    /// gets the version.
    fn prepare(&self, sql: &mut dyn Sql, now: Timestamp) -> Result<PreparedWrite> {
        match *self {
            ClusterWrite::Create { cluster, operation } => create(sql, cluster, operation, now),
            ClusterWrite::Begin { cluster, expected, base, operation, ends } => {
                let record = lock_cluster(sql, cluster)?;
                if record.terminated.is_some() {
                    let text = format!("the cluster {} is terminated", record.name);
                    return Err(StoreError::Conflict(text));
                }
                if let Some((number, end)) = ends {
                    end_operation(sql, &record, number, &end, now)?;
                }
                check_none_open(sql, &record)?;
                StoreError::check_revision(CLUSTER, expected, record.revision)?;
                StoreError::check_revision("intent", Some(base), record.intent)?;
                set_halted(sql, record.environment_id, false, now)?;
                begin(sql, &record, operation, now)
            }
            ClusterWrite::Amend { cluster, operation, base, intent, author } => {
                let record = lock_cluster(sql, cluster)?;
                check_open(sql, &record, operation)?;
                StoreError::check_revision("intent", Some(base), record.intent)?;
                let revision = put_intent(sql, &record, &intent, author, now)?;
                let update = "UPDATE cluster_operation SET intent = ?3, is_transition = 1 \
                     WHERE cluster = ?1 AND number = ?2";
                sql.run(update, values![record.key.0, operation, revision])?;
                Ok(PreparedWrite { record, operation })
            }
            ClusterWrite::Settle { cluster, operation, version } => {
                let record = lock_cluster(sql, cluster)?;
                let update = "UPDATE cluster_operation SET is_transition = 0 \
                     WHERE cluster = ?1 AND number = ?2 AND version = ?3 AND state = ?4 \
                     AND is_transition = 1";
                let running = ClusterOperationPhase::Running.code();
                let number = i64::from(version.0);
                if sql.run(update, values![record.key.0, operation, number, running])? == 0 {
                    return Err(StoreError::Conflict("the operation has changed".to_owned()));
                }
                Ok(PreparedWrite { record, operation })
            }
        }
    }
}

/// A change whose version is not stored yet.
pub(crate) struct PreparedWrite {
    record: ClusterRecord,
    operation: i64,
}

impl PreparedWrite {
    /// Writes the number of the stored version.
    pub(crate) fn finish(
        &self,
        sql: &mut dyn Sql,
        version: VersionNumber,
        now: Timestamp,
    ) -> Result<()> {
        let update = "UPDATE cluster_operation SET version = ?3 WHERE cluster = ?1 AND number = ?2";
        sql.run(update, values![self.record.key.0, self.operation, i64::from(version.0)])?;
        record_cluster_change(sql, &self.record, now)
    }
}

fn check_none_open(sql: &mut dyn Sql, cluster: &ClusterRecord) -> Result<()> {
    match open_operation(sql, cluster.key)? {
        None => Ok(()),
        Some(open) => Err(StoreError::OperationOpen {
            cluster: cluster.id.clone(),
            number: open.number,
            kind: open.kind,
        }),
    }
}

fn check_open(sql: &mut dyn Sql, cluster: &ClusterRecord, number: i64) -> Result<()> {
    match open_operation(sql, cluster.key)? {
        Some(open) if open.number == number => Ok(()),
        _ => Err(StoreError::Conflict(format!("the operation {number} has ended"))),
    }
}

fn check_quota(
    sql: &mut dyn Sql,
    project: i64,
    own: Option<&ClusterRecord>,
    operation: &NewClusterOperation<'_>,
) -> Result<()> {
    let used = usage(sql, project, own.map_or(ClusterKey(0), |own| own.key))?;
    let exceeded = |what, limit, used| StoreError::QuotaExceeded { what, limit, used };
    if let Some(limit) = operation.quota.clusters_max
        && own.is_none()
        && used.clusters >= limit
    {
        return Err(exceeded("clusters", limit, used.clusters));
    }
    // A cluster that does not grow is never refused, even if the quota was lowered.
    let grows = own.is_none_or(|own| operation.intent.size > own.size);
    if let Some(limit) = operation.quota.nodes_max
        && grows
        && used.nodes.saturating_add(operation.intent.size) > limit
    {
        return Err(exceeded("nodes", limit, used.nodes));
    }
    Ok(())
}

fn create(
    sql: &mut dyn Sql,
    new: &NewClusterRecord<'_>,
    operation: &NewClusterOperation<'_>,
    now: Timestamp,
) -> Result<PreparedWrite> {
    let project = lock_project(sql, new.project)?;
    check_quota(sql, project, None, operation)?;
    let taken = "SELECT 1 FROM cluster WHERE project = ?1 AND name = ?2 AND terminated IS NULL";
    if sql.first(taken, values![project, new.name], |row| row.int(0))?.is_some() {
        return Err(StoreError::exists(CLUSTER, new.name));
    }
    let environment = NewEnvironmentRecord {
        uuid: new.environment,
        project: new.project,
        name: new.name,
        description: new.description,
        icon: "",
        repository: "",
        branch: "",
    };
    let environment = insert_environment(sql, &environment, now)?;
    set_values(sql, environment.key, new.settings)?;
    let id = sql.allocate_id(CLUSTER)?;
    let insert = "INSERT INTO cluster (id, code, project, environment, environment_uuid, name, description, \
         owner, template, template_revision, provider, status, message, created, expires, size, \
         reserved, services, revision, intent, settled_intent) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, \
         ?8, ?9, ?10, ?11, ?12, '', ?13, ?14, 0, 0, '[]', 0, 0, 0) ON CONFLICT (code) DO NOTHING";
    let intent = &operation.intent;
    let values = values![
        id,
        new.id,
        project,
        environment.key.0,
        new.environment,
        new.name,
        new.description,
        new.owner,
        intent.template,
        intent.template_revision,
        new.provider,
        ClusterPhase::Pending.code(),
        now,
        new.expires,
    ];
    if sql.run(insert, values)? == 0 {
        return Err(StoreError::exists("cluster id", new.id));
    }
    let record = find_cluster(sql, new.id)?;
    insert_operation(sql, &record, operation, now)
}

fn begin(
    sql: &mut dyn Sql,
    record: &ClusterRecord,
    operation: &NewClusterOperation<'_>,
    now: Timestamp,
) -> Result<PreparedWrite> {
    let project = lock_project(sql, record.project)?;
    check_quota(sql, project, Some(record), operation)?;
    insert_operation(sql, record, operation, now)
}

fn insert_operation(
    sql: &mut dyn Sql,
    record: &ClusterRecord,
    operation: &NewClusterOperation<'_>,
    now: Timestamp,
) -> Result<PreparedWrite> {
    let revision = put_intent(sql, record, &operation.intent, operation.author, now)?;
    let select = "SELECT coalesce(max(number), 0) + 1 FROM cluster_operation WHERE cluster = ?1";
    let number = sql.first(select, values![record.key.0], |row| row.int(0))?.unwrap_or(1);
    let (request, plan) = (operation.request.to_string(), operation.plan.to_string());
    let insert = "INSERT INTO cluster_operation (cluster, number, kind, state, message, author, requested, \
         request, plan, intent, base, version, is_transition) \
         VALUES (?1, ?2, ?3, ?4, '', ?5, ?6, ?7, ?8, ?9, ?10, 0, ?11)";
    let values = values![
        record.key.0,
        number,
        operation.kind,
        ClusterOperationPhase::Running.code(),
        operation.author,
        now,
        &request,
        &plan,
        revision,
        record.intent,
        operation.is_transition,
    ];
    sql.run(insert, values)?;
    let update = "UPDATE cluster SET status = ?2, message = '' WHERE id = ?1";
    sql.run(update, values![record.key.0, ClusterPhase::Pending.code()])?;
    Ok(PreparedWrite { record: record.clone(), operation: number })
}

/// Stores an intent, and what the record has of it. Returns its revision.
fn put_intent(
    sql: &mut dyn Sql,
    record: &ClusterRecord,
    intent: &NewIntent<'_>,
    author: &str,
    now: Timestamp,
) -> Result<i64> {
    let services = serde_json::Value::from(intent.services).to_string();
    // Nodes that the operation removes exist until it has ended.
    let update = "UPDATE cluster SET template = ?2, template_revision = ?3, size = ?4, \
         reserved = CASE WHEN reserved > ?4 THEN reserved ELSE ?4 END, services = ?5, \
         revision = revision + 1, intent = intent + 1 WHERE id = ?1 RETURNING intent";
    let values = values![
        record.key.0,
        intent.template,
        intent.template_revision,
        i64::from(intent.size),
        &services,
    ];
    let revision = sql.first(update, values, |row| row.int(0))?;
    let revision = revision.ok_or_else(|| StoreError::not_found(CLUSTER, &*record.id))?;
    let insert = "INSERT INTO cluster_intent (cluster, revision, created, author, content) \
         VALUES (?1, ?2, ?3, ?4, ?5)";
    sql.run(insert, values![record.key.0, revision, now, author, intent.content])?;
    Ok(revision)
}
