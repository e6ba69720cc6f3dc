//! Details of resources, looked up in batches: a statement for one resource costs the database
//! almost as much as a statement for many.

use orrery_model::{Attributes, Source, Status};
use rustc_hash::FxHashMap;

use crate::encoding::{STATE_COLUMN_COUNT, STATE_COLUMNS, unpack_keys, unsigned};
use crate::records::resource_list::{
    JOINS, OWN_COLUMN_COUNT, ResourceLine, own_columns, removal_of, state_of,
};
use crate::records::{Resources, Transactions as _};
use crate::resource_loader::parse_id;
use crate::sql::{Row, RowExt as _, SqlValue};
use crate::{EnvironmentKey, ResourceKey, ResourceOverview, Result, StoreError};

/// Resources per statement.
const LOOKUP_BATCH: usize = 64;

/// Everything stored about a resource except its actions.
#[derive(Clone, Debug)]
pub struct ResourceDetailsRecord {
    pub line: ResourceLine,
    /// Desired attributes in the newest version that has it.
    pub attributes: Attributes,
    pub requires: Vec<ResourceKey>,
}

/// Number of rows of a statement for `count` resources: few different statements are prepared, and
/// surplus rows match nothing.
fn padded_rows(count: usize) -> usize {
    count.next_power_of_two()
}

/// SQL table `wanted` of parameters: its first column is the position of the row, then come the
/// named ones. Each has a type, since PostgreSQL cannot infer it.
fn lookup_table_sql(rows: usize, columns: &[(&str, &str)]) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let row = |at: usize| {
        let cast = |(column, (_, kind)): (usize, &(&str, &str))| {
            format!("CAST(?{} AS {kind})", at * columns.len() + column + 1)
        };
        let values: Vec<String> = columns.iter().enumerate().map(cast).collect();
        format!("(CAST({at} AS BIGINT), {})", values.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    format!("WITH wanted (place, {}) AS (VALUES {})", names.join(", "), rows.join(", "))
}

impl Resources<'_> {
    /// Resources, managed or orphaned, with their desired state, in the given order; `None` for
    /// those that do not exist.
    ///
    /// # Errors
    /// Database errors.
    pub fn details(
        &self,
        resources: &[(EnvironmentKey, &str)],
    ) -> Result<Vec<Option<ResourceDetailsRecord>>> {
        let mut found = Vec::with_capacity(resources.len());
        for resources in resources.chunks(LOOKUP_BATCH) {
            let rows = padded_rows(resources.len());
            let statement = format!(
                "{} SELECT {}, {STATE_COLUMNS}, revision.attributes, revision.requires, \
                 source_file.path, resource_set.name, wanted.place \
                 FROM wanted CROSS JOIN resource LEFT JOIN state ON state.resource = resource.id \
                 LEFT JOIN running ON running.resource = resource.id \
                 LEFT JOIN revision ON revision.id = coalesce(resource.head, \
                 (SELECT max(ended.revision) FROM ended WHERE ended.resource = resource.id)) \
                 LEFT JOIN source_file ON source_file.id = resource.source_file \
                 LEFT JOIN resource_set ON resource_set.id = revision.resource_set \
                 WHERE resource.environment = wanted.environment AND resource.name = wanted.name",
                lookup_table_sql(rows, &[("environment", "BIGINT"), ("name", "TEXT")]),
                own_columns("wanted.environment")
            );
            let mut values = Vec::with_capacity(rows * 2);
            for (environment, name) in resources {
                values.extend([SqlValue::Integer(environment.0), SqlValue::Text(name)]);
            }
            values.resize(rows * 2, SqlValue::Null);
            found.extend(self.query(|sql| {
                let mut found: Vec<Option<ResourceDetailsRecord>> = vec![None; resources.len()];
                sql.visit(&statement, &values, &mut |row| {
                    let (position, details) = details_of(row)?;
                    let missing =
                        || StoreError::Unreadable(format!("row {position} was not requested"));
                    *found.get_mut(position).ok_or_else(missing)? = details;
                    Ok(())
                })?;
                Ok(found)
            })?);
        }
        Ok(found)
    }

    /// Ids and statuses of resources; deleted ones are left out.
    ///
    /// # Errors
    /// Database errors.
    pub fn statuses(
        &self,
        keys: &[ResourceKey],
    ) -> Result<FxHashMap<ResourceKey, (String, Status)>> {
        let mut found = FxHashMap::default();
        for keys in keys.chunks(LOOKUP_BATCH) {
            let rows = padded_rows(keys.len());
            let statement = format!(
                "{} SELECT {}, {STATE_COLUMNS} FROM wanted CROSS JOIN resource {JOINS} \
                 WHERE resource.id = wanted.id",
                lookup_table_sql(rows, &[("id", "BIGINT")]),
                own_columns("resource.environment")
            );
            let mut values: Vec<SqlValue<'_>> =
                keys.iter().map(|key| SqlValue::Integer(key.0)).collect();
            values.resize(rows, SqlValue::Null);
            found.extend(self.query(|sql| {
                let mut found = Vec::with_capacity(keys.len());
                sql.visit(&statement, &values, &mut |row| {
                    let status = state_of(row)?.map_or(Status::Orphaned, |state| state.status());
                    found.push((ResourceKey(row.int(1)?), (row.string(0)?, status)));
                    Ok(())
                })?;
                Ok(found)
            })?);
        }
        Ok(found)
    }
}

/// A row, and its position among the requested resources.
fn details_of(row: &dyn Row) -> Result<(usize, Option<ResourceDetailsRecord>)> {
    let at = OWN_COLUMN_COUNT + STATE_COLUMN_COUNT;
    let position = unsigned(row.int(at + 4)?)?;
    let Some(state) = state_of(row)? else { return Ok((position, None)) };
    let source = match row.text(at + 2)? {
        Some(file) => Some(Source {
            file: file.into(),
            line: unsigned(row.int(4)?)?,
            column: unsigned(row.int(5)?)?,
        }),
        None => None,
    };
    let is_wanted = row.integer(2)?.is_some();
    let set = if is_wanted { row.maybe_string(at + 3)? } else { None };
    let mut requires = Vec::new();
    unpack_keys(row.blob(at + 1)?, &mut requires)?;
    let (key, status) = (ResourceKey(row.int(1)?), state.status());
    let summary = ResourceOverview { key, id: parse_id(row.str(0)?)?, status, state, source };
    let details = ResourceDetailsRecord {
        line: ResourceLine { summary, set, removal: removal_of(row, status)? },
        attributes: Attributes::from_canonical(row.text(at)?.unwrap_or("{}")),
        requires,
    };
    Ok((position, Some(details)))
}
