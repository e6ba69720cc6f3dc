//! Operations on clusters: one at a time, with their state, plan and final progress.

use orrery_model::{Timestamp, VersionNumber};

use crate::cluster_types::{ClusterOperationPhase, ClusterPhase, OperationEnd};
use crate::encoding::{Code as _, version_number_from};
use crate::records::clusters::{lock_cluster, record_cluster_change};
use crate::records::environments::{begin_deletion, set_halted};
use crate::records::requests::insert_request;
use crate::records::{ClusterKey, ClusterOperations, ClusterRecord, Transactions as _};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{NewRequest, RequestKind, Result, StoreError, values};

const OPERATION: &str = "operation";

/// An operation.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterOperationRecord {
    pub cluster: ClusterKey,
    /// Counts up from 1 for each cluster.
    pub number: i64,
    pub kind: String,
    pub state: ClusterOperationPhase,
    pub message: String,
    pub author: String,
    pub requested: Timestamp,
    pub ended: Option<Timestamp>,
    pub request: serde_json::Value,
    pub plan: serde_json::Value,
    /// Final progress, if it has ended.
    pub progress: Option<serde_json::Value>,
    /// Revision of the intent that it carries out.
    pub intent: i64,
    /// Revision of the intent before it.
    pub base: i64,
    /// Version of the environment that carries it out.
    pub version: VersionNumber,
    /// A version without the removed resources follows.
    pub is_transition: bool,
}

const COLUMNS: &str = "SELECT cluster, number, kind, state, message, author, requested, ended, request, plan, \
     progress, intent, base, version, is_transition FROM cluster_operation";

fn from_row(row: &dyn Row) -> Result<ClusterOperationRecord> {
    let progress = match row.text(10)? {
        Some(_) => Some(row.json(10)?),
        None => None,
    };
    Ok(ClusterOperationRecord {
        cluster: ClusterKey(row.int(0)?),
        number: row.int(1)?,
        kind: row.string(2)?,
        state: ClusterOperationPhase::from_code(row.int(3)?)?,
        message: row.string(4)?,
        author: row.string(5)?,
        requested: row.time(6)?,
        ended: row.maybe_time(7)?,
        request: row.json(8)?,
        plan: row.json(9)?,
        progress,
        intent: row.int(11)?,
        base: row.int(12)?,
        version: version_number_from(row.int(13)?)?,
        is_transition: row.flag(14)?,
    })
}

pub(super) fn find_operation(
    sql: &mut dyn Sql,
    cluster: ClusterKey,
    number: i64,
) -> Result<ClusterOperationRecord> {
    let select = format!("{COLUMNS} WHERE cluster = ?1 AND number = ?2");
    let found = sql.first(&select, values![cluster.0, number], from_row)?;
    found.ok_or_else(|| StoreError::not_found(OPERATION, number.to_string()))
}

pub(super) fn open_operation(
    sql: &mut dyn Sql,
    cluster: ClusterKey,
) -> Result<Option<ClusterOperationRecord>> {
    let select = format!("{COLUMNS} WHERE cluster = ?1 AND ended IS NULL");
    sql.first(&select, values![cluster.0], from_row)
}

/// Error for an operation that is not in the expected state.
fn not_in_state(operation: &ClusterOperationRecord, action: &str) -> StoreError {
    StoreError::Conflict(format!(
        "the operation {} ({}) is {}: it cannot be {action}",
        operation.number,
        operation.kind,
        operation.state.as_str()
    ))
}

/// Ends an open operation in the transaction of its cause.
pub(super) fn end_operation(
    sql: &mut dyn Sql,
    cluster: &ClusterRecord,
    number: i64,
    end: &OperationEnd<'_>,
    now: Timestamp,
) -> Result<()> {
    let operation = find_operation(sql, cluster.key, number)?;
    if !operation.state.is_open() {
        return Err(not_in_state(&operation, "ended again"));
    }
    let progress = end.progress.map(serde_json::Value::to_string);
    let update = "UPDATE cluster_operation SET state = ?3, message = ?4, ended = ?5, progress = ?6 \
         WHERE cluster = ?1 AND number = ?2";
    let state = end.state.code();
    let values = values![cluster.key.0, number, state, end.message, now, progress.as_deref()];
    sql.run(update, values)?;
    let is_done = end.state == ClusterOperationPhase::Done;
    if is_done {
        let settle = "UPDATE cluster SET settled_intent = ?2, reserved = size WHERE id = ?1";
        sql.run(settle, values![cluster.key.0, operation.intent])?;
    }
    let terminated = (end.status == ClusterPhase::Terminated).then_some(now);
    let message = if is_done { "" } else { end.message };
    let update = "UPDATE cluster SET status = ?2, message = ?3, \
         terminated = coalesce(terminated, ?4) WHERE id = ?1";
    sql.run(update, values![cluster.key.0, end.status.code(), message, terminated])?;
    if terminated.is_some() {
        begin_deletion(sql, cluster.environment_id, now)?;
        let uuid = orrery_model::RequestId::new(uuid::Uuid::new_v4());
        let request = NewRequest { uuid, kind: &RequestKind::Delete };
        insert_request(sql, cluster.environment, &request, now)?;
    } else if end.halt {
        set_halted(sql, cluster.environment_id, true, now)?;
    }
    record_cluster_change(sql, cluster, now)
}

