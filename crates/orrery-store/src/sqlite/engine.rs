//! Writes of an engine under its lease, and reads at its start: leases, states, results, progress.

use orrery_model::{ChangeKind, Timestamp, VersionNumber};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::parameters::FactWriter;
use super::{allocate_numbers, record_change, text_from};
use crate::encoding::{
    Code, STATE_COLUMN_COUNT, STATE_COLUMNS, state_from, unsigned, upsert_state_sql,
    version_number_from,
};
use crate::records::resources_subject;
use crate::rows::{is_purged, list_text, origin_after};
use crate::{
    ActionKind, EnvironmentKey, Holder, Lease, LeaseRequest, ParameterEffect, RenewalOutcome,
    ResourceKey, Result, ResultBatch, StartedAction, StateRecord, StateRow, StoreError,
};

pub(super) fn acquire_lease(
    tx: &Connection,
    environment: EnvironmentKey,
    request: &LeaseRequest,
) -> Result<Lease> {
    let sql = "SELECT expires FROM lease WHERE environment = ?1 AND held";
    let held: Option<Option<i64>> =
        tx.query_row(sql, [environment.0], |row| row.get(0)).optional()?;
    if let Some(expires) = held
        && expires.is_none_or(|expires| expires > request.now.0)
        && let Some(holder) = lease_holder(tx, environment)?
    {
        return Err(StoreError::Leased { holder });
    }
    let holder = &request.holder;
    let epoch: i64 = tx.query_row(
        "INSERT INTO lease (environment, epoch, held, pid, host, command, since, expires) \
         VALUES (?1, 1, 1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (environment) DO UPDATE SET \
         epoch = lease.epoch + 1, held = 1, pid = excluded.pid, host = excluded.host, \
         command = excluded.command, since = excluded.since, expires = excluded.expires \
         RETURNING epoch",
        params![
            environment.0,
            holder.pid,
            holder.host,
            holder.command,
            holder.since.0,
            request.expires.map(|expires| expires.0),
        ],
        |row| row.get(0),
    )?;
    Ok(Lease { environment, epoch: unsigned(epoch)? })
}

