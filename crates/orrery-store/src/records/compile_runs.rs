//! Runs of compiles: at most one per environment at a time, stage by stage, with the output of each
//! stage.

use orrery_model::{CompileId, NotificationId, Timestamp, VersionNumber};
use serde_json::{Value as Json, json};

use crate::records::compiles::{COLUMNS, find, from_row, text_of};
use crate::records::notifications::{NewNotification, insert_notification};
use crate::records::{CompileRecord, Compiles, Transactions as _, merge_compiles, record_change};
use crate::sql::{RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, StoreError, values};

/// Right to run a compile. It ends when the run is not renewed in time or is cancelled; its writes
/// are refused afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileRun {
    pub id: CompileId,
    pub environment: EnvironmentKey,
    epoch: i64,
}

/// A compile that is to run now.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedCompile {
    pub run: CompileRun,
    pub record: CompileRecord,
}

/// An environment in which a compile waits or runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileQueueState {
    pub environment: EnvironmentKey,
    /// Request time of the first waiting compile.
    pub requested: Timestamp,
    /// Time until which the running compile, if any, counts as alive.
    pub alive_until: Option<Timestamp>,
    /// End of the last compile.
    pub last_completed: Option<Timestamp>,
}

/// Failure of a compile.
#[derive(Clone, Debug)]
pub struct CompileFailure {
    /// Structured errors and further details.
    pub data: Json,
    pub notice: Option<FailureNotice>,
}

/// Notification about a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureNotice {
    pub uuid: NotificationId,
    pub title: String,
    pub message: String,
    /// Path of the details.
    pub uri: String,
}

/// One stage of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageRecord {
    pub position: i64,
    pub name: String,
    pub command: String,
    pub started: Timestamp,
    pub completed: Option<Timestamp>,
    pub returncode: Option<i64>,
}

/// A part of the output of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputChunk {
    /// A later chunk has a greater one.
    pub id: i64,
    pub position: i64,
    /// Written to the error stream.
    pub error: bool,
    pub text: String,
}

fn lock_name_for(environment: EnvironmentKey) -> String {
    format!("compile:{}", environment.0)
}

/// Fails if the run has lost its right.
fn check_run(sql: &mut dyn Sql, run: &CompileRun) -> Result<()> {
    let select = "SELECT epoch FROM compile WHERE id = ?1 AND completed IS NULL";
    let current = sql.first(select, values![run.id], |row| row.int(0))?;
    if current == Some(run.epoch) { Ok(()) } else { Err(stale_run(run, current)) }
}

fn stale_run(run: &CompileRun, current: Option<i64>) -> StoreError {
    let number = |epoch: i64| u64::try_from(epoch).unwrap_or_default();
    let current = number(current.unwrap_or(run.epoch + 1));
    StoreError::StaleEpoch { held: number(run.epoch), current }
}

/// Deletes stages and output of an earlier run of the compile.
fn delete_run_output(sql: &mut dyn Sql, id: CompileId) -> Result<()> {
    for table in ["compile_output", "compile_stage"] {
        sql.run(&format!("DELETE FROM {table} WHERE compile = ?1"), values![id])?;
    }
    Ok(())
}

