//! Details of resources, looked up together: a statement for one costs the database almost as much as a statement for many.

use orrery_model::{Attributes, Source, Status};
use rustc_hash::FxHashMap;

use crate::codes::{STATE_COLUMN_COUNT, STATE_COLUMNS, unpack_keys, unsigned};
use crate::load::parse_id;
use crate::records::Records;
use crate::records::resource_list::{
    JOINS, OWN_COLUMN_COUNT, ResourceLine, own_columns, removal_of, state_of,
};
use crate::sql::{Row, RowExt as _, Value};
use crate::{EnvironmentKey, ResourceKey, ResourceSummary, Result, StoreError};

/// So many are looked up with one statement.
const TOGETHER: usize = 64;

/// All that is known of a resource but what was done with it.
#[derive(Clone, Debug)]
pub struct ResourceDetails {
    pub line: ResourceLine,
    /// What the newest version that has it wants of it.
    pub attributes: Attributes,
    pub requires: Vec<ResourceKey>,
}

/// How many rows a statement for `count` of them has: few different statements are prepared, and the rows that are too many
/// match nothing.
fn rows_for(count: usize) -> usize {
    count.next_power_of_two()
}

/// A table of parameters by the name of `wanted`: its first column is the place of the row, then come those that are named.
/// Each has its type, since nothing else tells PostgreSQL.
fn wanted(rows: usize, columns: &[(&str, &str)]) -> String {
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

impl Records<'_> {
    /// Resources, wanted or orphaned, with what is wanted of them, in the order in which they are asked for; `None` for those
    /// that there are not.
    ///
    /// # Errors
    /// Those of the database.
    pub fn resource_details(
        &self,
        resources: &[(EnvironmentKey, &str)],
    ) -> Result<Vec<Option<ResourceDetails>>> {
        let mut found = Vec::with_capacity(resources.len());
        for resources in resources.chunks(TOGETHER) {
            let rows = rows_for(resources.len());
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
                wanted(rows, &[("environment", "BIGINT"), ("name", "TEXT")]),
                own_columns("wanted.environment")
            );
            let mut values = Vec::with_capacity(rows * 2);
            for (environment, name) in resources {
                values.extend([Value::Integer(environment.0), Value::Text(name)]);
            }
            values.resize(rows * 2, Value::Null);
            found.extend(self.look(|sql| {
                let mut found: Vec<Option<ResourceDetails>> = vec![None; resources.len()];
                sql.visit(&statement, &values, &mut |row| {
                    let (place, details) = details_of(row)?;
                    let missing = || StoreError::Unreadable(format!("nobody asked for {place}"));
                    *found.get_mut(place).ok_or_else(missing)? = details;
                    Ok(())
                })?;
                Ok(found)
            })?);
        }
        Ok(found)
    }

    /// Ids and statuses of resources; nothing for those that are gone.
    ///
    /// # Errors
    /// Those of the database.
    pub fn statuses_of(
        &self,
        keys: &[ResourceKey],
    ) -> Result<FxHashMap<ResourceKey, (String, Status)>> {
        let mut found = FxHashMap::default();
        for keys in keys.chunks(TOGETHER) {
            let rows = rows_for(keys.len());
            let statement = format!(
                "{} SELECT {}, {STATE_COLUMNS} FROM wanted CROSS JOIN resource {JOINS} \
                 WHERE resource.id = wanted.id",
                wanted(rows, &[("id", "BIGINT")]),
                own_columns("resource.environment")
            );
            let mut values: Vec<Value<'_>> = keys.iter().map(|key| Value::Integer(key.0)).collect();
            values.resize(rows, Value::Null);
            found.extend(self.look(|sql| {
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

/// A row, and which of those that were asked for it is.
fn details_of(row: &dyn Row) -> Result<(usize, Option<ResourceDetails>)> {
    let at = OWN_COLUMN_COUNT + STATE_COLUMN_COUNT;
    let place = unsigned(row.int(at + 4)?)?;
    let Some(state) = state_of(row)? else { return Ok((place, None)) };
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
    let summary = ResourceSummary { key, id: parse_id(row.str(0)?)?, status, state, source };
    let details = ResourceDetails {
        line: ResourceLine { summary, set, removal: removal_of(row, status)? },
        attributes: Attributes::from_canonical(row.text(at)?.unwrap_or("{}")),
        requires,
    };
    Ok((place, Some(details)))
}
