//! Writes of an engine under its lease, and reads at its start: states, results, progress.

use std::collections::{BTreeMap, BTreeSet};

use orrery_model::{ChangeKind, ResourceState, Timestamp, VersionNumber};
use rustc_hash::FxHashMap;

pub(super) use super::leases::check_lease;
use super::parameters::FactWriter;
use super::read::{PAGE, find_version};
use super::transaction::Tx;
use crate::encoding::{
    Code, ORIGIN_ADOPTED, ORIGIN_CREATED, STATE_COLUMN_COUNT, STATE_COLUMNS, state_from,
    upsert_state_sql, version_number_from,
};
use crate::records::resources_subject;
use crate::rows::{is_purged, list_text, origin_after};
use crate::sql::RowExt as _;
use crate::{
    ActionKind, EnvironmentKey, Lease, ParameterEffect, ResourceKey, Result, ResultBatch,
    ResultRecord, StartedAction, StateRecord, StateRow,
};

/// Rows per statement.
const CHUNK: usize = 5_000;

/// Turns running actions into log entries of interrupted ones.
pub(super) fn recover_actions(tx: &mut Tx<'_>, lease: &Lease) -> Result<Vec<StartedAction>> {
    check_lease(tx, lease)?;
    let environment = lease.environment.0;
    let interrupted = running_actions(tx, lease.environment)?;
    if interrupted.is_empty() {
        return Ok(interrupted);
    }
    let first = tx.allocate_numbers("action", interrupted.len())?;
    tx.execute(
        "INSERT INTO action (id, environment, resource, kind, version, started, change) \
         SELECT $2::bigint - 1 + row_number() OVER (ORDER BY started, resource), environment, resource, \
         kind, version, started, $3 FROM running WHERE environment = $1",
        &[&environment, &first, &ChangeKind::NoChange.code()],
    )?;
    tx.execute("DELETE FROM running WHERE environment = $1", &[&environment])?;
    Ok(interrupted)
}

pub(super) fn begin_actions(
    tx: &mut Tx<'_>,
    lease: &Lease,
    actions: &[StartedAction],
) -> Result<()> {
    check_lease(tx, lease)?;
    let mut newest: FxHashMap<i64, &StartedAction> = FxHashMap::default();
    for action in actions {
        newest.insert(action.resource.0, action);
    }
    let mut actions: Vec<&StartedAction> = newest.into_values().collect();
    actions.sort_unstable_by_key(|action| action.resource);
    for actions in actions.chunks(CHUNK) {
        let keys: Vec<i64> = actions.iter().map(|action| action.resource.0).collect();
        let kinds: Vec<i64> = actions.iter().map(|action| action.kind.code()).collect();
        let versions: Vec<i64> = actions.iter().map(|action| action.version.0.into()).collect();
        let times: Vec<i64> = actions.iter().map(|action| action.at.0).collect();
        tx.execute(
            "INSERT INTO running (resource, environment, kind, version, started) \
             SELECT a.resource, $1, a.kind, a.version, a.started \
             FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) \
             AS a (resource, kind, version, started) ON CONFLICT (resource) DO UPDATE SET \
             environment = excluded.environment, kind = excluded.kind, \
             version = excluded.version, started = excluded.started",
            &[&lease.environment.0, &keys, &kinds, &versions, &times],
        )?;
    }
    Ok(())
}

/// Deletes the records of ended effects, and marks unknown ones.
fn settle_effects(tx: &mut Tx<'_>, batch: &ResultBatch<'_>) -> Result<()> {
    if !batch.ended.is_empty() {
        let keys: Vec<i64> = batch.ended.iter().map(|(resource, _)| resource.0).collect();
        let times: Vec<i64> = batch.ended.iter().map(|(_, started)| started.0).collect();
        tx.execute(
            "DELETE FROM begun USING unnest($1::bigint[], $2::bigint[]) AS e (resource, started) \
             WHERE begun.resource = e.resource AND begun.started <= e.started",
            &[&keys, &times],
        )?;
    }
    if !batch.unknown.is_empty() {
        let keys: Vec<i64> = batch.unknown.iter().map(|resource| resource.0).collect();
        tx.execute("UPDATE begun SET is_unknown = 1 WHERE resource = ANY($1)", &[&keys])?;
    }
    Ok(())
}

