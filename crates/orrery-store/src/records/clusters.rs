//! Clusters: their records, and the intents that operations left.
//!
//! A change of an intent is stored with the version of its environment: see
//! [`ClusterWrite`](crate::ClusterWrite). This crate does not interpret intents.

use orrery_model::{EnvironmentId, ProjectId, Timestamp};

use crate::cluster_types::ClusterPhase;
use crate::encoding::Code as _;
use crate::records::{Clusters, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, StoreError, values};

pub(crate) const CLUSTER: &str = "cluster";

/// Number of a cluster in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey(pub i64);

/// A cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterRecord {
    pub key: ClusterKey,
    /// Short id, unique in the installation.
    pub id: String,
    pub project: ProjectId,
    pub project_name: String,
    pub environment: EnvironmentKey,
    pub environment_id: EnvironmentId,
    pub name: String,
    pub description: String,
    pub owner: String,
    pub template: String,
    pub template_revision: i64,
    pub provider: String,
    pub status: ClusterPhase,
    pub message: String,
    pub created: Timestamp,
    /// End of the lease.
    pub expires: Option<Timestamp>,
    pub terminated: Option<Timestamp>,
    /// Nodes of the newest intent.
    pub size: u32,
    pub services: Vec<String>,
    /// Grows with every change by a user.
    pub revision: i64,
    /// Revision of the newest intent.
    pub intent: i64,
    /// Revision of the newest intent that was carried out completely; 0 if none was.
    pub settled_intent: i64,
    /// End of the lease that a reminder was sent for.
    pub reminded: Option<Timestamp>,
}

/// Selection of clusters for a list.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterFilter<'a> {
    pub project: Option<ProjectId>,
    /// Includes terminated clusters.
    pub terminated: bool,
    /// Name and id of the last cluster of the page before.
    pub after: Option<(&'a str, &'a str)>,
}

/// Change of a cluster without an operation; `None` leaves a field unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterRecordChange<'a> {
    pub description: Option<&'a str>,
    pub expires: Option<LeaseEnd>,
}

/// New end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    Never,
    At(Timestamp),
}

impl LeaseEnd {
    /// The time; `None` for no end.
    pub fn time(self) -> Option<Timestamp> {
        match self {
            LeaseEnd::Never => None,
            LeaseEnd::At(time) => Some(time),
        }
    }
}

/// A stored intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterIntentRecord {
    pub revision: i64,
    pub created: Timestamp,
    pub author: String,
    /// As the caller stored it.
    pub content: Vec<u8>,
}

/// Clusters and nodes of a project that count for its quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterUsage {
    pub clusters: u32,
    pub nodes: u32,
}

const COLUMNS: &str = "SELECT cluster.id, cluster.code, project.uuid, project.name, cluster.environment, \
     cluster.environment_uuid, cluster.name, cluster.description, cluster.owner, cluster.template, \
     cluster.template_revision, cluster.provider, cluster.status, cluster.message, cluster.created, \
     cluster.expires, cluster.terminated, cluster.size, cluster.services, cluster.revision, \
     cluster.intent, cluster.settled_intent, cluster.reminded \
     FROM cluster JOIN project ON project.id = cluster.project";

