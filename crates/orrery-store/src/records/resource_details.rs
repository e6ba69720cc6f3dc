//! Details of resources, looked up in batches: a statement for one resource costs the database
//! almost as much as a statement for many.

use std::sync::OnceLock;

use orrery_model::{Attributes, Status};
use rustc_hash::FxHashMap;

use crate::encoding::{REMOVAL, STATE_COLUMN_COUNT, STATE_COLUMNS, unpack_keys, unsigned};
use crate::names::NameRef;
use crate::records::resource_line::{ResolvedNames, ResourceLine, UnresolvedLine};
use crate::records::resource_list::{
    JOINS, OWN_COLUMN_COUNT, managed_columns, own_columns, removal_of, state_of,
};
use crate::records::{Resources, Transactions as _};
use crate::sql::{Row, RowExt as _, SqlValue};
use crate::{EnvironmentKey, ResourceKey, Result, StoreError, values};

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

    /// A lookup of at most [`LOOKUP_BATCH`] resources, each with `columns` values. The first
    /// `shared` values belong to all of them.
    fn lookup<'a>(
        &'static self,
        mut values: Vec<SqlValue<'a>>,
        (shared, columns): (usize, usize),
        text: fn(usize) -> String,
    ) -> Lookup<'a> {
        let rows = ((values.len() - shared) / columns).next_power_of_two();
        values.resize(shared + rows * columns, SqlValue::Null);
        let statement = self.0[rows.ilog2() as usize].get_or_init(|| text(rows));
        Lookup { statement, values }
    }
}

/// SQL table `wanted` of parameters: its first column is the position of the row, then come the
/// named ones. Each has a type, since PostgreSQL cannot infer it. Parameters of the rows follow the
/// `shared` ones.
fn lookup_table_sql(rows: usize, shared: usize, columns: &[(&str, &str)]) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let row = |at: usize| {
        let cast = |(column, (_, kind)): (usize, &(&str, &str))| {
            format!("CAST(?{} AS {kind})", shared + at * columns.len() + column + 1)
        };
        let values: Vec<String> = columns.iter().enumerate().map(cast).collect();
        format!("(CAST({at} AS BIGINT), {})", values.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    format!("WITH wanted (place, {}) AS (VALUES {})", names.join(", "), rows.join(", "))
}

/// Statement for the details of resources that the newest version of one environment has and does
/// not remove: almost all. It reads four tables by their keys, and the release state once. What the
/// other resources need besides costs a third more, even if no row uses it.
fn managed_sql(rows: usize) -> String {
    format!(
        "{} SELECT {}, {STATE_COLUMNS}, revision.attributes, revision.requires, wanted.place \
         FROM wanted CROSS JOIN resource JOIN revision ON revision.id = resource.head \
         LEFT JOIN state ON state.resource = resource.id \
         LEFT JOIN running ON running.resource = resource.id \
         WHERE resource.environment = ?1 AND resource.name = wanted.name \
         AND (revision.flags & {REMOVAL}) = 0",
        lookup_table_sql(rows, 1, &[("name", "TEXT")]),
        managed_columns("?1")
    )
}

fn managed_lookup<'a>(environment: EnvironmentKey, names: &[&'a str]) -> Lookup<'a> {
    static STATEMENT: PaddedStatement = PaddedStatement::new();
    let mut values = Vec::with_capacity(1 + names.len().next_power_of_two());
    values.push(SqlValue::Integer(environment.0));
    values.extend(names.iter().map(|name| SqlValue::Text(name)));
    STATEMENT.lookup(values, (1, 1), managed_sql)
}

/// Statement for the details of any resources.
fn details_sql(rows: usize) -> String {
    format!(
        "{} SELECT {}, {STATE_COLUMNS}, revision.attributes, revision.requires, wanted.place \
         FROM wanted CROSS JOIN resource LEFT JOIN state ON state.resource = resource.id \
         LEFT JOIN running ON running.resource = resource.id \
         LEFT JOIN revision ON revision.id = coalesce(resource.head, \
         (SELECT max(ended.revision) FROM ended WHERE ended.resource = resource.id)) \
         WHERE resource.environment = wanted.environment AND resource.name = wanted.name",
        lookup_table_sql(rows, 0, &[("environment", "BIGINT"), ("name", "TEXT")]),
        own_columns("wanted.environment")
    )
}

