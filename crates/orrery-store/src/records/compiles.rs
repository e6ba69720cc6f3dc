//! Compile requests, which are the queue of the compile service, and what became of them.

use orrery_model::{Timestamp, VersionNumber};
use serde_json::Value as Json;

use crate::records::{CompileRequest, Records, note};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, StoreError, values};

/// A compile that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileRecord {
    pub id: [u8; 16],
    pub environment: EnvironmentKey,
    pub requested: Timestamp,
    pub started: Option<Timestamp>,
    pub completed: Option<Timestamp>,
    pub request: CompileRequest,
    /// What the run that serves it was started with: all that it and those merged with it ask for.
    pub used: Option<CompileRequest>,
    pub success: Option<bool>,
    /// The version that came of it.
    pub version: Option<VersionNumber>,
    /// The compile whose run serves this one too.
    pub substitute: Option<[u8; 16]>,
    /// Structured errors and what else there is to say.
    pub data: Option<Json>,
    /// Everything that follows from its end has happened.
    pub handled: bool,
    pub epoch: i64,
    pub(crate) alive_until: Option<Timestamp>,
    /// The number under which its version is, or would be, stored.
    pub reserved: Option<VersionNumber>,
}

impl CompileRecord {
    /// The compile that has the stages: itself, or the one that served it.
    pub fn run_by(&self) -> [u8; 16] {
        self.substitute.unwrap_or(self.id)
    }
}

/// A compile to be asked for.
#[derive(Clone, Debug)]
pub struct NewCompile<'a> {
    pub id: [u8; 16],
    pub request: &'a CompileRequest,
}

/// Which compiles to list. Everything that is given must hold.
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
        .map_err(|_| StoreError::Unreadable("a version is no number".to_owned()))
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

pub(super) fn find(sql: &mut dyn Sql, id: &[u8; 16]) -> Result<CompileRecord> {
    let found = sql.first(&format!("{COLUMNS} WHERE id = ?1"), values![id], from_row)?;
    found.ok_or_else(|| StoreError::not_found("compile", crate::uuid_text(id)))
}

/// Asks for a compile, in the transaction that gives the reason for it. Asking twice with one id is asking once.
pub fn enqueue_compile(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    new: &NewCompile<'_>,
    now: Timestamp,
) -> Result<bool> {
    let request = text_of(new.request)?;
    let insert = "INSERT INTO compile (id, environment, requested, request) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT DO NOTHING";
    let added = sql.run(insert, values![&new.id, environment.0, now, &request])? > 0;
    if added {
        note(sql, Some(environment), "compile", &crate::uuid_text(&new.id), now)?;
    }
    Ok(added)
}