impl ClusterOperations<'_> {
    /// An operation by its number.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn get(&self, cluster: ClusterKey, number: i64) -> Result<ClusterOperationRecord> {
        self.query(|sql| find_operation(sql, cluster, number))
    }

    /// The open operation of a cluster.
    ///
    /// # Errors
    /// Database errors.
    pub fn open(&self, cluster: ClusterKey) -> Result<Option<ClusterOperationRecord>> {
        self.query(|sql| open_operation(sql, cluster))
    }

    /// Operations of a cluster before a number, newest first.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
        &self,
        cluster: ClusterKey,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<ClusterOperationRecord>> {
        let select =
            format!("{COLUMNS} WHERE cluster = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let before = before.unwrap_or(i64::MAX);
        self.query(|sql| sql.all(&select, values![cluster.0, before, limit], from_row))
    }

    /// Pauses a running operation: halts the environment. Idempotent.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if it has ended.
    pub fn pause(&self, id: &str, number: i64, now: Timestamp) -> Result<ClusterOperationRecord> {
        self.transact(|sql| {
            let cluster = lock_cluster(sql, id)?;
            let operation = find_operation(sql, cluster.key, number)?;
            match operation.state {
                ClusterOperationPhase::Running => {}
                ClusterOperationPhase::Paused => return Ok(operation),
                _ => return Err(not_in_state(&operation, "paused")),
            }
            set_state(sql, &cluster, number, ClusterOperationPhase::Paused, now)?;
            set_halted(sql, cluster.environment_id, true, now)?;
            find_operation(sql, cluster.key, number)
        })
    }

    /// Resumes a paused operation, or the last one of a cluster if it failed: its resources are
    /// deployed again. Idempotent.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if it has ended in another way, or is not the last one.
    pub fn resume(&self, id: &str, number: i64, now: Timestamp) -> Result<ClusterOperationRecord> {
        self.transact(|sql| {
            let cluster = lock_cluster(sql, id)?;
            let operation = find_operation(sql, cluster.key, number)?;
            let select = "SELECT max(number) FROM cluster_operation WHERE cluster = ?1";
            let last = sql.first(select, values![cluster.key.0], |row| row.int(0))?;
            let is_last = last == Some(number);
            match operation.state {
                ClusterOperationPhase::Running => return Ok(operation),
                ClusterOperationPhase::Paused => {}
                ClusterOperationPhase::Failed | ClusterOperationPhase::Aborted if is_last => {}
                _ => return Err(not_in_state(&operation, "resumed")),
            }
            set_state(sql, &cluster, number, ClusterOperationPhase::Running, now)?;
            set_halted(sql, cluster.environment_id, false, now)?;
            // What was parked is attempted again.
            let uuid = orrery_model::RequestId::new(uuid::Uuid::new_v4());
            let request = NewRequest { uuid, kind: &RequestKind::deploy_all() };
            insert_request(sql, cluster.environment, &request, now)?;
            find_operation(sql, cluster.key, number)
        })
    }

    /// Ends an open operation.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if it has ended.
    pub fn end(
        &self,
        id: &str,
        number: i64,
        end: &OperationEnd<'_>,
        now: Timestamp,
    ) -> Result<ClusterOperationRecord> {
        self.transact(|sql| {
            let cluster = lock_cluster(sql, id)?;
            end_operation(sql, &cluster, number, end, now)?;
            find_operation(sql, cluster.key, number)
        })
    }
}

fn set_state(
    sql: &mut dyn Sql,
    cluster: &ClusterRecord,
    number: i64,
    state: ClusterOperationPhase,
    now: Timestamp,
) -> Result<()> {
    let update = "UPDATE cluster_operation SET state = ?3, message = '', ended = NULL, \
         progress = NULL WHERE cluster = ?1 AND number = ?2";
    sql.run(update, values![cluster.key.0, number, state.code()])?;
    let update = "UPDATE cluster SET status = ?2, message = '' WHERE id = ?1";
    sql.run(update, values![cluster.key.0, ClusterPhase::Pending.code()])?;
    record_cluster_change(sql, cluster, now)
}
