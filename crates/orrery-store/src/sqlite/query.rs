//! Queries: lists of resources, counts, and the log of one resource.

use orrery_model::{AttributeHash, ResourceState, Status};
use rusqlite::{Connection, Row, params};

use super::read::read_names;
use crate::encoding::{STATE_COLUMN_COUNT, STATE_COLUMNS, flags_from_code, hash_from, state_from};
use crate::records::pending_release::{
    MAY_EXIST_SQL, has_pending_release_sql, with_pending_intent,
};
use crate::rows::{ACTION_COLUMNS, action_from, ranges, summary_from};
use crate::sql::Row as _;
use crate::{
    Action, ActionKey, EnvironmentKey, ResourceFilter, ResourceOverview, ResourcePage, Result,
    StoreError,
};

/// Columns before those of the state.
const OWN_COLUMNS: &str = "resource.name, resource.id, resource.head, resource.source_file, \
     resource.source_line, resource.source_column, running.resource IS NOT NULL, \
     state.resource IS NOT NULL";
/// Including the last one, which tells whether a release is not processed yet.
const OWN_COLUMN_COUNT: usize = 9;

fn range_sql() -> String {
    format!(
        "SELECT {OWN_COLUMNS}, {}, {STATE_COLUMNS}, \
         resource.head IS NOT NULL OR {MAY_EXIST_SQL} FROM resource \
         LEFT JOIN state ON state.resource = resource.id \
         LEFT JOIN running ON running.resource = resource.id \
         WHERE resource.environment = ?1 AND resource.name >= ?2 AND resource.name < ?3 \
         ORDER BY resource.environment, resource.name",
        has_pending_release_sql("?1")
    )
}

/// State of the resource in a row of [`range_sql`]; `None` if it has and had no intent.
fn state_of(tx: &Connection, row: &Row<'_>) -> Result<Option<ResourceState>> {
    let deploying = row.get(6)?;
    let stored = match row.get(7)? {
        true => Some(state_from(row, OWN_COLUMN_COUNT, deploying)?),
        false => None,
    };
    match (stored, row.get(8)?) {
        (Some(state), false) => Ok(Some(state)),
        (Some(state), true) => Ok(Some(with_pending_intent(state, newest_intent(tx, row)?))),
        (None, _) => Ok(newest_intent(tx, row)?.map(|(hash, undefined)| ResourceState {
            deploying,
            ..ResourceState::new(hash, undefined)
        })),
    }
}

/// Intent of the resource in the newest version: its hash, and true if a part of it is unknown.
fn newest_intent(tx: &Connection, row: &Row<'_>) -> Result<Option<(AttributeHash, bool)>> {
    let Some(head) = row.get::<_, Option<i64>>(2)? else { return Ok(None) };
    let mut statement = tx.prepare_cached("SELECT hash, flags FROM revision WHERE id = ?1")?;
    let mut rows = statement.query([head])?;
    let Some(revision) = rows.next()? else {
        return Err(StoreError::Unreadable(format!("there is no revision number {head}")));
    };
    let undefined = flags_from_code(revision.get(1)?).undefined;
    Ok(Some((hash_from(revision.blob(0)?)?, undefined)))
}

/// The types of an environment, if a filter needs them.
fn types(
    tx: &Connection,
    environment: EnvironmentKey,
    filter: &ResourceFilter,
) -> Result<Vec<String>> {
    if filter.agent.is_none() || filter.entity.is_some() {
        return Ok(Vec::new());
    }
    let mut statement =
        tx.prepare_cached("SELECT name FROM resource_type WHERE environment = ?1")?;
    let names = statement.query_map([environment.0], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn list_resources(
    tx: &Connection,
    environment: EnvironmentKey,
    filter: &ResourceFilter,
    after: Option<&str>,
    limit: usize,
) -> Result<ResourcePage> {
    let names = read_names(tx, environment)?;
    // The first text that is greater than `after`.
    let first = after.map(|after| format!("{after}\0")).unwrap_or_default();
    let limit = limit.max(1);
    let mut statement = tx.prepare_cached(&range_sql())?;
    let mut resources: Vec<ResourceOverview> = Vec::new();
    for (begin, end) in ranges(filter, &types(tx, environment, filter)?) {
        let mut rows = statement.query(params![environment.0, begin.max(first.clone()), end])?;
        while let Some(row) = rows.next()? {
            let is_listed = row.get(OWN_COLUMN_COUNT + STATE_COLUMN_COUNT)?;
            let Some(state) = state_of(tx, row)?.filter(|_| is_listed) else { continue };
            let status = state.status();
            let is_wanted = match &filter.statuses[..] {
                [] => status != Status::Orphaned,
                statuses => statuses.contains(&status),
            };
            if !is_wanted {
                continue;
            }
            let summary = summary_from(row, 3, state, &names)?;
            if filter.value.as_ref().is_some_and(|value| !value.matches_value(&summary.id)) {
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
) -> Result<Option<ResourceOverview>> {
    let names = read_names(tx, environment)?;
    let mut statement = tx.prepare_cached(&range_sql())?;
    // The range of exactly one text.
    let end = format!("{id}\0");
    let mut rows = statement.query(params![environment.0, id, end])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let Some(state) = state_of(tx, row)? else { return Ok(None) };
    summary_from(row, 3, state, &names).map(Some)
}

pub(super) fn actions(
    tx: &Connection,
    environment: EnvironmentKey,
    id: &str,
    before: Option<ActionKey>,
    limit: usize,
) -> Result<Vec<Action>> {
    let mut statement = tx.prepare_cached(&format!(
        "SELECT {ACTION_COLUMNS} FROM action WHERE action.resource = \
             (SELECT id FROM resource WHERE environment = ?1 AND name = ?2) \
         AND action.id < ?3 ORDER BY action.id DESC LIMIT ?4"
    ))?;
    let before = before.map_or(i64::MAX, |key| key.0);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![environment.0, id, before, limit])?;
    let mut actions = Vec::new();
    while let Some(row) = rows.next()? {
        actions.push(action_from(row)?);
    }
    Ok(actions)
}