/// Actions of these results that are in the log already: resource, start and end.
fn stored_actions(
    tx: &mut Tx<'_>,
    results: &[ResultRecord<'_>],
) -> Result<BTreeSet<(i64, i64, i64)>> {
    let (mut keys, mut started, mut finished) = (Vec::new(), Vec::new(), Vec::new());
    for result in results {
        let Some(action) = &result.action else { continue };
        keys.push(result.resource.0);
        started.push(action.started.0);
        finished.push(action.finished.0);
    }
    let rows = tx.query(
        "SELECT a.resource, a.started, a.finished \
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS a (resource, started, finished) \
         JOIN action ON action.resource = a.resource AND action.started = a.started \
         AND action.finished = a.finished",
        &[&keys, &started, &finished],
    )?;
    rows.iter().map(|row| Ok((row.int(0)?, row.int(1)?, row.int(2)?))).collect()
}

pub(super) fn record_batch(
    tx: &mut Tx<'_>,
    lease: &Lease,
    batch: &ResultBatch<'_>,
) -> Result<ParameterEffect> {
    check_lease(tx, lease)?;
    settle_effects(tx, batch)?;
    let results = batch.results;
    let stored = if batch.is_retry { stored_actions(tx, results)? } else { BTreeSet::new() };
    tx.prefer_index_scans()?;
    let mut states = Vec::with_capacity(results.len());
    let mut ended = Vec::with_capacity(results.len());
    let mut facts = FactWriter::default();
    for result in results {
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
                let now = Timestamp(tx.query_one("SELECT clock()", &[])?.get(0));
                facts.set(key, result.facts, now);
            }
            continue;
        };
        if is_purged(action.kind, action.outcome, action.change) {
            facts.delete(key);
        } else if !result.facts.is_empty() {
            facts.set(key, result.facts, action.finished);
        }
    }
    write_states(tx, &states)?;
    write_origins(tx, results)?;
    if !ended.is_empty() {
        tx.execute("DELETE FROM running WHERE resource = ANY($1)", &[&ended])?;
    }
    let is_new = |result: &ResultRecord<'_>| {
        let key = |action: &crate::ActionRecord<'_>| {
            (result.resource.0, action.started.0, action.finished.0)
        };
        result.action.as_ref().is_some_and(|action| !stored.contains(&key(action)))
    };
    let with_actions: Vec<&ResultRecord<'_>> =
        results.iter().filter(|result| is_new(result)).collect();
    if !with_actions.is_empty() {
        let first = tx.allocate_numbers("action", with_actions.len())?;
        for (chunk, results) in with_actions.chunks(CHUNK).enumerate() {
            let first = first + i64::try_from(chunk * CHUNK).unwrap_or(i64::MAX);
            write_actions(tx, lease.environment, first, results)?;
        }
    }
    let effect = facts.write(tx, lease.environment)?;
    if !results.is_empty() {
        let subject = resources_subject(results.iter().map(|result| result.resource));
        tx.record_change(lease.environment, "resources", &subject);
    }
    Ok(effect)
}

/// Records the origin of resources, in the order of keys, so that two writers cannot deadlock.
fn write_origins(tx: &mut Tx<'_>, results: &[ResultRecord<'_>]) -> Result<()> {
    let mut origins: BTreeMap<i64, i64> = BTreeMap::new();
    for result in results {
        let Some(origin) = result.action.as_ref().and_then(origin_after) else { continue };
        let entry = origins.entry(result.resource.0).or_insert(origin);
        if (*entry, origin) != (ORIGIN_CREATED, ORIGIN_ADOPTED) {
            *entry = origin;
        }
    }
    if origins.is_empty() {
        return Ok(());
    }
    let keys: Vec<i64> = origins.keys().copied().collect();
    let origins: Vec<i64> = origins.into_values().collect();
    // A deploy that finds a resource created by an earlier one does not change its origin.
    tx.execute(
        "UPDATE state SET origin = new.origin \
         FROM unnest($1::bigint[], $2::bigint[]) AS new (resource, origin) \
         WHERE state.resource = new.resource AND coalesce(state.origin, -1) <> new.origin \
         AND NOT (new.origin = 1 AND coalesce(state.origin, -1) = 2)",
        &[&keys, &origins],
    )?;
    Ok(())
}