fn details_lookup<'a>(resources: &[(EnvironmentKey, &'a str)]) -> Lookup<'a> {
    static STATEMENT: PaddedStatement = PaddedStatement::new();
    let mut values = Vec::with_capacity(resources.len().next_power_of_two() * 2);
    for (environment, name) in resources {
        values.extend([SqlValue::Integer(environment.0), SqlValue::Text(name)]);
    }
    STATEMENT.lookup(values, (0, 2), details_sql)
}

/// Details of some resources while they are being read.
struct DetailsBatch<'a> {
    resources: &'a [(EnvironmentKey, &'a str)],
    found: Vec<Option<UnresolvedDetails>>,
    /// Positions of the resources in the current lookup.
    places: Vec<usize>,
}

/// Details before their names are resolved.
#[derive(Clone)]
struct UnresolvedDetails {
    line: UnresolvedLine,
    attributes: Attributes,
    requires: Vec<ResourceKey>,
}

impl<'a> DetailsBatch<'a> {
    fn new(resources: &'a [(EnvironmentKey, &'a str)]) -> Self {
        DetailsBatch { resources, found: vec![None; resources.len()], places: Vec::new() }
    }

    /// Lookup of all resources as managed ones; `None` if they are of several environments.
    fn managed(&mut self) -> Option<Lookup<'a>> {
        let (environment, _) = *self.resources.first()?;
        if self.resources.iter().any(|(other, _)| *other != environment) {
            return None;
        }
        self.places = (0..self.resources.len()).collect();
        let names: Vec<&str> = self.resources.iter().map(|(_, name)| *name).collect();
        Some(managed_lookup(environment, &names))
    }

    /// Lookup of the resources that are not found yet; `None` if there are none.
    fn rest(&mut self) -> Option<Lookup<'a>> {
        self.places = (0..self.found.len()).filter(|at| self.found[*at].is_none()).collect();
        if self.places.is_empty() {
            return None;
        }
        let rest: Vec<_> = self.places.iter().map(|at| self.resources[*at]).collect();
        Some(details_lookup(&rest))
    }

    /// Adds the resource of a row at its position.
    fn add(&mut self, row: &dyn Row) -> Result<()> {
        let (place, details) = details_of(row)?;
        let at = self.places.get(place).copied();
        let at = at.ok_or_else(|| StoreError::Unreadable(format!("row {place} not requested")))?;
        self.found[at] = details;
        Ok(())
    }

    fn name_refs(&self) -> impl Iterator<Item = NameRef> {
        let found = self.resources.iter().zip(&self.found);
        found
            .filter_map(|((environment, _), found)| Some((environment, found.as_ref()?)))
            .flat_map(|(environment, found)| found.line.name_refs(*environment))
    }

    fn resolve(self, names: &ResolvedNames) -> Result<Vec<Option<ResourceDetailsRecord>>> {
        let resolve = |((environment, _), found): (&(EnvironmentKey, &str), Option<_>)| {
            let Some(UnresolvedDetails { line, attributes, requires }) = found else {
                return Ok(None);
            };
            let line = line.resolve(*environment, names)?;
            Ok(Some(ResourceDetailsRecord { line, attributes, requires }))
        };
        self.resources.iter().zip(self.found).map(resolve).collect()
    }
}

/// Statement for the statuses of resources.
fn statuses_sql(rows: usize) -> String {
    format!(
        "{} SELECT {}, {STATE_COLUMNS} FROM wanted CROSS JOIN resource {JOINS} \
         WHERE resource.id = wanted.id",
        lookup_table_sql(rows, 0, &[("id", "BIGINT")]),
        own_columns("resource.environment")
    )
}

