//! Details of resources, looked up in batches: a statement for one resource costs the database
//! almost as much as a statement for many.

use std::sync::OnceLock;

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

/// A statement for a batch, with its parameters.
struct Lookup<'a> {
    statement: &'static str,
    values: Vec<SqlValue<'a>>,
}

/// Texts of a statement for different numbers of rows, which are powers of two: few are prepared,
/// and surplus rows match nothing.
struct PaddedStatement([OnceLock<String>; LOOKUP_BATCH.ilog2() as usize + 1]);

impl PaddedStatement {
    const fn new() -> Self {
        PaddedStatement([const { OnceLock::new() }; LOOKUP_BATCH.ilog2() as usize + 1])
    }

    /// A lookup of at most [`LOOKUP_BATCH`] resources, each with `columns` values.
    fn lookup<'a>(
        &'static self,
        mut values: Vec<SqlValue<'a>>,
        columns: usize,
        text: fn(usize) -> String,
    ) -> Lookup<'a> {
        let rows = (values.len() / columns).next_power_of_two();
        values.resize(rows * columns, SqlValue::Null);
        let statement = self.0[rows.ilog2() as usize].get_or_init(|| text(rows));
        Lookup { statement, values }
    }
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

/// Statement for the details of resources.
fn details_sql(rows: usize) -> String {
    format!(
        "{} SELECT {}, {STATE_COLUMNS}, revision.attributes, revision.requires, \
         (SELECT source_file.path FROM source_file WHERE source_file.id = resource.source_file), \
         (SELECT resource_set.name FROM resource_set WHERE resource_set.id = revision.resource_set), \
         wanted.place \
         FROM wanted CROSS JOIN resource LEFT JOIN state ON state.resource = resource.id \
         LEFT JOIN running ON running.resource = resource.id \
         LEFT JOIN revision ON revision.id = coalesce(resource.head, \
         (SELECT max(ended.revision) FROM ended WHERE ended.resource = resource.id)) \
         WHERE resource.environment = wanted.environment AND resource.name = wanted.name",
        lookup_table_sql(rows, &[("environment", "BIGINT"), ("name", "TEXT")]),
        own_columns("wanted.environment")
    )
}

fn details_lookup<'a>(resources: &[(EnvironmentKey, &'a str)]) -> Lookup<'a> {
    static STATEMENT: PaddedStatement = PaddedStatement::new();
    let mut values = Vec::with_capacity(resources.len().next_power_of_two() * 2);
    for (environment, name) in resources {
        values.extend([SqlValue::Integer(environment.0), SqlValue::Text(name)]);
    }
    STATEMENT.lookup(values, 2, details_sql)
}

/// Statement for the statuses of resources.
fn statuses_sql(rows: usize) -> String {
    format!(
        "{} SELECT {}, {STATE_COLUMNS} FROM wanted CROSS JOIN resource {JOINS} \
         WHERE resource.id = wanted.id",
        lookup_table_sql(rows, &[("id", "BIGINT")]),
        own_columns("resource.environment")
    )
}

fn statuses_lookup(keys: &[ResourceKey]) -> Lookup<'static> {
    static STATEMENT: PaddedStatement = PaddedStatement::new();
    let values = keys.iter().map(|key| SqlValue::Integer(key.0)).collect();
    STATEMENT.lookup(values, 1, statuses_sql)
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
            let Lookup { statement, values } = details_lookup(resources);
            found.extend(self.query(|sql| {
                let mut found = vec![None; resources.len()];
                sql.visit(statement, &values, &mut |row| add_details(&mut found, row))?;
                Ok(found)
            })?);
        }
        Ok(found)
    }

    /// As `details`, without blocking the thread. `None` if only `details` can read them: the store
    /// is a file, or no connection is free. Must be called in the context of an asynchronous
    /// runtime.
    ///
    /// # Errors
    /// Database errors.
    pub async fn details_async(
        &self,
        resources: &[(EnvironmentKey, &str)],
    ) -> Result<Option<Vec<Option<ResourceDetailsRecord>>>> {
        let mut found = vec![None; resources.len()];
        let chunks = resources.chunks(LOOKUP_BATCH).zip(found.chunks_mut(LOOKUP_BATCH));
        for (resources, found) in chunks {
            let Lookup { statement, values } = details_lookup(resources);
            let mut each = |row: &dyn Row| add_details(found, row);
            if !self.backend().visit_async(statement, &values, &mut each).await? {
                return Ok(None);
            }
        }
        Ok(Some(found))
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
            let Lookup { statement, values } = statuses_lookup(keys);
            self.query(|sql| {
                sql.visit(statement, &values, &mut |row| add_status(&mut found, row))
            })?;
        }
        Ok(found)
    }

    /// As `statuses`, without blocking the thread. `None` if only `statuses` can read them, as for
    /// [`Resources::details_async`].
    ///
    /// # Errors
    /// Database errors.
    pub async fn statuses_async(
        &self,
        keys: &[ResourceKey],
    ) -> Result<Option<FxHashMap<ResourceKey, (String, Status)>>> {
        let mut found = FxHashMap::default();
        for keys in keys.chunks(LOOKUP_BATCH) {
            let Lookup { statement, values } = statuses_lookup(keys);
            let mut each = |row: &dyn Row| add_status(&mut found, row);
            if !self.backend().visit_async(statement, &values, &mut each).await? {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }
}

/// Adds the resource of a row at its position.
fn add_details(found: &mut [Option<ResourceDetailsRecord>], row: &dyn Row) -> Result<()> {
    let (position, details) = details_of(row)?;
    let missing = || StoreError::Unreadable(format!("row {position} was not requested"));
    *found.get_mut(position).ok_or_else(missing)? = details;
    Ok(())
}

/// Adds the id and the status of the resource of a row.
fn add_status(found: &mut FxHashMap<ResourceKey, (String, Status)>, row: &dyn Row) -> Result<()> {
    let status = state_of(row)?.map_or(Status::Orphaned, |state| state.status());
    found.insert(ResourceKey(row.int(1)?), (row.string(0)?, status));
    Ok(())
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
