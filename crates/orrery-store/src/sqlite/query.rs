//! What people ask: lists of resources, counts, and the log of one resource.

use std::collections::BTreeMap;

use orrery_model::{
    Change, ChangeKind, LogLine, OutcomeStatus, ResourceState, Source, Status, Timestamp,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use super::codes::{
    Code, STATE_COLUMNS, flags_from_code, hash_from, number_from, state_from, text_from,
};
use super::read::SharedNames;
use crate::load::parse_id;
use crate::{
    Action, ActionKey, ActionKind, EnvironmentKey, ResourceFilter, ResourceKey, ResourcePage,
    ResourceSummary, Result, StoreError, glob,
};

/// After all texts that can begin an id.
const LAST_NAME: &str = "\u{10ffff}";

/// Columns before those of the state.
const OWN_COLUMNS: &str = "resource.name, resource.id, resource.head, resource.source_file, \
     resource.source_line, resource.source_column, running.resource IS NOT NULL, \
     state.resource IS NOT NULL";
const OWN_COLUMN_COUNT: usize = 8;

fn sql_of_range() -> String {
    format!(
        "SELECT {OWN_COLUMNS}, {STATE_COLUMNS} FROM resource \
         LEFT JOIN state ON state.resource = resource.id \
         LEFT JOIN running ON running.resource = resource.id \
         WHERE resource.environment = ?1 AND resource.name >= ?2 AND resource.name < ?3 \
         ORDER BY resource.environment, resource.name"
    )
}

/// The state of the resource in a row of [`sql_of_range`]; `None` if nothing is or was wanted of it.
fn state_of(tx: &Connection, row: &Row<'_>) -> Result<Option<ResourceState>> {
    let deploying = row.get(6)?;
    if row.get(7)? {
        return state_from(row, OWN_COLUMN_COUNT, deploying).map(Some);
    }
    let Some(head) = row.get::<_, Option<i64>>(2)? else { return Ok(None) };
    let mut statement = tx.prepare_cached("SELECT hash, flags FROM revision WHERE id = ?1")?;
    let mut rows = statement.query([head])?;
    let Some(revision) = rows.next()? else {
        return Err(StoreError::Unreadable(format!("there is no revision number {head}")));
    };
    let undefined = flags_from_code(revision.get(1)?).undefined;
    let state = ResourceState::new(hash_from(revision.get_ref(0)?)?, undefined);
    Ok(Some(ResourceState { deploying, ..state }))
}

fn summary_from(
    row: &Row<'_>,
    state: ResourceState,
    names: &SharedNames,
) -> Result<ResourceSummary> {
    let source = names.source(row, 3)?.map(|source| Source {
        file: source.file.into(),
        line: source.line,
        column: source.column,
    });
    Ok(ResourceSummary {
        key: ResourceKey(row.get(1)?),
        id: parse_id(text_from(row.get_ref(0)?)?)?,
        status: state.status(),
        state,
        source,
    })
}

/// Ranges of names that hold all resources with a filter's type and agent, in order.
///
/// An id begins with its type, then `[`, then its agent, then `,`: so with the few types of an environment, both
/// filters are ranges of the one order in which resources are stored.
fn ranges(
    tx: &Connection,
    environment: EnvironmentKey,
    filter: &ResourceFilter,
) -> Result<Vec<(String, String)>> {
    let range = |prefix: String| {
        let mut end = prefix.clone().into_bytes();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        (prefix, String::from_utf8(end).unwrap_or_else(|_| LAST_NAME.to_owned()))
    };
    let agent = filter.agent.as_ref();
    let prefix = |entity: &str| match agent {
        Some(agent) => format!("{entity}[{agent},"),
        None => format!("{entity}["),
    };
    match (&filter.entity, agent) {
        (None, None) => Ok(vec![(String::new(), LAST_NAME.to_owned())]),
        (Some(entity), _) => Ok(vec![range(prefix(entity))]),
        (None, Some(_)) => {
            let mut statement =
                tx.prepare_cached("SELECT name FROM resource_type WHERE environment = ?1")?;
            let mut rows = statement.query([environment.0])?;
            let mut prefixes = Vec::new();
            while let Some(row) = rows.next()? {
                prefixes.push(prefix(text_from(row.get_ref(0)?)?));
            }
            prefixes.sort_unstable();
            Ok(prefixes.into_iter().map(range).collect())
        }
    }
}

pub(super) fn list_resources(
    tx: &Connection,
    environment: EnvironmentKey,
    filter: &ResourceFilter,
    after: Option<&str>,
    limit: usize,
) -> Result<ResourcePage> {
    let names = SharedNames::read(tx, environment)?;
    // The first text that is greater than `after`.
    let first = after.map(|after| format!("{after}\0")).unwrap_or_default();
    let limit = limit.max(1);
    let mut statement = tx.prepare_cached(&sql_of_range())?;
    let mut resources: Vec<ResourceSummary> = Vec::new();
    for (begin, end) in ranges(tx, environment, filter)? {
        let mut rows = statement.query(params![environment.0, begin.max(first.clone()), end])?;
        while let Some(row) = rows.next()? {
            let Some(state) = state_of(tx, row)? else { continue };
            let status = state.status();
            let is_wanted = match &filter.statuses[..] {
                [] => status != Status::Orphaned,
                statuses => statuses.contains(&status),
            };
            if !is_wanted {
                continue;
            }
            let summary = summary_from(row, state, &names)?;
            if filter.value.as_ref().is_some_and(|value| !glob::matches(value, summary.id.value()))
            {
                continue;
            }
            if resources.len() == limit {
                let next = resources.last().map(|last| last.id.to_string());
                return Ok(ResourcePage { resources, next });
            }
            resources.push(summary);
        }
    }
    Ok(ResourcePage { resources, next: None })
}

pub(super) fn find_resource(
    tx: &Connection,
    environment: EnvironmentKey,
    id: &str,
) -> Result<Option<ResourceSummary>> {
    let names = SharedNames::read(tx, environment)?;
    let mut statement = tx.prepare_cached(&sql_of_range())?;
    // The range of exactly one text.
    let end = format!("{id}\0");
    let mut rows = statement.query(params![environment.0, id, end])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let Some(state) = state_of(tx, row)? else { return Ok(None) };
    summary_from(row, state, &names).map(Some)
}

pub(super) fn count_statuses(
    tx: &Connection,
    environment: EnvironmentKey,
) -> Result<BTreeMap<Status, u64>> {
    let mut statement = tx.prepare_cached(&sql_of_range())?;
    let mut rows = statement.query(params![environment.0, "", LAST_NAME])?;
    let mut counts = BTreeMap::new();
    while let Some(row) = rows.next()? {
        if let Some(state) = state_of(tx, row)? {
            *counts.entry(state.status()).or_default() += 1;
        }
    }
    Ok(counts)
}

pub(super) fn actions(
    tx: &Connection,
    environment: EnvironmentKey,
    id: &str,
    before: Option<ActionKey>,
    limit: usize,
) -> Result<Vec<Action>> {
    let mut statement = tx.prepare_cached(
        "SELECT action.id, action.kind, action.version, action.started, action.finished, \
         action.outcome, action.change, action.changes, action.log \
         FROM action WHERE action.resource = \
             (SELECT id FROM resource WHERE environment = ?1 AND name = ?2) \
         AND action.id < ?3 ORDER BY action.id DESC LIMIT ?4",
    )?;
    let before = before.map_or(i64::MAX, |key| key.0);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![environment.0, id, before, limit])?;
    let mut actions = Vec::new();
    while let Some(row) = rows.next()? {
        actions.push(action_from(row)?);
    }
    Ok(actions)
}

fn action_from(row: &Row<'_>) -> Result<Action> {
    let outcome: Option<i64> = row.get(5)?;
    Ok(Action {
        key: ActionKey(row.get(0)?),
        kind: ActionKind::from_code(row.get(1)?)?,
        version: number_from(row.get(2)?)?,
        started: Timestamp(row.get(3)?),
        finished: row.get::<_, Option<i64>>(4)?.map(Timestamp),
        outcome: outcome.map(OutcomeStatus::from_code).transpose()?,
        change: Change {
            kind: ChangeKind::from_code(row.get(6)?)?,
            attributes: from_json(row.get_ref(7)?)?,
        },
        log: from_json::<LogLine>(row.get_ref(8)?)?,
    })
}

/// A list that is not stored when it is empty.
fn from_json<T: serde::de::DeserializeOwned>(value: ValueRef<'_>) -> Result<Vec<T>> {
    if value == ValueRef::Null {
        return Ok(Vec::new());
    }
    serde_json::from_str(text_from(value)?)
        .map_err(|error| StoreError::Unreadable(format!("an entry of a log: {error}")))
}