pub(super) fn number(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn from_row(row: &dyn Row) -> Result<ClusterRecord> {
    Ok(ClusterRecord {
        key: ClusterKey(row.int(0)?),
        id: row.string(1)?,
        project: row.id(2)?,
        project_name: row.string(3)?,
        environment: EnvironmentKey(row.int(4)?),
        environment_id: row.id(5)?,
        name: row.string(6)?,
        description: row.string(7)?,
        owner: row.string(8)?,
        template: row.string(9)?,
        template_revision: row.int(10)?,
        provider: row.string(11)?,
        status: ClusterPhase::from_code(row.int(12)?)?,
        message: row.string(13)?,
        created: row.time(14)?,
        expires: row.maybe_time(15)?,
        terminated: row.maybe_time(16)?,
        size: number(row.int(17)?),
        services: serde_json::from_value(row.json(18)?)
            .map_err(|error| StoreError::Unreadable(format!("services of a cluster: {error}")))?,
        revision: row.int(19)?,
        intent: row.int(20)?,
        settled_intent: row.int(21)?,
        reminded: row.maybe_time(22)?,
    })
}

pub(super) fn find_cluster(sql: &mut dyn Sql, id: &str) -> Result<ClusterRecord> {
    let found = sql.first(&format!("{COLUMNS} WHERE cluster.code = ?1"), values![id], from_row)?;
    found.ok_or_else(|| StoreError::not_found(CLUSTER, id))
}

/// Locks out other writers of a cluster until the transaction ends.
pub(super) fn lock_cluster(sql: &mut dyn Sql, id: &str) -> Result<ClusterRecord> {
    let lock = format!("SELECT id FROM cluster WHERE code = ?1{}", sql.row_lock());
    sql.first(&lock, values![id], |row| row.int(0))?;
    find_cluster(sql, id)
}

/// Locks out other changes of the quota's use of a project. Returns the project's number.
pub(super) fn lock_project(sql: &mut dyn Sql, project: ProjectId) -> Result<i64> {
    let lock = format!("SELECT id FROM project WHERE uuid = ?1{}", sql.row_lock());
    let found = sql.first(&lock, values![project], |row| row.int(0))?;
    found.ok_or_else(|| StoreError::not_found("project", project.to_string()))
}

/// Use of a quota by a project, without one cluster.
pub(super) fn usage(sql: &mut dyn Sql, project: i64, without: ClusterKey) -> Result<ClusterUsage> {
    let select = "SELECT count(*), CAST(coalesce(sum(reserved), 0) AS BIGINT) FROM cluster \
         WHERE project = ?1 AND terminated IS NULL AND id <> ?2";
    let found = sql.first(select, values![project, without.0], |row| {
        Ok(ClusterUsage { clusters: number(row.int(0)?), nodes: number(row.int(1)?) })
    })?;
    Ok(found.unwrap_or_default())
}

pub(super) fn record_cluster_change(
    sql: &mut dyn Sql,
    cluster: &ClusterRecord,
    now: Timestamp,
) -> Result<()> {
    record_change(sql, Some(cluster.environment), CLUSTER, &cluster.id, now)
}

/// Deletes the records of clusters of a project, all of which are terminated.
pub(super) fn delete_clusters(sql: &mut dyn Sql, project: ProjectId) -> Result<()> {
    let of_project = "SELECT cluster.id FROM cluster JOIN project ON project.id = cluster.project \
         WHERE project.uuid = ?1";
    for table in ["cluster_intent", "cluster_operation"] {
        let delete = format!("DELETE FROM {table} WHERE cluster IN ({of_project})");
        sql.run(&delete, values![project])?;
    }
    let own = "(SELECT id FROM project WHERE uuid = ?1)";
    for table in ["cluster", "plugin_resource"] {
        sql.run(&format!("DELETE FROM {table} WHERE project = {own}"), values![project])?;
    }
    Ok(())
}

impl Clusters<'_> {
    /// The cluster with an id.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn get(&self, id: &str) -> Result<ClusterRecord> {
        self.query(|sql| find_cluster(sql, id))
    }

    /// The cluster that an environment belongs to, if it is not terminated.
    ///
    /// # Errors
    /// Database errors.
    pub fn of_environment(&self, environment: EnvironmentKey) -> Result<Option<ClusterRecord>> {
        let select =
            format!("{COLUMNS} WHERE cluster.environment = ?1 AND cluster.terminated IS NULL");
        self.query(|sql| sql.first(&select, values![environment.0], from_row))
    }

    /// A page of clusters by name and id.
    ///
    /// # Errors
    /// `NotFound` if there is no such project; database errors.
    pub fn list(&self, filter: &ClusterFilter<'_>, limit: usize) -> Result<Vec<ClusterRecord>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (name, id) = filter.after.unwrap_or_default();
        let live = if filter.terminated { "" } else { " AND cluster.terminated IS NULL" };
        let page = "(cluster.name > ?1 OR (cluster.name = ?1 AND cluster.code > ?2))";
        let order = "ORDER BY cluster.name, cluster.code LIMIT ?3";
        self.query(|sql| match filter.project {
            Some(project) => {
                let own = format!("project.uuid = ?4 AND {page}{live}");
                let select = format!("{COLUMNS} WHERE {own} {order}");
                sql.all(&select, values![name, id, limit, project], from_row)
            }
            None => {
                let select = format!("{COLUMNS} WHERE {page}{live} {order}");
                sql.all(&select, values![name, id, limit], from_row)
            }
        })
    }

    /// Clusters with a lease that ends before a time and that are not terminated.
    ///
    /// # Errors
    /// Database errors.
    pub fn with_lease_before(&self, time: Timestamp) -> Result<Vec<ClusterRecord>> {
        let select = format!(
            "{COLUMNS} WHERE cluster.terminated IS NULL AND cluster.expires < ?1 \
             ORDER BY cluster.expires, cluster.code"
        );
        self.query(|sql| sql.all(&select, values![time], from_row))
    }

    /// Use of the quota of a project.
    ///
    /// # Errors
    /// `NotFound` if there is no such project.
    pub fn usage(&self, project: ProjectId) -> Result<ClusterUsage> {
        self.query(|sql| {
            let select = "SELECT id FROM project WHERE uuid = ?1";
            let found = sql.first(select, values![project], |row| row.int(0))?;
            let found =
                found.ok_or_else(|| StoreError::not_found("project", project.to_string()))?;
            usage(sql, found, ClusterKey(0))
        })
    }

    /// Changes the given fields. With `expected`, only if the cluster still has that revision.
    ///
    /// # Errors
    /// `NotFound`; `Outdated` after a concurrent change.
    pub fn update(
        &self,
        id: &str,
        expected: Option<i64>,
        change: &ClusterRecordChange<'_>,
        now: Timestamp,
    ) -> Result<ClusterRecord> {
        self.transact(|sql| {
            let old = lock_cluster(sql, id)?;
            StoreError::check_revision(CLUSTER, expected, old.revision)?;
            let update = "UPDATE cluster SET description = ?2, expires = ?3, \
                 revision = revision + 1 WHERE id = ?1";
            let description = change.description.unwrap_or(&old.description);
            let expires = change.expires.map_or(old.expires, LeaseEnd::time);
            sql.run(update, values![old.key.0, description, expires])?;
            record_cluster_change(sql, &old, now)?;
            find_cluster(sql, id)
        })
    }

    /// Records that a reminder was sent for the end of a lease. Returns false if it was recorded
    /// before.
    ///
    /// # Errors
    /// Database errors.
    pub fn record_reminder(&self, cluster: ClusterKey, expires: Timestamp) -> Result<bool> {
        let update = "UPDATE cluster SET reminded = ?2 \
             WHERE id = ?1 AND (reminded IS NULL OR reminded <> ?2)";
        self.transact(|sql| Ok(sql.run(update, values![cluster.0, expires])? > 0))
    }

    /// Sets the status of a cluster without an open operation: active or degraded. No change by a
    /// user: the revision stays.
    ///
    /// # Errors
    /// Database errors.
    pub fn set_health(
        &self,
        cluster: &ClusterRecord,
        status: ClusterPhase,
        message: &str,
        now: Timestamp,
    ) -> Result<()> {
        let (active, degraded) = (ClusterPhase::Active.code(), ClusterPhase::Degraded.code());
        self.transact(|sql| {
            let update = "UPDATE cluster SET status = ?2, message = ?3 WHERE id = ?1 \
                 AND status IN (?4, ?5) AND (status <> ?2 OR message <> ?3)";
            let values = values![cluster.key.0, status.code(), message, active, degraded];
            if sql.run(update, values)? > 0 {
                record_cluster_change(sql, cluster, now)?;
            }
            Ok(())
        })
    }

    /// An intent of a cluster.
    ///
    /// # Errors
    /// `NotFound` if there is no such revision.
    pub fn intent(&self, cluster: ClusterKey, revision: i64) -> Result<ClusterIntentRecord> {
        let select = "SELECT revision, created, author, content FROM cluster_intent \
             WHERE cluster = ?1 AND revision = ?2";
        let found = self.query(|sql| {
            sql.first(select, values![cluster.0, revision], |row| {
                Ok(ClusterIntentRecord {
                    revision: row.int(0)?,
                    created: row.time(1)?,
                    author: row.string(2)?,
                    content: row.blob(3)?.unwrap_or_default().to_vec(),
                })
            })
        })?;
        found.ok_or_else(|| StoreError::not_found("intent", revision.to_string()))
    }

    /// Revisions of the intents from `first` to `last`, oldest first.
    ///
    /// # Errors
    /// Database errors.
    pub fn intent_revisions(&self, cluster: ClusterKey, first: i64, last: i64) -> Result<Vec<i64>> {
        let select = "SELECT revision FROM cluster_intent \
             WHERE cluster = ?1 AND revision >= ?2 AND revision <= ?3 ORDER BY revision";
        self.query(|sql| sql.all(select, values![cluster.0, first, last], |row| row.int(0)))
    }
}
