//! Results of an engine: states, actions, origins and facts, written in batches.
//!
//! All these transactions lock the lease first, so that a concurrent owner waits for them or refuses
//! them. They see what was committed before: repeating a large batch would cost more than waiting.

use std::collections::{BTreeMap, BTreeSet};

use orrery_model::{ResourceState, Timestamp};

use crate::encoding::{Code as _, ORIGIN_ADOPTED, ORIGIN_CREATED, upsert_state_sql};
use crate::records::facts::FactWriter;
use crate::records::resources_subject;
use crate::rows::{is_purged, list_text, origin_after};
use crate::sql::ColumnType::{Blob, Integer, Text};
use crate::sql::{RowExt as _, RowsStatement, Sql, SqlExt as _, SqlValue};
use crate::{
    ActionRecord, EnvironmentKey, Lease, NewChange, ParameterEffect, Result, ResultBatch,
    ResultRecord, StateRecord, values,
};

/// Columns of an entry of the log. The environment is the first parameter.
pub(super) const INSERT_ACTIONS: RowsStatement<'_> = RowsStatement {
    text: "INSERT INTO action (id, environment, resource, kind, version, started, finished, \
         outcome, change, changes, log) SELECT new.id, ?1, new.resource, new.kind, new.version, \
         new.started, new.finished, new.outcome, new.change, new.changes, new.log FROM {rows}",
    columns: &[
        ("id", Integer),
        ("resource", Integer),
        ("kind", Integer),
        ("version", Integer),
        ("started", Integer),
        ("finished", Integer),
        ("outcome", Integer),
        ("change", Integer),
        ("changes", Text),
        ("log", Text),
    ],
};

const END_EFFECTS: RowsStatement<'_> = RowsStatement {
    text: "DELETE FROM begun WHERE resource IN (SELECT old.resource FROM {rows} \
         JOIN begun AS old ON old.resource = new.resource WHERE old.started <= new.started)",
    columns: &[("resource", Integer), ("started", Integer)],
};

/// Deletes the records of ended effects, and marks unknown ones.
fn settle_effects(sql: &mut dyn Sql, batch: &ResultBatch<'_>) -> Result<()> {
    let ended: Vec<SqlValue<'_>> = batch
        .ended
        .iter()
        .flat_map(|(resource, started)| [resource.0.into(), (*started).into()])
        .collect();
    sql.run_rows(&END_EFFECTS, &[], &ended)?;
    if !batch.unknown.is_empty() {
        let keys: Vec<i64> = batch.unknown.iter().map(|resource| resource.0).collect();
        let mark =
            format!("UPDATE begun SET is_unknown = 1 WHERE resource {}", sql.in_integers("?1"));
        sql.run(&mark, &[SqlValue::Integers(&keys)])?;
    }
    Ok(())
}

/// Identity of an action in the log: resource, start and end.
type LogKey = (i64, i64, i64);

fn log_key(result: &ResultRecord<'_>, action: &ActionRecord<'_>) -> LogKey {
    (result.resource.0, action.started.0, action.finished.0)
}

/// Actions of these results that are in the log already.
fn logged_actions(sql: &mut dyn Sql, results: &[ResultRecord<'_>]) -> Result<BTreeSet<LogKey>> {
    let select = RowsStatement {
        text: "SELECT new.resource, new.started, new.finished FROM {rows} \
             JOIN action ON action.resource = new.resource AND action.started = new.started \
             AND action.finished = new.finished",
        columns: &[("resource", Integer), ("started", Integer), ("finished", Integer)],
    };
    let mut cells = Vec::new();
    for result in results {
        let Some(action) = &result.action else { continue };
        cells.extend_from_slice(values![result.resource.0, action.started, action.finished]);
    }
    let mut found = BTreeSet::new();
    sql.visit_rows(&select, &[], &cells, &mut |row| {
        found.insert((row.int(0)?, row.int(1)?, row.int(2)?));
        Ok(())
    })?;
    Ok(found)
}

pub(super) fn record_batch(
    sql: &mut dyn Sql,
    lease: &Lease,
    batch: &ResultBatch<'_>,
) -> Result<ParameterEffect> {
    sql.check_lease(lease)?;
    settle_effects(sql, batch)?;
    let logged = if batch.is_retry { logged_actions(sql, batch.results)? } else { BTreeSet::new() };
    sql.prefer_index_scans()?;
    let environment = lease.environment;
    let mut states = Vec::with_capacity(batch.results.len());
    let mut ended = Vec::with_capacity(batch.results.len());
    let mut actions = Vec::with_capacity(batch.results.len());
    let mut facts = FactWriter::default();
    for result in batch.results {
        let key = result.resource;
        if let Some(state) = result.state {
            states.push(StateRecord { resource: key, state });
        }
        // A state that is stored during a run, such as a new intent, is not a result.
        if result.action.is_some() || result.state.is_some_and(|state| !state.deploying) {
            ended.push(key.0);
        }
        let Some(action) = &result.action else {
            if !result.facts.is_empty() {
                facts.set(key, result.facts, current_time(sql)?);
            }
            continue;
        };
        if logged.contains(&log_key(result, action)) {
            continue;
        }
        actions.push((key.0, action));
        if is_purged(action.kind, action.outcome, action.change) {
            facts.delete(key);
        } else if !result.facts.is_empty() {
            facts.set(key, result.facts, action.finished);
        }
    }
    write_states(sql, &states)?;
    write_origins(sql, &actions)?;
    if !ended.is_empty() {
        let end = format!("DELETE FROM running WHERE resource {}", sql.in_integers("?1"));
        sql.run(&end, &[SqlValue::Integers(&ended)])?;
    }
    write_actions(sql, environment, &actions)?;
    let effect = facts.write(sql, environment)?;
    if !batch.results.is_empty() {
        let subject = resources_subject(batch.results.iter().map(|result| result.resource));
        record_resource_change(sql, environment, &subject)?;
    }
    Ok(effect)
}

fn current_time(sql: &mut dyn Sql) -> Result<Timestamp> {
    let select = format!("SELECT {}", sql.now_expression());
    Ok(sql.first(&select, &[], |row| row.time(0))?.unwrap_or_default())
}

/// Adds to the change feed, with the time of the database.
pub(super) fn record_resource_change(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    subject: &str,
) -> Result<()> {
    let environment = Some(environment);
    sql.record_change(&NewChange { environment, kind: "resources", subject, at: None })
}

/// A deploy that finds a resource created by an earlier one does not change its origin.
const SET_ORIGINS: RowsStatement<'_> = RowsStatement {
    text: "UPDATE state SET origin = new.origin FROM {rows} \
         WHERE state.resource = new.resource AND coalesce(state.origin, -1) <> new.origin \
         AND NOT (new.origin = 1 AND coalesce(state.origin, -1) = 2)",
    columns: &[("resource", Integer), ("origin", Integer)],
};