/// Adds to the log, with numbers from `first` on.
fn write_actions(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    first: i64,
    results: &[&ResultRecord<'_>],
) -> Result<()> {
    let mut keys = Vec::with_capacity(results.len());
    let mut numbers: [Vec<i64>; 6] = Default::default();
    let (mut changes, mut logs) = (Vec::new(), Vec::new());
    for result in results {
        let Some(action) = &result.action else { continue };
        keys.push(result.resource.0);
        let columns = [
            action.kind.code(),
            action.version.0.into(),
            action.started.0,
            action.finished.0,
            action.outcome.code(),
            action.change.kind.code(),
        ];
        for (column, number) in numbers.iter_mut().zip(columns) {
            column.push(number);
        }
        changes.push(list_text(&action.change.attributes)?);
        logs.push(list_text(action.log)?);
    }
    let [kinds, versions, started, finished, outcomes, kinds_of_change] = &numbers;
    tx.execute(
        "INSERT INTO action (id, environment, resource, kind, version, started, finished, outcome, \
         change, changes, log) SELECT $2::bigint - 1 + a.place, $1, a.resource, a.kind, a.version, \
         a.started, a.finished, a.outcome, a.change, a.changes, a.log \
         FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
         $8::bigint[], $9::bigint[], $10::text[], $11::text[]) WITH ORDINALITY \
         AS a (resource, kind, version, started, finished, outcome, change, changes, log, place)",
        &[
            &environment.0,
            &first,
            &keys,
            kinds,
            versions,
            started,
            finished,
            outcomes,
            kinds_of_change,
            &changes,
            &logs,
        ],
    )?;
    Ok(())
}

/// Stores the last state of each resource, in the order of keys, so that two writers cannot
/// deadlock.
fn write_states(tx: &mut Tx<'_>, records: &[StateRecord<'_>]) -> Result<()> {
    let mut newest: FxHashMap<i64, &ResourceState> = FxHashMap::default();
    newest.reserve(records.len());
    for record in records {
        newest.insert(record.resource.0, record.state);
    }
    let mut states: Vec<(i64, &ResourceState)> = newest.into_iter().collect();
    states.sort_unstable_by_key(|(key, _)| *key);
    for states in states.chunks(CHUNK) {
        write_chunk_of_states(tx, states)?;
    }
    Ok(())
}