/// Fails if the lease is not the current one.
pub(super) fn check_lease(tx: &Connection, lease: &Lease) -> Result<()> {
    let mut statement =
        tx.prepare_cached("SELECT epoch, held FROM lease WHERE environment = ?1")?;
    let found = statement
        .query_row([lease.environment.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (epoch, held): (i64, bool) = found.unwrap_or((0, false));
    let current = unsigned(epoch)?;
    if held && current == lease.epoch {
        return Ok(());
    }
    Err(StoreError::StaleEpoch { held: lease.epoch, current })
}

pub(super) fn renew_leases(
    tx: &Connection,
    leases: &[Lease],
    expires: Timestamp,
) -> Result<RenewalOutcome> {
    let sql = "UPDATE lease SET expires = ?3 WHERE environment = ?1 AND epoch = ?2 AND held";
    let mut update = tx.prepare_cached(sql)?;
    let mut renewal = RenewalOutcome::default();
    for lease in leases {
        let epoch = i64::try_from(lease.epoch).unwrap_or(i64::MAX);
        if update.execute(params![lease.environment.0, epoch, expires.0])? == 0 {
            renewal.lost.push(*lease);
        }
    }
    Ok(renewal)
}

pub(super) fn release_lease(tx: &Connection, lease: &Lease) -> Result<()> {
    check_lease(tx, lease)?;
    tx.execute("UPDATE lease SET held = 0 WHERE environment = ?1", [lease.environment.0])?;
    Ok(())
}

pub(super) fn lease_holder(tx: &Connection, environment: EnvironmentKey) -> Result<Option<Holder>> {
    let sql = "SELECT pid, host, command, since FROM lease WHERE environment = ?1 AND held";
    let holder = tx.query_row(sql, [environment.0], |row| {
        Ok(Holder {
            pid: row.get(0)?,
            host: row.get(1)?,
            command: row.get(2)?,
            since: Timestamp(row.get(3)?),
        })
    });
    Ok(holder.optional()?)
}

/// Turns running actions into log entries of interrupted ones.
pub(super) fn recover_actions(tx: &Connection, lease: &Lease) -> Result<Vec<StartedAction>> {
    check_lease(tx, lease)?;
    let interrupted = running_actions(tx, lease.environment)?;
    let first = allocate_numbers(tx, "action", interrupted.len())?;
    let mut insert = tx.prepare_cached(INSERT_ACTION)?;
    for (id, action) in (first..).zip(&interrupted) {
        insert.execute(params![
            id,
            lease.environment.0,
            action.resource.0,
            action.kind.code(),
            action.version.0,
            action.at.0,
            None::<i64>,
            None::<i64>,
            ChangeKind::NoChange.code(),
            None::<&str>,
            None::<&str>,
        ])?;
    }
    tx.execute("DELETE FROM running WHERE environment = ?1", [lease.environment.0])?;
    Ok(interrupted)
}

pub(super) fn begin_actions(
    tx: &Connection,
    lease: &Lease,
    actions: &[StartedAction],
) -> Result<()> {
    check_lease(tx, lease)?;
    let mut statement = tx.prepare_cached(
        "INSERT OR REPLACE INTO running (resource, environment, kind, version, started) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for action in actions {
        statement.execute(params![
            action.resource.0,
            lease.environment.0,
            action.kind.code(),
            action.version.0,
            action.at.0,
        ])?;
    }
    Ok(())
}

const INSERT_ACTION: &str = "INSERT INTO action (id, environment, resource, kind, version, \
     started, finished, outcome, change, changes, log) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// A deploy that finds a resource created by an earlier one does not change its origin.
const SET_ORIGIN: &str = "UPDATE state SET origin = ?2 WHERE resource = ?1 \
     AND coalesce(origin, -1) <> ?2 AND NOT (?2 = 1 AND coalesce(origin, -1) = 2)";

/// Microseconds since the epoch.
const NOW: &str = "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)";

pub(super) fn record_batch(
    tx: &Connection,
    lease: &Lease,
    batch: &ResultBatch<'_>,
) -> Result<ParameterEffect> {
    check_lease(tx, lease)?;
    let environment = lease.environment;
    let ResultBatch { results, ended, unknown, is_retry } = *batch;
    for (resource, started) in ended {
        let end = "DELETE FROM begun WHERE resource = ?1 AND started <= ?2";
        tx.prepare_cached(end)?.execute(params![resource.0, started.0])?;
    }
    for resource in unknown {
        let mark = "UPDATE begun SET is_unknown = 1 WHERE resource = ?1";
        tx.prepare_cached(mark)?.execute([resource.0])?;
    }
    let mut is_there = tx.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM action WHERE resource = ?1 AND started = ?2 AND finished = ?3)",
    )?;
    let count = results.iter().filter(|result| result.action.is_some()).count();
    let mut action_id = allocate_numbers(tx, "action", count)?;
    let any_running: bool =
        tx.query_row("SELECT EXISTS (SELECT 1 FROM running)", (), |row| row.get(0))?;
    let mut end = tx.prepare_cached("DELETE FROM running WHERE resource = ?1")?;
    let mut insert = tx.prepare_cached(INSERT_ACTION)?;
    let mut set_origin = tx.prepare_cached(SET_ORIGIN)?;
    let mut states = StateWriter::new(tx)?;
    let mut facts = FactWriter::new(tx, environment)?;
    let mut effect = ParameterEffect::default();
    for result in results {
        let key = result.resource;
        if let Some(state) = result.state {
            states.write(&StateRecord { resource: key, state })?;
        }
        // A state that is stored during a run, such as a new intent, is not a result.
        let has_ended =
            result.action.is_some() || result.state.is_some_and(|state| !state.deploying);
        if any_running && has_ended {
            end.execute([key.0])?;
        }
        let Some(action) = &result.action else {
            if !result.facts.is_empty() {
                let now: i64 = tx.query_row(NOW, (), |row| row.get(0))?;
                effect += facts.write(key, result.facts, Timestamp(now))?;
            }
            continue;
        };
        if is_retry
            && is_there.query_row(params![key.0, action.started.0, action.finished.0], |row| {
                row.get::<_, bool>(0)
            })?
        {
            continue;
        }
        insert.execute(params![
            action_id,
            environment.0,
            key.0,
            action.kind.code(),
            action.version.0,
            action.started.0,
            action.finished.0,
            action.outcome.code(),
            action.change.kind.code(),
            list_text(&action.change.attributes)?,
            list_text(action.log)?,
        ])?;
        action_id += 1;
        if let Some(origin) = origin_after(action) {
            set_origin.execute(params![key.0, origin])?;
        }
        if is_purged(action.kind, action.outcome, action.change) {
            facts.delete(key)?;
        } else if !result.facts.is_empty() {
            effect += facts.write(key, result.facts, action.finished)?;
        }
    }
    if !results.is_empty() {
        let subject = resources_subject(results.iter().map(|result| result.resource));
        record_change(tx, environment, "resources", &subject)?;
    }
    Ok(effect)
}

struct StateWriter<'a> {
    statement: CachedStatement<'a>,
}