/// Records the origin of resources, in the order of keys, so that two writers cannot deadlock.
fn write_origins(sql: &mut dyn Sql, actions: &[(i64, &ActionRecord<'_>)]) -> Result<()> {
    let mut origins: BTreeMap<i64, i64> = BTreeMap::new();
    for (resource, action) in actions {
        let Some(origin) = origin_after(action) else { continue };
        let entry = origins.entry(*resource).or_insert(origin);
        if (*entry, origin) != (ORIGIN_CREATED, ORIGIN_ADOPTED) {
            *entry = origin;
        }
    }
    let cells: Vec<SqlValue<'_>> = origins
        .into_iter()
        .flat_map(|(resource, origin)| [resource.into(), origin.into()])
        .collect();
    sql.run_rows(&SET_ORIGINS, &[], &cells).map(drop)
}

/// Adds to the log.
fn write_actions(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    actions: &[(i64, &ActionRecord<'_>)],
) -> Result<()> {
    if actions.is_empty() {
        return Ok(());
    }
    let first = sql.allocate_numbers("action", actions.len())?;
    let texts: Vec<(Option<String>, Option<String>)> = actions
        .iter()
        .map(|(_, action)| Ok((list_text(&action.change.attributes)?, list_text(action.log)?)))
        .collect::<Result<_>>()?;
    let mut cells = Vec::with_capacity(actions.len() * INSERT_ACTIONS.columns.len());
    for ((id, (resource, action)), (changes, log)) in (first..).zip(actions).zip(&texts) {
        cells.extend_from_slice(values![
            id,
            *resource,
            action.kind.code(),
            i64::from(action.version.0),
            action.started,
            action.finished,
            action.outcome.code(),
            action.change.kind.code(),
            changes.as_ref(),
            log.as_ref(),
        ]);
    }
    sql.run_rows(&INSERT_ACTIONS, values![environment.0], &cells).map(drop)
}

const STATE_CELLS: [(&str, crate::sql::ColumnType); 13] = [
    ("resource", Integer),
    ("intent", Blob),
    ("undefined", Integer),
    ("blocked", Integer),
    ("last_run", Integer),
    ("last_run_compliant", Integer),
    ("last_outcome", Integer),
    ("last_run_at", Integer),
    ("last_deployed", Blob),
    ("last_success", Integer),
    ("last_produced_events", Integer),
    ("attempts", Integer),
    ("parked", Integer),
];

/// Stores the last state of each resource, in the order of keys, so that two writers cannot
/// deadlock.
pub(super) fn write_states(sql: &mut dyn Sql, records: &[StateRecord<'_>]) -> Result<()> {
    let mut states: Vec<(i64, &ResourceState)> =
        records.iter().map(|record| (record.resource.0, record.state)).collect();
    states.sort_by_key(|(key, _)| *key);
    let mut cells = Vec::with_capacity(states.len() * STATE_CELLS.len());
    for (index, (key, state)) in states.iter().enumerate() {
        if states.get(index + 1).is_some_and(|(next, _)| next == key) {
            continue;
        }
        cells.extend_from_slice(values![
            *key,
            state.intent.as_ref().map(|hash| &hash.0),
            state.undefined,
            state.blocked.code(),
            state.last_run.code(),
            state.last_run_compliant,
            state.last_outcome.map(|outcome| outcome.code()),
            state.last_run_at,
            state.last_deployed.as_ref().map(|hash| &hash.0),
            state.last_success,
            state.last_produced_events,
            i64::from(state.attempts),
            state.parked,
        ]);
    }
    // Faster in SQLite than REPLACE, which deletes the old row from every index first.
    let names = STATE_CELLS.map(|(name, _)| name).join(", ");
    let cells_of_row = STATE_CELLS.map(|(name, _)| format!("new.{name}")).join(", ");
    let text = format!(
        "INSERT INTO state ({names}) SELECT {cells_of_row} FROM {{rows}} WHERE true {}",
        upsert_state_sql()
    );
    let statement = RowsStatement { text: &text, columns: &STATE_CELLS };
    sql.run_rows(&statement, &[], &cells).map(drop)
}