fn statuses_lookup(keys: &[ResourceKey]) -> Lookup<'static> {
    static STATEMENT: PaddedStatement = PaddedStatement::new();
    let values = keys.iter().map(|key| SqlValue::Integer(key.0)).collect();
    STATEMENT.lookup(values, (0, 1), statuses_sql)
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
            let mut batch = DetailsBatch::new(resources);
            // Each row is consistent in itself, so the statements need no common snapshot.
            if let Some(lookup) = batch.managed() {
                self.run_lookup(&lookup, &mut |row| batch.add(row))?;
            }
            if let Some(lookup) = batch.rest() {
                self.run_lookup(&lookup, &mut |row| batch.add(row))?;
            }
            let names = self.resolve_names(batch.name_refs())?;
            found.extend(batch.resolve(&names)?);
        }
        Ok(found)
    }

    fn run_lookup(
        &self,
        lookup: &Lookup<'_>,
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        self.query(|sql| sql.visit(lookup.statement, &lookup.values, each))
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
        let mut found = Vec::with_capacity(resources.len());
        for resources in resources.chunks(LOOKUP_BATCH) {
            let mut batch = DetailsBatch::new(resources);
            if let Some(Lookup { statement, values }) = batch.managed() {
                let mut each = |row: &dyn Row| batch.add(row);
                if !self.backend().visit_async(statement, &values, &mut each).await? {
                    return Ok(None);
                }
            }
            if let Some(Lookup { statement, values }) = batch.rest() {
                let mut each = |row: &dyn Row| batch.add(row);
                if !self.backend().visit_async(statement, &values, &mut each).await? {
                    return Ok(None);
                }
            }
            let Some(names) = self.resolve_names_async(batch.name_refs()).await? else {
                return Ok(None);
            };
            found.extend(batch.resolve(&names)?);
        }
        Ok(Some(found))
    }

    async fn resolve_names_async(
        &self,
        refs: impl Iterator<Item = NameRef> + Send,
    ) -> Result<Option<ResolvedNames>> {
        let cache = self.backend().names();
        let (mut names, missing) = ResolvedNames::cached(cache, refs);
        for name in missing {
            let (select, id) = name.lookup();
            let mut add = |row: &dyn Row| {
                names.add(cache, name, row.str(0)?);
                Ok(())
            };
            if !self.backend().visit_async(select, values![id], &mut add).await? {
                return Ok(None);
            }
        }
        Ok(Some(names))
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

/// Adds the id and the status of the resource of a row.
fn add_status(found: &mut FxHashMap<ResourceKey, (String, Status)>, row: &dyn Row) -> Result<()> {
    let status = state_of(row)?.map_or(Status::Orphaned, |state| state.status());
    found.insert(ResourceKey(row.int(1)?), (row.string(0)?, status));
    Ok(())
}

/// A row, and its position in the lookup.
fn details_of(row: &dyn Row) -> Result<(usize, Option<UnresolvedDetails>)> {
    let at = OWN_COLUMN_COUNT + STATE_COLUMN_COUNT;
    let position = unsigned(row.int(at + 2)?)?;
    let Some(state) = state_of(row)? else { return Ok((position, None)) };
    let source = match row.integer(3)? {
        Some(file) => Some((file, row.int(4)?, row.int(5)?)),
        None => None,
    };
    let is_wanted = row.integer(2)?.is_some();
    let set = if is_wanted { row.integer(10)?.unwrap_or(0) } else { 0 };
    let mut requires = Vec::new();
    unpack_keys(row.blob(at + 1)?, &mut requires)?;
    let removal = removal_of(row, state.status())?;
    let (key, name) = (row.int(1)?, row.string(0)?);
    let details = UnresolvedDetails {
        line: UnresolvedLine { key, name, state, source, set, removal },
        attributes: Attributes::from_canonical(row.text(at)?.unwrap_or("{}")),
        requires,
    };
    Ok((position, Some(details)))
}
