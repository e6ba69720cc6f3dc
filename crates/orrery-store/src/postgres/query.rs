//! Queries: lists of resources, counts, and the log of one resource.

use orrery_model::{AttributeHash, ResourceState, Status};
use postgres::Row;

use super::read::{PAGE, read_names};
use super::transaction::Tx;
use crate::encoding::{STATE_COLUMN_COUNT, STATE_COLUMNS, flags_from_code, hash_from, state_from};
use crate::records::pending_release::{
    MAY_EXIST_SQL, has_pending_release_sql, with_pending_intent,
};
use crate::rows::{ACTION_COLUMNS, action_from, ranges, summary_from};
use crate::sql::{Row as _, RowExt as _};
use crate::{
    Action, ActionKey, EnvironmentKey, ResourceFilter, ResourceOverview, ResourcePage, Result,
};

/// Columns before those of the state. A revision is looked up only for a resource without a state,
/// or if a release is not processed yet, which the last column tells.
const OWN_COLUMNS: &str = "resource.name, resource.id, resource.head, resource.source_file, \
     resource.source_line, resource.source_column, running.resource IS NOT NULL, \
     state.resource IS NOT NULL, revision.hash, revision.flags, release.has_pending_release";
const OWN_COLUMN_COUNT: usize = 11;

/// Joined tables of the columns, beside `resource`. The first parameter is the environment.
fn joins() -> String {
    format!(
        "CROSS JOIN (SELECT {} AS has_pending_release) AS release \
         LEFT JOIN state ON state.resource = resource.id \
         LEFT JOIN running ON running.resource = resource.id \
         LEFT JOIN revision ON revision.id = resource.head \
         AND (state.resource IS NULL OR release.has_pending_release = 1)",
        has_pending_release_sql("$1")
    )
}

/// Statement for the range from one name on, not before a second and not after a third.
fn range_sql() -> String {
    format!(
        "SELECT {OWN_COLUMNS}, {STATE_COLUMNS}, resource.head IS NOT NULL OR {MAY_EXIST_SQL} \
         FROM (SELECT * FROM resource WHERE environment = $1 AND name >= $2 AND name > $3 \
             AND name < $4 ORDER BY name LIMIT $5) AS resource {} \
         ORDER BY resource.name",
        joins()
    )
}

/// State of the resource in a row of [`range_sql`]; `None` if it has and had no intent.
fn state_of(row: &Row) -> Result<Option<ResourceState>> {
    let deploying = row.flag(6)?;
    let stored = match row.flag(7)? {
        true => Some(state_from(row, OWN_COLUMN_COUNT, deploying)?),
        false => None,
    };
    let newest_intent = || -> Result<Option<(AttributeHash, bool)>> {
        if row.integer(2)?.is_none() {
            return Ok(None);
        }
        Ok(Some((hash_from(row.blob(8)?)?, flags_from_code(row.int(9)?).undefined)))
    };
    match (stored, row.flag(10)?) {
        (Some(state), false) => Ok(Some(state)),
        (Some(state), true) => Ok(Some(with_pending_intent(state, newest_intent()?))),
        (None, _) => Ok(newest_intent()?.map(|(hash, undefined)| ResourceState {
            deploying,
            ..ResourceState::new(hash, undefined)
        })),
    }
}

/// The types of an environment, if a filter needs them.
fn types(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    filter: &ResourceFilter,
) -> Result<Vec<String>> {
    if filter.agent.is_none() || filter.entity.is_some() {
        return Ok(Vec::new());
    }
    let sql = "SELECT name FROM resource_type WHERE environment = $1";
    Ok(tx.query(sql, &[&environment.0])?.iter().map(|row| row.get(0)).collect())
}

pub(super) fn list_resources(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    filter: &ResourceFilter,
    after: Option<&str>,
    limit: usize,
) -> Result<ResourcePage> {
    tx.prefer_index_scans()?;
    let names = read_names(tx, environment)?;
    let limit = limit.max(1);
    let sql = range_sql();
    // A selective filter has to scan many rows.
    let is_selective = filter.value.is_some() || !filter.statuses.is_empty();
    let enough = i64::try_from(limit.saturating_add(1)).unwrap_or(PAGE);
    let rows_at_once = if is_selective { PAGE } else { enough.min(PAGE) };
    let mut resources: Vec<ResourceOverview> = Vec::new();
    for (begin, end) in ranges(filter, &types(tx, environment, filter)?) {
        let mut last = after.unwrap_or_default().to_owned();
        loop {
            let rows = tx.query(&sql, &[&environment.0, &begin, &last, &end, &rows_at_once])?;
            for row in &rows {
                let is_listed = row.flag(OWN_COLUMN_COUNT + STATE_COLUMN_COUNT)?;
                let Some(state) = state_of(row)?.filter(|_| is_listed) else { continue };
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
            match rows.last() {
                Some(row) if rows.len() as i64 == rows_at_once => last = row.string(0)?,
                _ => break,
            }
        }
    }
    Ok(ResourcePage { resources, next: None })
}

pub(super) fn find_resource(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    id: &str,
) -> Result<Option<ResourceOverview>> {
    let sql = format!(
        "SELECT {OWN_COLUMNS}, {STATE_COLUMNS} FROM resource {} \
         WHERE resource.environment = $1 AND resource.name = $2",
        joins()
    );
    let Some(row) = tx.first(&sql, &[&environment.0, &id])? else { return Ok(None) };
    let Some(state) = state_of(&row)? else { return Ok(None) };
    let names = read_names(tx, environment)?;
    summary_from(&row, 3, state, &names).map(Some)
}

pub(super) fn actions(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    id: &str,
    before: Option<ActionKey>,
    limit: usize,
) -> Result<Vec<Action>> {
    let sql = format!(
        "SELECT {ACTION_COLUMNS} FROM action WHERE action.resource = \
             (SELECT id FROM resource WHERE environment = $1 AND name = $2) \
         AND action.id < $3 ORDER BY action.id DESC LIMIT $4"
    );
    let before = before.map_or(i64::MAX, |key| key.0);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = tx.query(&sql, &[&environment.0, &id, &before, &limit])?;
    rows.iter().map(action_from).collect()
}