impl Compiles<'_> {
    /// Environments that are not halted and have compiles that wait or run.
    ///
    /// # Errors
    /// Database errors.
    pub fn waiting(&self) -> Result<Vec<CompileQueueState>> {
        let select = "SELECT compile.environment, \
             min(CASE WHEN compile.started IS NULL THEN compile.requested END), \
             max(compile.alive_until), min(compile.requested), \
             (SELECT max(done.completed) FROM compile AS done \
              WHERE done.environment = compile.environment) \
             FROM compile JOIN environment ON environment.id = compile.environment \
             WHERE compile.completed IS NULL AND environment.halted = 0 AND environment.deleting = 0 \
             GROUP BY compile.environment";
        self.query(|sql| {
            sql.all(select, &[], |row| {
                Ok(CompileQueueState {
                    environment: EnvironmentKey(row.int(0)?),
                    requested: row.maybe_time(1)?.unwrap_or(row.time(3)?),
                    alive_until: row.maybe_time(2)?,
                    last_completed: row.maybe_time(4)?,
                })
            })
        })
    }

    /// Claims the next compile of an environment, with all requests that one run can serve, unless
    /// one is running or the environment is halted. A run that ended without a result is repeated.
    ///
    /// # Errors
    /// Database errors.
    pub fn claim(
        &self,
        environment: EnvironmentKey,
        now: Timestamp,
        alive_until: Timestamp,
    ) -> Result<Option<ClaimedCompile>> {
        self.transact(|sql| {
            sql.lock_name(&lock_name_for(environment))?;
            let state = "SELECT halted + deleting FROM environment WHERE id = ?1";
            if sql.first(state, values![environment.0], |row| row.int(0))? != Some(0) {
                return Ok(None);
            }
            let open = format!(
                "{COLUMNS} WHERE environment = ?1 AND completed IS NULL ORDER BY requested, id"
            );
            let open = sql.all(&open, values![environment.0], from_row)?;
            let interrupted =
                open.iter().find(|one| one.started.is_some() && one.substitute.is_none());
            if interrupted.and_then(|one| one.alive_until).is_some_and(|until| until > now) {
                return Ok(None);
            }
            let first = || open.iter().find(|one| one.started.is_none());
            let Some(leader) = interrupted.or_else(first) else { return Ok(None) };
            // An interrupted run may have stored its version: it serves only the requests that were
            // merged with it.
            let open_for_all = leader.reserved.is_none();
            let served = open.iter().filter(|one| {
                let joins = one.started.is_none()
                    && open_for_all
                    && leader.request.is_mergeable_with(&one.request);
                one.id != leader.id && (one.substitute == Some(leader.id) || joins)
            });
            let served: Vec<&CompileRecord> = served.collect();
            let used = merge_compiles(&leader.request, served.iter().map(|one| &one.request));
            let used = text_of(&used)?;
            delete_run_output(sql, leader.id)?;
            let epoch = leader.epoch + 1;
            let update = "UPDATE compile SET started = ?2, used = ?3, epoch = ?4, alive_until = ?5 \
                 WHERE id = ?1";
            sql.run(update, values![leader.id, now, &used, epoch, alive_until])?;
            for one in served {
                let update =
                    "UPDATE compile SET started = ?2, used = ?3, substitute = ?4 WHERE id = ?1";
                sql.run(update, values![one.id, now, &used, leader.id])?;
                record_change(sql, Some(environment), "compile", &one.id.to_string(), now)?;
            }
            record_change(sql, Some(environment), "compile", &leader.id.to_string(), now)?;
            let run = CompileRun { id: leader.id, environment, epoch };
            Ok(Some(ClaimedCompile { run, record: find(sql, leader.id)? }))
        })
    }

    /// Renews the right to run a compile.
    ///
    /// # Errors
    /// `StaleEpoch` if it has lost its right.
    pub fn renew(&self, run: &CompileRun, until: Timestamp) -> Result<()> {
        self.transact(|sql| {
            let update = "UPDATE compile SET alive_until = ?3 \
                 WHERE id = ?1 AND epoch = ?2 AND completed IS NULL";
            match sql.run(update, values![run.id, run.epoch, until])? {
                0 => Err(stale_run(run, None)),
                _ => Ok(()),
            }
        })
    }

    /// Gives a run up before its end: the next claim repeats it.
    ///
    /// # Errors
    /// Database errors.
    pub fn abandon(&self, run: &CompileRun, now: Timestamp) -> Result<()> {
        self.transact(|sql| {
            let update = "UPDATE compile SET alive_until = NULL \
                 WHERE id = ?1 AND epoch = ?2 AND completed IS NULL";
            sql.run(update, values![run.id, run.epoch])?;
            record_change(sql, Some(run.environment), "compile", &run.id.to_string(), now)
        })
    }

    /// Records the start of a stage.
    ///
    /// # Errors
    /// `StaleEpoch` if the run has lost its right.
    pub fn begin_stage(
        &self,
        run: &CompileRun,
        position: i64,
        name: &str,
        command: &str,
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| {
            check_run(sql, run)?;
            let insert = "INSERT INTO compile_stage (compile, position, name, command, started) \
                 VALUES (?1, ?2, ?3, ?4, ?5)";
            sql.run(insert, values![run.id, position, name, command, now])?;
            record_change(sql, Some(run.environment), "compile", &run.id.to_string(), now)
        })
    }

    /// Stores output of a stage: pairs of error stream or not, and the text.
    ///
    /// # Errors
    /// `StaleEpoch` if the run has lost its right.
    pub fn add_output(
        &self,
        run: &CompileRun,
        position: i64,
        pieces: &[(bool, String)],
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| {
            check_run(sql, run)?;
            let insert = "INSERT INTO compile_output (id, compile, position, stream, text) \
                 VALUES (?1, ?2, ?3, ?4, ?5)";
            for (error, text) in pieces {
                let stream = if *error { 2 } else { 1 };
                // Output is arbitrary, and PostgreSQL cannot store NUL characters.
                let text = text.replace('\0', "\u{fffd}");
                let id = sql.allocate_id("compile_output")?;
                sql.run(insert, values![id, run.id, position, stream, &text])?;
            }
            record_change(sql, Some(run.environment), "compile", &run.id.to_string(), now)
        })
    }

    /// Records the end of a stage.
    ///
    /// # Errors
    /// `StaleEpoch` if the run has lost its right.
    pub fn end_stage(
        &self,
        run: &CompileRun,
        position: i64,
        returncode: i64,
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| {
            check_run(sql, run)?;
            let update = "UPDATE compile_stage SET completed = ?3, returncode = ?4 \
                 WHERE compile = ?1 AND position = ?2";
            sql.run(update, values![run.id, position, now, returncode])?;
            record_change(sql, Some(run.environment), "compile", &run.id.to_string(), now)
        })
    }

    /// Records the number of the run's version before the version is stored.
    ///
    /// # Errors
    /// `StaleEpoch` if the run has lost its right.
    pub fn reserve_version(&self, run: &CompileRun, number: VersionNumber) -> Result<()> {
        let number = i64::from(number.0);
        self.transact(|sql| {
            let update = "UPDATE compile SET reserved = ?3 \
                 WHERE id = ?1 AND epoch = ?2 AND completed IS NULL";
            match sql.run(update, values![run.id, run.epoch, number])? {
                0 => Err(stale_run(run, None)),
                _ => Ok(()),
            }
        })
    }

    /// Ends a run: completes its compile and all merged requests, with all consequences.
    ///
    /// # Errors
    /// `StaleEpoch` if the run has lost its right.
    pub fn complete(
        &self,
        run: &CompileRun,
        outcome: &std::result::Result<(Option<VersionNumber>, Option<Json>), CompileFailure>,
        now: Timestamp,
    ) -> Result<()> {
        let (version, data, notice) = match outcome {
            Ok((version, data)) => (*version, data.clone(), None),
            Err(failure) => (None, Some(failure.data.clone()), failure.notice.as_ref()),
        };
        let version = version.map(|number| i64::from(number.0));
        let data = data.map(|data| data.to_string());
        self.transact(|sql| {
            check_run(sql, run)?;
            let update = "UPDATE compile SET completed = ?2, success = ?3, version = ?4, data = ?5, \
                 handled = 1, alive_until = NULL \
                 WHERE (id = ?1 OR substitute = ?1) AND completed IS NULL RETURNING id";
            let values = values![run.id, now, outcome.is_ok(), version, data.as_deref()];
            let ended: Vec<CompileId> = sql.all(update, values, |row| row.id(0))?;
            if let Some(FailureNotice { uuid, title, message, uri }) = notice {
                let (severity, compile) = ("error", Some(run.id));
                let new =
                    NewNotification { uuid: *uuid, title, message, severity, uri, compile };
                insert_notification(sql, run.environment, &new, now)?;
            }
            for id in ended {
                record_change(sql, Some(run.environment), "compile", &id.to_string(), now)?;
            }
            Ok(())
        })
    }

    /// Cancels a compile. Requests merged into its run wait again. A compile that has ended stays
    /// unchanged.
    ///
    /// # Errors
    /// `NotFound` if the environment has no such compile.
    pub fn cancel(
        &self,
        environment: EnvironmentKey,
        id: CompileId,
        by: &str,
        now: Timestamp,
    ) -> Result<CompileRecord> {
        let data = json!({"errors": [{
            "category": "cancelled", "type": "Cancelled", "message": format!("cancelled by {by}"),
        }]});
        let data = data.to_string();
        self.transact(|sql| {
            sql.lock_name(&lock_name_for(environment))?;
            let found = find(sql, id)?;
            if found.environment != environment {
                return Err(StoreError::not_found("compile", id.to_string()));
            }
            if found.completed.is_some() {
                return Ok(found);
            }
            let others = "UPDATE compile SET started = NULL, used = NULL, substitute = NULL \
                 WHERE substitute = ?1 AND completed IS NULL";
            sql.run(others, values![id])?;
            let update = "UPDATE compile SET completed = ?2, success = 0, data = ?3, handled = 1, \
                 alive_until = NULL, epoch = epoch + 1 WHERE id = ?1";
            sql.run(update, values![id, now, &data])?;
            record_change(sql, Some(environment), "compile", &id.to_string(), now)?;
            find(sql, id)
        })
    }

    /// The stages of a run so far.
    ///
    /// # Errors
    /// Database errors.
    pub fn stages(&self, id: CompileId) -> Result<Vec<StageRecord>> {
        let select = "SELECT position, name, command, started, completed, returncode \
             FROM compile_stage WHERE compile = ?1 ORDER BY position";
        self.query(|sql| {
            sql.all(select, values![id], |row| {
                Ok(StageRecord {
                    position: row.int(0)?,
                    name: row.string(1)?,
                    command: row.string(2)?,
                    started: row.time(3)?,
                    completed: row.maybe_time(4)?,
                    returncode: row.integer(5)?,
                })
            })
        })
    }

    /// Output of a run after a chunk.
    ///
    /// # Errors
    /// Database errors.
    pub fn output(&self, id: CompileId, after: i64, limit: usize) -> Result<Vec<OutputChunk>> {
        let select = "SELECT id, position, stream, text FROM compile_output \
             WHERE compile = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(|sql| {
            sql.all(select, values![id, after, limit], |row| {
                Ok(OutputChunk {
                    id: row.int(0)?,
                    position: row.int(1)?,
                    error: row.int(2)? == 2,
                    text: row.string(3)?,
                })
            })
        })
    }
}