impl<'a> StateWriter<'a> {
    fn new(tx: &'a Connection) -> Result<Self> {
        // Faster than REPLACE, which deletes the old row from every index first.
        let statement = tx.prepare_cached(&format!(
            "INSERT INTO state (resource, intent, undefined, blocked, last_run, \
             last_run_compliant, last_outcome, last_run_at, last_deployed, last_success, \
             last_produced_events, attempts, parked) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) {}",
            upsert_state_sql()
        ))?;
        Ok(StateWriter { statement })
    }

    fn write(&mut self, record: &StateRecord<'_>) -> Result<()> {
        let state = record.state;
        let time = |time: Option<Timestamp>| time.map(|time| time.0);
        self.statement.execute(params![
            record.resource.0,
            state.intent.as_ref().map(|hash| &hash.0[..]),
            state.undefined,
            state.blocked.code(),
            state.last_run.code(),
            state.last_run_compliant,
            state.last_outcome.map(Code::code),
            time(state.last_run_at),
            state.last_deployed.as_ref().map(|hash| &hash.0[..]),
            time(state.last_success),
            time(state.last_produced_events),
            state.attempts,
            state.parked,
        ])?;
        Ok(())
    }
}

pub(super) fn process_version(
    tx: &Connection,
    lease: &Lease,
    number: VersionNumber,
    states: &[StateRecord<'_>],
) -> Result<()> {
    check_lease(tx, lease)?;
    super::read::find_version(tx, lease.environment, number)?;
    let mut writer = StateWriter::new(tx)?;
    for state in states {
        writer.write(state)?;
    }
    tx.execute(
        "INSERT INTO scheduler (environment, processed_version) VALUES (?1, ?2) \
         ON CONFLICT (environment) DO UPDATE SET processed_version = excluded.processed_version",
        params![lease.environment.0, number.0],
    )?;
    let subject = resources_subject(states.iter().map(|state| state.resource));
    record_change(tx, lease.environment, "resources", &subject)
}

pub(super) fn running_actions(
    tx: &Connection,
    environment: EnvironmentKey,
) -> Result<Vec<StartedAction>> {
    let mut running = Vec::new();
    let sql = "SELECT resource, kind, version, started FROM running WHERE environment = ?1 \
         ORDER BY started, resource";
    let mut statement = tx.prepare_cached(sql)?;
    let mut rows = statement.query([environment.0])?;
    while let Some(row) = rows.next()? {
        running.push(StartedAction {
            resource: ResourceKey(row.get(0)?),
            kind: ActionKind::from_code(row.get(1)?)?,
            version: version_number_from(row.get(2)?)?,
            at: Timestamp(row.get(3)?),
        });
    }
    Ok(running)
}

pub(super) fn processed_version(
    tx: &Connection,
    environment: EnvironmentKey,
) -> Result<Option<VersionNumber>> {
    let sql = "SELECT processed_version FROM scheduler WHERE environment = ?1";
    let number: Option<u32> = tx.query_row(sql, [environment.0], |row| row.get(0)).optional()?;
    Ok(number.map(VersionNumber))
}

pub(super) fn read_states(
    tx: &Connection,
    environment: EnvironmentKey,
    visit: &mut dyn FnMut(StateRow<'_>),
) -> Result<()> {
    let sql = format!(
        "SELECT {STATE_COLUMNS}, running.resource IS NOT NULL, resource.id, resource.name \
         FROM resource CROSS JOIN state ON state.resource = resource.id \
         LEFT JOIN running ON running.resource = resource.id \
         WHERE resource.environment = ?1 ORDER BY resource.environment, resource.name"
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let mut rows = statement.query([environment.0])?;
    while let Some(row) = rows.next()? {
        let state = state_from(row, 0, row.get(STATE_COLUMN_COUNT)?)?;
        visit(StateRow {
            key: ResourceKey(row.get(STATE_COLUMN_COUNT + 1)?),
            id: text_from(row.get_ref(STATE_COLUMN_COUNT + 2)?)?,
            state: &state,
        });
    }
    Ok(())
}

/// Deletes old actions. They are stored in the order in which they ended, except within a batch, so
/// the search for the first that stays reads only those to be deleted.
pub(super) fn expire_actions(tx: &Connection, lease: &Lease, before: Timestamp) -> Result<u64> {
    check_lease(tx, lease)?;
    let environment = lease.environment.0;
    let sql = "SELECT id FROM action WHERE environment = ?1 \
         AND coalesce(finished, started) >= ?2 ORDER BY id LIMIT 1";
    let first_kept: Option<i64> =
        tx.query_row(sql, params![environment, before.0], |row| row.get(0)).optional()?;
    let count = tx.execute(
        "DELETE FROM action WHERE environment = ?1 AND id < ?2",
        params![environment, first_kept.unwrap_or(i64::MAX)],
    )?;
    Ok(count as u64)
}
