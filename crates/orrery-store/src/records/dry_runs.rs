//! Dry runs: changes that a version would make, resource by resource.

use orrery_model::{DryRunId, RequestId, Timestamp, VersionNumber};

use crate::records::requests::insert_request;
use crate::records::{DryRuns, RequestClaim, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{
    EnvironmentKey, NewRequest, RequestKind, RequestRecord, RequestResult, Result, StoreError,
    values,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRunRecord {
    pub uuid: DryRunId,
    pub environment: EnvironmentKey,
    pub version: VersionNumber,
    pub created: Timestamp,
    pub finished: Option<Timestamp>,
    pub total: u64,
    /// Number of resources without a result.
    pub todo: u64,
}

/// Result of a dry run for one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct DryRunResult {
    pub resource: String,
    /// `added`, `deleted`, `modified`, `unmodified`, `agent_down`, `undefined`,
    /// `skipped_for_undefined` or `failed`.
    pub status: String,
    /// Attributes with current and desired values; or the reason of a failure.
    pub changes: serde_json::Value,
}

const COLUMNS: &str =
    "SELECT id, environment, version, created, finished, total, todo FROM dry_run";

fn from_row(row: &dyn Row) -> Result<DryRunRecord> {
    let count = |column| -> Result<u64> { Ok(u64::try_from(row.int(column)?).unwrap_or(0)) };
    Ok(DryRunRecord {
        uuid: row.id(0)?,
        environment: EnvironmentKey(row.int(1)?),
        version: VersionNumber(u32::try_from(row.int(2)?).unwrap_or(u32::MAX)),
        created: row.time(3)?,
        finished: row.maybe_time(4)?,
        total: count(5)?,
        todo: count(6)?,
    })
}

fn find(sql: &mut dyn Sql, uuid: DryRunId) -> Result<DryRunRecord> {
    let found = sql.first(&format!("{COLUMNS} WHERE id = ?1"), values![uuid], from_row)?;
    found.ok_or_else(|| StoreError::not_found("dry run", uuid.to_string()))
}

impl DryRuns<'_> {
    /// Creates a dry run of a stored version, together with the request to execute it.
    ///
    /// # Errors
    /// `NoVersion` if the version is not stored.
    pub fn create(
        &self,
        environment: EnvironmentKey,
        (uuid, request): (DryRunId, RequestId),
        version: VersionNumber,
        now: Timestamp,
    ) -> Result<(DryRunRecord, RequestRecord)> {
        self.transact(|sql| {
            let select = "SELECT total FROM version WHERE environment = ?1 AND number = ?2";
            let number = i64::from(version.0);
            let total = sql.first(select, values![environment.0, number], |row| row.int(0))?;
            let total = total.ok_or(StoreError::NoVersion(version))?;
            let insert = "INSERT INTO dry_run (id, environment, version, created, total, todo) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?5)";
            sql.run(insert, values![uuid, environment.0, number, now, total])?;
            record_change(sql, Some(environment), "dry_run", &uuid.to_string(), now)?;
            let kind = &RequestKind::DryRun { dry_run: uuid, version };
            let request_record =
                insert_request(sql, environment, &NewRequest { uuid: request, kind }, now)?;
            Ok((find(sql, uuid)?, request_record))
        })
    }

    /// Adds results. A result that exists already stays and counts once.
    ///
    /// # Errors
    /// `StaleEpoch` if another process has claimed the request; `NotFound` if there is no such dry
    /// run.
    pub fn add_results(
        &self,
        claim: &RequestClaim,
        uuid: DryRunId,
        results: &[DryRunResult],
        now: Timestamp,
    ) -> Result<DryRunRecord> {
        self.transact(|sql| {
            sql.lock_name(&format!("dry_run {uuid}"))?;
            claim.check(sql)?;
            let insert = "INSERT INTO dry_run_result (dry_run, resource, status, changes) \
                 VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
            let mut new = 0;
            for result in results {
                let changes = result.changes.to_string();
                new +=
                    sql.run(insert, values![uuid, &result.resource, &result.status, &changes])?;
            }
            let new = i64::try_from(new).unwrap_or(i64::MAX);
            let update = "UPDATE dry_run SET todo = CASE WHEN todo > ?2 THEN todo - ?2 ELSE 0 END \
                 WHERE id = ?1";
            sql.run(update, values![uuid, new])?;
            let run = find(sql, uuid)?;
            record_change(sql, Some(run.environment), "dry_run", &uuid.to_string(), now)?;
            Ok(run)
        })
    }

    /// Ends a dry run, complete or not, together with its request.
    ///
    /// # Errors
    /// `StaleEpoch` if another process has claimed the request; `NotFound` if there is no such dry
    /// run.
    pub fn finish(
        &self,
        claim: &RequestClaim,
        uuid: DryRunId,
        result: &RequestResult,
        now: Timestamp,
    ) -> Result<DryRunRecord> {
        self.transact(|sql| {
            claim.check(sql)?;
            claim.finish(sql, result, now)?;
            let update = "UPDATE dry_run SET finished = ?2 WHERE id = ?1 AND finished IS NULL";
            sql.run(update, values![uuid, now])?;
            let run = find(sql, uuid)?;
            record_change(sql, Some(run.environment), "dry_run", &uuid.to_string(), now)?;
            Ok(run)
        })
    }

    /// Dry runs of a version, newest first.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
        &self,
        environment: EnvironmentKey,
        version: VersionNumber,
        limit: usize,
    ) -> Result<Vec<DryRunRecord>> {
        self.list_after(environment, version, None, limit)
    }

    /// Dry runs of a version, newest first, after the one with this start time and id.
    ///
    /// # Errors
    /// Database errors.
    pub fn list_after(
        &self,
        environment: EnvironmentKey,
        version: VersionNumber,
        after: Option<(Timestamp, DryRunId)>,
        limit: usize,
    ) -> Result<Vec<DryRunRecord>> {
        let select = format!(
            "{COLUMNS} WHERE environment = ?1 AND version = ?2 \
             AND (created < ?3 OR (created = ?3 AND id > ?4)) ORDER BY created DESC, id LIMIT ?5"
        );
        let (created, id) =
            after.unwrap_or((Timestamp(i64::MAX), DryRunId::from_bytes([0xff; 16])));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values = values![environment.0, i64::from(version.0), created, id, limit];
        self.query(|sql| sql.all(&select, values, from_row))
    }

    /// One dry run.
    ///
    /// # Errors
    /// `NotFound` if there is no such dry run in the environment.
    pub fn get(&self, environment: EnvironmentKey, uuid: DryRunId) -> Result<DryRunRecord> {
        let found = self.query(|sql| find(sql, uuid))?;
        if found.environment == environment {
            Ok(found)
        } else {
            Err(StoreError::not_found("dry run", uuid.to_string()))
        }
    }

    /// Results by resource, after one.
    ///
    /// # Errors
    /// Database errors.
    pub fn results(
        &self,
        uuid: DryRunId,
        status: Option<&str>,
        after: &str,
        limit: usize,
    ) -> Result<Vec<DryRunResult>> {
        let select = "SELECT resource, status, changes FROM dry_run_result \
             WHERE dry_run = ?1 AND resource > ?2 AND (?3 = '' OR status = ?3) \
             ORDER BY resource LIMIT ?4";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(|sql| {
            sql.all(select, values![uuid, after, status.unwrap_or(""), limit], |row| {
                Ok(DryRunResult {
                    resource: row.string(0)?,
                    status: row.string(1)?,
                    changes: row.json(2)?,
                })
            })
        })
    }

    /// Number of results by status.
    ///
    /// # Errors
    /// Database errors.
    pub fn counts(&self, uuid: DryRunId) -> Result<Vec<(String, u64)>> {
        let select = "SELECT status, count(*) FROM dry_run_result WHERE dry_run = ?1 \
             GROUP BY status ORDER BY status";
        self.query(|sql| {
            sql.all(select, values![uuid], |row| {
                Ok((row.string(0)?, u64::try_from(row.int(1)?).unwrap_or(0)))
            })
        })
    }

    /// Deletes the dry runs of deleted versions.
    ///
    /// # Errors
    /// Database errors.
    pub fn expire(&self, environment: EnvironmentKey) -> Result<u64> {
        self.transact(|sql| {
            let gone = "SELECT id FROM dry_run WHERE environment = ?1 AND version NOT IN \
                 (SELECT number FROM version WHERE environment = ?1)";
            let results = format!("DELETE FROM dry_run_result WHERE dry_run IN ({gone})");
            sql.run(&results, values![environment.0])?;
            sql.run(&format!("DELETE FROM dry_run WHERE id IN ({gone})"), values![environment.0])
        })
    }
}