impl Records<'_> {
    /// Asks for a compile. Asking twice with one id is asking once.
    ///
    /// # Errors
    /// Those of the database.
    pub fn add_compile(
        &self,
        environment: EnvironmentKey,
        new: &NewCompile<'_>,
        now: Timestamp,
    ) -> Result<CompileRecord> {
        self.change(|sql| {
            enqueue_compile(sql, environment, new, now)?;
            find(sql, &new.id)
        })
    }

    /// # Errors
    /// `NotFound` if there is none in this environment.
    pub fn compile(&self, environment: EnvironmentKey, id: &[u8; 16]) -> Result<CompileRecord> {
        let found = self.look(|sql| find(sql, id))?;
        if found.environment != environment {
            return Err(StoreError::not_found("compile", crate::uuid_text(id)));
        }
        Ok(found)
    }

    /// A compile, whatever its environment.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn compile_anywhere(&self, id: &[u8; 16]) -> Result<CompileRecord> {
        self.look(|sql| find(sql, id))
    }

    /// Compiles of an environment, newest first, older than `before`.
    ///
    /// # Errors
    /// Those of the database.
    pub fn compiles(
        &self,
        environment: EnvironmentKey,
        filter: CompileFilter,
        before: Option<(Timestamp, [u8; 16])>,
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
        let (at, id) = before.unwrap_or((Timestamp(i64::MAX), [0xff; 16]));
        select.push_str(
            " AND (requested < ?2 OR (requested = ?2 AND id < ?3)) \
             ORDER BY requested DESC, id DESC LIMIT ?4",
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.look(|sql| sql.all(&select, values![environment.0, at, &id, limit], from_row))
    }

    /// Compiles that have not ended, in the order in which they are served.
    ///
    /// # Errors
    /// Those of the database.
    pub fn compile_queue(&self, environment: EnvironmentKey) -> Result<Vec<CompileRecord>> {
        let select = format!(
            "{COLUMNS} WHERE environment = ?1 AND completed IS NULL ORDER BY requested, id"
        );
        self.look(|sql| sql.all(&select, values![environment.0], from_row))
    }

    /// The compile that ended last in an environment, of those that ran.
    ///
    /// # Errors
    /// Those of the database.
    pub fn last_compile(&self, environment: EnvironmentKey) -> Result<Option<CompileRecord>> {
        let select = format!(
            "{COLUMNS} WHERE environment = ?1 AND completed IS NOT NULL AND started IS NOT NULL \
             ORDER BY completed DESC, substitute IS NOT NULL, id LIMIT 1"
        );
        self.look(|sql| sql.first(&select, values![environment.0], from_row))
    }

    /// Deletes what is known of compiles that ended before a time, but for environments that are halted. Answers how many.
    ///
    /// # Errors
    /// Those of the database.
    pub fn forget_compiles(&self, before: Timestamp) -> Result<u64> {
        let old = "SELECT compile.id FROM compile \
             JOIN environment ON environment.id = compile.environment \
             WHERE compile.completed < ?1 AND environment.halted = 0";
        self.change(|sql| {
            for table in ["compile_output", "compile_stage"] {
                sql.run(&format!("DELETE FROM {table} WHERE compile IN ({old})"), values![before])?;
            }
            sql.run(&format!("DELETE FROM compile WHERE id IN ({old})"), values![before])
        })
    }

    /// Values of one setting in all environments that have it.
    ///
    /// # Errors
    /// Those of the database.
    pub fn setting_everywhere(&self, name: &str) -> Result<Vec<(EnvironmentKey, Json)>> {
        let select = "SELECT environment, value FROM setting WHERE name = ?1";
        self.look(|sql| {
            sql.all(select, values![name], |row| Ok((EnvironmentKey(row.int(0)?), row.json(1)?)))
        })
    }
}

/// Whether compiles that follow from something else happen in an environment: it has a repository, and nobody turned them off.
fn compiles_by_itself(sql: &mut dyn Sql, environment: EnvironmentKey) -> Result<bool> {
    let select = "SELECT 1 FROM environment WHERE id = ?1 AND repository <> '' AND deleting = 0 \
         AND NOT EXISTS (SELECT 1 FROM setting WHERE setting.environment = ?1 \
         AND setting.name = 'server_compile' AND setting.value = 'false')";
    Ok(sql.first(select, values![environment.0], |row| row.int(0))?.is_some())
}

/// Asks for a compile that follows from something, in the transaction in which that happens. Where the server does not compile,
/// nothing follows. Answers whether one was asked for.
pub fn enqueue_consequence(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    new: &NewCompile<'_>,
    now: Timestamp,
) -> Result<bool> {
    Ok(compiles_by_itself(sql, environment)? && enqueue_compile(sql, environment, new, now)?)
}

impl Records<'_> {
    /// As `enqueue_consequence`, in a transaction of its own.
    ///
    /// # Errors
    /// Those of the database.
    pub fn add_consequence(
        &self,
        environment: EnvironmentKey,
        new: &NewCompile<'_>,
        now: Timestamp,
    ) -> Result<bool> {
        self.change(|sql| enqueue_consequence(sql, environment, new, now))
    }
}