fn write_chunk_of_states(tx: &mut Tx<'_>, states: &[(i64, &ResourceState)]) -> Result<()> {
    fn column<T>(states: &[(i64, &ResourceState)], of: impl Fn(&ResourceState) -> T) -> Vec<T> {
        states.iter().map(|(_, state)| of(state)).collect()
    }
    fn hashes<'a>(
        states: &[(i64, &'a ResourceState)],
        of: impl Fn(&'a ResourceState) -> Option<&'a orrery_model::AttributeHash>,
    ) -> Vec<Option<&'a [u8]>> {
        states.iter().map(|(_, state)| of(state).map(|hash| &hash.0[..])).collect()
    }
    let keys: Vec<i64> = states.iter().map(|(key, _)| *key).collect();
    let time = |time: Option<Timestamp>| time.map(|time| time.0);
    let insert = format!(
        "INSERT INTO state (resource, intent, undefined, blocked, last_run, last_run_compliant, \
         last_outcome, last_run_at, last_deployed, last_success, last_produced_events, attempts, \
         parked) SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[], \
         $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bytea[], $10::bigint[], \
         $11::bigint[], $12::bigint[], $13::bigint[]) {}",
        upsert_state_sql()
    );
    tx.execute(
        &insert,
        &[
            &keys,
            &hashes(states, |state| state.intent.as_ref()),
            &column(states, |state| i64::from(state.undefined)),
            &column(states, |state| state.blocked.code()),
            &column(states, |state| state.last_run.code()),
            &column(states, |state| state.last_run_compliant.map(i64::from)),
            &column(states, |state| state.last_outcome.map(Code::code)),
            &column(states, |state| time(state.last_run_at)),
            &hashes(states, |state| state.last_deployed.as_ref()),
            &column(states, |state| time(state.last_success)),
            &column(states, |state| time(state.last_produced_events)),
            &column(states, |state| i64::from(state.attempts)),
            &column(states, |state| i64::from(state.parked)),
        ],
    )?;
    Ok(())
}

pub(super) fn process_version(
    tx: &mut Tx<'_>,
    lease: &Lease,
    number: VersionNumber,
    states: &[StateRecord<'_>],
) -> Result<()> {
    check_lease(tx, lease)?;
    find_version(tx, lease.environment, number)?;
    write_states(tx, states)?;
    tx.execute(
        "INSERT INTO scheduler (environment, processed_version) VALUES ($1, $2) \
         ON CONFLICT (environment) DO UPDATE SET processed_version = excluded.processed_version",
        &[&lease.environment.0, &i64::from(number.0)],
    )?;
    let subject = resources_subject(states.iter().map(|state| state.resource));
    tx.record_change(lease.environment, "resources", &subject);
    Ok(())
}

pub(super) fn running_actions(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
) -> Result<Vec<StartedAction>> {
    let sql = "SELECT resource, kind, version, started FROM running WHERE environment = $1 \
         ORDER BY started, resource";
    let rows = tx.query(sql, &[&environment.0])?;
    let started = rows.iter().map(|row| {
        Ok(StartedAction {
            resource: ResourceKey(row.int(0)?),
            kind: ActionKind::from_code(row.int(1)?)?,
            version: version_number_from(row.int(2)?)?,
            at: row.time(3)?,
        })
    });
    started.collect()
}

pub(super) fn processed_version(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
) -> Result<Option<VersionNumber>> {
    let sql = "SELECT processed_version FROM scheduler WHERE environment = $1";
    let row = tx.first(sql, &[&environment.0])?;
    row.map(|row| version_number_from(row.get(0))).transpose()
}

pub(super) fn read_states(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    visit: &mut dyn FnMut(StateRow<'_>),
) -> Result<()> {
    let sql = format!(
        "SELECT {STATE_COLUMNS}, running.resource IS NOT NULL, resource.id, resource.name, \
         state.resource IS NOT NULL \
         FROM (SELECT id, name FROM resource WHERE environment = $1 AND name > $2 \
             ORDER BY name LIMIT $3) AS resource \
         LEFT JOIN state ON state.resource = resource.id \
         LEFT JOIN running ON running.resource = resource.id ORDER BY resource.name"
    );
    tx.prefer_index_scans()?;
    let mut last = String::new();
    loop {
        let rows = tx.query(&sql, &[&environment.0, &last, &PAGE])?;
        let Some(end) = rows.last() else { return Ok(()) };
        last = end.string(STATE_COLUMN_COUNT + 2)?;
        for row in &rows {
            if !row.flag(STATE_COLUMN_COUNT + 3)? {
                continue;
            }
            let state = state_from(row, 0, row.flag(STATE_COLUMN_COUNT)?)?;
            let key = ResourceKey(row.int(STATE_COLUMN_COUNT + 1)?);
            visit(StateRow { key, id: row.str(STATE_COLUMN_COUNT + 2)?, state: &state });
        }
    }
}

/// Deletes old actions. They are stored in the order in which they ended, except within a batch, so
/// the search for the first that stays reads only those to be deleted.
pub(super) fn expire_actions(tx: &mut Tx<'_>, lease: &Lease, before: Timestamp) -> Result<u64> {
    check_lease(tx, lease)?;
    let environment = lease.environment.0;
    let sql = "SELECT id FROM action WHERE environment = $1 \
         AND coalesce(finished, started) >= $2 ORDER BY id LIMIT 1";
    let first_kept = tx.first(sql, &[&environment, &before.0])?;
    let first_kept = first_kept.map_or(i64::MAX, |row| row.get(0));
    let sql = "DELETE FROM action WHERE environment = $1 AND id < $2";
    tx.execute(sql, &[&environment, &first_kept])
}
