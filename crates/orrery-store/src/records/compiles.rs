//! Compile requests: the queue of the compile service, and their results.

use orrery_model::{CompileId, Timestamp, VersionNumber};
use serde_json::Value as Json;

use crate::records::{CompileRequest, Compiles, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, StoreError, values};

/// A requested compile.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileRecord {
    pub id: CompileId,
    pub environment: EnvironmentKey,
    pub requested: Timestamp,
    pub started: Option<Timestamp>,
    pub completed: Option<Timestamp>,
    pub request: CompileRequest,
    /// Merged request with which the serving run was started.
    pub used: Option<CompileRequest>,
    pub success: Option<bool>,
    /// The version that it produced.
    pub version: Option<VersionNumber>,
    /// The compile with the run that serves this one too.
    pub substitute: Option<CompileId>,
    /// Structured errors and further details.
    pub data: Option<Json>,
    /// True if all consequences of its end have been applied.
    pub handled: bool,
    pub epoch: i64,
    pub(crate) alive_until: Option<Timestamp>,
    /// Number reserved for its version.
    pub reserved: Option<VersionNumber>,
}

impl CompileRecord {
    /// The compile that has the stages: itself, or the substitute.
    pub fn serving_compile(&self) -> CompileId {
        self.substitute.unwrap_or(self.id)
    }
}

/// A compile to be requested.
#[derive(Clone, Copy, Debug)]
pub struct NewCompileRecord<'a> {
    pub id: CompileId,
    pub request: &'a CompileRequest,
}

/// Filter for compiles. All given conditions must hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompileFilter {
    pub started: Option<bool>,
    pub completed: Option<bool>,
    pub success: Option<bool>,
}

pub(super) const COLUMNS: &str = "SELECT id, environment, requested, started, completed, request, \
     coalesce(used, 'null'), success, version, substitute, coalesce(data, 'null'), handled, epoch, \
     alive_until, reserved FROM compile";

fn request_from(json: Json) -> Result<CompileRequest> {
    let unreadable =
        |error: serde_json::Error| StoreError::Unreadable(format!("a compile request: {error}"));
    serde_json::from_value(json).map_err(unreadable)
}

fn version_from(number: i64) -> Result<VersionNumber> {
    let number = u32::try_from(number);
    number
        .map(VersionNumber)
        .map_err(|_| StoreError::Unreadable("a version is not a number".to_owned()))
}

pub(super) fn from_row(row: &dyn Row) -> Result<CompileRecord> {
    let (used, data) = (row.json(6)?, row.json(10)?);
    Ok(CompileRecord {
        id: row.id(0)?,
        environment: EnvironmentKey(row.int(1)?),
        requested: row.time(2)?,
        started: row.maybe_time(3)?,
        completed: row.maybe_time(4)?,
        request: request_from(row.json(5)?)?,
        used: (!used.is_null()).then(|| request_from(used)).transpose()?,
        success: row.integer(7)?.map(|flag| flag != 0),
        version: row.integer(8)?.map(version_from).transpose()?,
        substitute: row.maybe_id(9)?,
        data: (!data.is_null()).then_some(data),
        handled: row.flag(11)?,
        epoch: row.int(12)?,
        alive_until: row.maybe_time(13)?,
        reserved: row.integer(14)?.map(version_from).transpose()?,
    })
}

pub(super) fn text_of(request: &CompileRequest) -> Result<String> {
    let failed = |error: serde_json::Error| StoreError::Unreadable(error.to_string());
    serde_json::to_string(request).map_err(failed)
}

pub(super) fn find(sql: &mut dyn Sql, id: CompileId) -> Result<CompileRecord> {
    let found = sql.first(&format!("{COLUMNS} WHERE id = ?1"), values![id], from_row)?;
    found.ok_or_else(|| StoreError::not_found("compile", id.to_string()))
}

/// Requests a compile, in the transaction of its cause. Idempotent per id.
pub(crate) fn enqueue_compile(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    new: &NewCompileRecord<'_>,
    now: Timestamp,
) -> Result<bool> {
    let request = text_of(new.request)?;
    let insert = "INSERT INTO compile (id, environment, requested, request) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT DO NOTHING";
    let added = sql.run(insert, values![new.id, environment.0, now, &request])? > 0;
    if added {
        record_change(sql, Some(environment), "compile", &new.id.to_string(), now)?;
    }
    Ok(added)
}

impl Compiles<'_> {
    /// Requests a compile. Idempotent per id.
    ///
    /// # Errors
    /// Database errors.
    pub fn add(
        &self,
        environment: EnvironmentKey,
        new: &NewCompileRecord<'_>,
        now: Timestamp,
    ) -> Result<CompileRecord> {
        self.transact(|sql| {
            enqueue_compile(sql, environment, new, now)?;
            find(sql, new.id)
        })
    }

    /// A compile of an environment.
    ///
    /// # Errors
    /// `NotFound` if the environment has no such compile.
    pub fn get(&self, environment: EnvironmentKey, id: CompileId) -> Result<CompileRecord> {
        let found = self.query(|sql| find(sql, id))?;
        if found.environment != environment {
            return Err(StoreError::not_found("compile", id.to_string()));
        }
        Ok(found)
    }

    /// A compile of any environment.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn by_id(&self, id: CompileId) -> Result<CompileRecord> {
        self.query(|sql| find(sql, id))
    }

    /// Compiles of an environment, newest first, older than `before`.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
        &self,
        environment: EnvironmentKey,
        filter: CompileFilter,
        before: Option<(Timestamp, CompileId)>,
        limit: usize,
    ) -> Result<Vec<CompileRecord>> {
        let mut select = format!("{COLUMNS} WHERE environment = ?1");
        let unset = |set: bool| if set { "IS NOT NULL" } else { "IS NULL" };
        if let Some(started) = filter.started {
            select.push_str(&format!(" AND started {}", unset(started)));
        }
        if let Some(completed) = filter.completed {
            select.push_str(&format!(" AND completed {}", unset(completed)));
        }
        if let Some(success) = filter.success {
            select.push_str(&format!(" AND success = {}", i64::from(success)));
        }
        let (at, id) = before.unwrap_or((Timestamp(i64::MAX), CompileId::from_bytes([0xff; 16])));
        select.push_str(
            " AND (requested < ?2 OR (requested = ?2 AND id < ?3)) \
             ORDER BY requested DESC, id DESC LIMIT ?4",
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(|sql| sql.all(&select, values![environment.0, at, id, limit], from_row))
    }

    /// Compiles that have not ended, in the order in which they are served.
    ///
    /// # Errors
    /// Database errors.
    pub fn queue(&self, environment: EnvironmentKey) -> Result<Vec<CompileRecord>> {
        let select = format!(
            "{COLUMNS} WHERE environment = ?1 AND completed IS NULL ORDER BY requested, id"
        );
        self.query(|sql| sql.all(&select, values![environment.0], from_row))
    }

    /// The last compile of an environment that ran and ended.
    ///
    /// # Errors
    /// Database errors.
    pub fn last(&self, environment: EnvironmentKey) -> Result<Option<CompileRecord>> {
        let select = format!(
            "{COLUMNS} WHERE environment = ?1 AND completed IS NOT NULL AND started IS NOT NULL \
             ORDER BY completed DESC, substitute IS NOT NULL, id LIMIT 1"
        );
        self.query(|sql| sql.first(&select, values![environment.0], from_row))
    }

    /// Deletes compiles that ended before a time, except in halted environments. Returns their
    /// number.
    ///
    /// # Errors
    /// Database errors.
    pub fn expire(&self, before: Timestamp) -> Result<u64> {
        let old = "SELECT compile.id FROM compile \
             JOIN environment ON environment.id = compile.environment \
             WHERE compile.completed < ?1 AND environment.halted = 0";
        self.transact(|sql| {
            for table in ["compile_output", "compile_stage"] {
                sql.run(&format!("DELETE FROM {table} WHERE compile IN ({old})"), values![before])?;
            }
            sql.run(&format!("DELETE FROM compile WHERE id IN ({old})"), values![before])
        })
    }
}

/// True if the environment has a repository and automatic compiles are not turned off.
fn has_automatic_compiles(sql: &mut dyn Sql, environment: EnvironmentKey) -> Result<bool> {
    let select = "SELECT 1 FROM environment WHERE id = ?1 AND repository <> '' AND deleting = 0 \
         AND NOT EXISTS (SELECT 1 FROM setting WHERE setting.environment = ?1 \
         AND setting.name = 'server_compile' AND setting.value = 'false')";
    Ok(sql.first(select, values![environment.0], |row| row.int(0))?.is_some())
}

/// Requests a compile as a consequence, in the transaction of its cause, unless automatic compiles
/// are off. Returns true if one was requested.
pub(crate) fn enqueue_automatic_compile(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    new: &NewCompileRecord<'_>,
    now: Timestamp,
) -> Result<bool> {
    Ok(has_automatic_compiles(sql, environment)? && enqueue_compile(sql, environment, new, now)?)
}

impl Compiles<'_> {
    /// As `enqueue_automatic_compile`, in a transaction of its own.
    ///
    /// # Errors
    /// Database errors.
    pub fn add_automatic(
        &self,
        environment: EnvironmentKey,
        new: &NewCompileRecord<'_>,
        now: Timestamp,
    ) -> Result<bool> {
        self.transact(|sql| enqueue_automatic_compile(sql, environment, new, now))
    }
}
