//! Records in SQLite: the shared dialect on a connection that is in a transaction.

use std::fmt::Write as _;

use orrery_base::hex::to_hex;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, params, params_from_iter};

use crate::names::NameCache;
use crate::records::{CHANGES_MAX, TRIM_INTERVAL};
use crate::sql::{Database, Row, RowsStatement, Sql, SqlValue, Work};
use crate::{Lease, NewChange, Result, StoreError};

use super::SqliteStore;

/// A connection in a transaction.
pub(super) struct SqliteTransaction<'a>(pub(super) &'a Connection);

impl ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            SqlValue::Integers(list) => return Ok(json_list(list.iter()).into()),
            SqlValue::Blobs(list) => {
                let texts = list.iter().map(|bytes| format!("\"{}\"", to_hex(bytes)));
                return Ok(json_list(texts).into());
            }
            SqlValue::Null => ValueRef::Null,
            SqlValue::Integer(value) => ValueRef::Integer(*value),
            SqlValue::Text(text) => ValueRef::Text(text.as_bytes()),
            SqlValue::Blob(bytes) => ValueRef::Blob(bytes),
            SqlValue::Id(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// A JSON list, which the function `json_each` turns into rows.
fn json_list(items: impl Iterator<Item = impl std::fmt::Display>) -> String {
    let mut list = String::from("[");
    for (index, item) in items.enumerate() {
        let separator = if index == 0 { "" } else { "," };
        let _ = write!(list, "{separator}{item}");
    }
    list.push(']');
    list
}

impl Row for rusqlite::Row<'_> {
    fn integer(&self, column: usize) -> Result<Option<i64>> {
        self.get_ref(column)?.as_i64_or_null().map_err(mismatch)
    }

    fn text(&self, column: usize) -> Result<Option<&str>> {
        self.get_ref(column)?.as_str_or_null().map_err(mismatch)
    }

    fn blob(&self, column: usize) -> Result<Option<&[u8]>> {
        self.get_ref(column)?.as_blob_or_null().map_err(mismatch)
    }
}

fn mismatch(error: rusqlite::types::FromSqlError) -> StoreError {
    StoreError::Unreadable(error.to_string())
}

/// Text of a statement for one row. Its values stand where the columns of the row are named, and
/// VALUES for SELECT: a table of one row, which a join needs, takes three times as long.
fn single_row_text(statement: &RowsStatement<'_>, values: usize) -> String {
    let places = || statement.columns.iter().zip(values + 1..);
    if statement.text.contains("{rows} JOIN") {
        let columns: Vec<String> =
            places().map(|((name, _), place)| format!("?{place} AS {name}")).collect();
        return statement.with_rows(&format!("(SELECT {}) AS new", columns.join(", ")));
    }
    let text = match statement.text.strip_prefix("INSERT ") {
        Some(insert) => {
            let insert = insert.replacen(" SELECT ", " VALUES (", 1);
            let insert = insert.replace(" FROM {rows} WHERE true", ")");
            format!("INSERT {}", insert.replace(" FROM {rows}", ")"))
        }
        None => statement.text.replace("FROM {rows}", ""),
    };
    let mut parts = text.split("new.");
    let mut single = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_part_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let end = part.bytes().position(|byte| !is_part_of_name(byte)).unwrap_or(part.len());
        let (column, rest) = part.split_at(end);
        match places().find(|((name, _), _)| *name == column) {
            // Writing to a string cannot fail.
            Some((_, place)) => drop(write!(single, "?{place}{rest}")),
            None => drop(write!(single, "new.{part}")),
        }
    }
    single
}

impl Sql for SqliteTransaction<'_> {
    fn run(&mut self, sql: &str, values: &[SqlValue<'_>]) -> Result<u64> {
        let mut statement = self.0.prepare_cached(sql)?;
        Ok(statement.execute(params_from_iter(values))? as u64)
    }

    fn visit(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        let mut statement = self.0.prepare_cached(sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            each(row)?;
        }
        Ok(())
    }

    fn run_rows(
        &mut self,
        statement: &RowsStatement<'_>,
        values: &[SqlValue<'_>],
        cells: &[SqlValue<'_>],
    ) -> Result<u64> {
        let mut prepared = self.0.prepare_cached(&single_row_text(statement, values.len()))?;
        let mut affected = 0;
        for row in cells.chunks_exact(statement.columns.len()) {
            affected += prepared.execute(params_from_iter(values.iter().chain(row)))? as u64;
        }
        Ok(affected)
    }

    fn visit_rows(
        &mut self,
        statement: &RowsStatement<'_>,
        values: &[SqlValue<'_>],
        cells: &[SqlValue<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        let text = single_row_text(statement, values.len());
        for row in cells.chunks_exact(statement.columns.len()) {
            let all: Vec<SqlValue<'_>> = values.iter().chain(row).copied().collect();
            self.visit(&text, &all, each)?;
        }
        Ok(())
    }

    fn in_integers(&self, parameter: &str) -> String {
        format!("IN (SELECT value FROM json_each({parameter}))")
    }

    fn in_blobs(&self, parameter: &str) -> String {
        format!("IN (SELECT unhex(value) FROM json_each({parameter}))")
    }

    fn row_lock(&self) -> &'static str {
        ""
    }

    fn absent_resources(&self) -> &'static str {
        "resource INDEXED BY resource_absent WHERE head IS NULL"
    }

    fn set_absent(&self, _: bool) -> &'static str {
        ""
    }

    fn allocate_numbers(&mut self, counter: &'static str, count: usize) -> Result<i64> {
        super::allocate_numbers(self.0, counter, count)
    }

    fn position_function(&self) -> &'static str {
        "instr"
    }

    fn now_expression(&self) -> &'static str {
        "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
    }

    fn newest_change(&self) -> &'static str {
        "coalesce(max(id), 0)"
    }

    fn lock_name(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn check_lease(&mut self, lease: &Lease) -> Result<()> {
        super::leases::check_lease(self.0, lease)
    }

    fn allocate_id(&mut self, table: &'static str) -> Result<i64> {
        super::allocate_id(self.0, table)
    }

    fn record_change(&mut self, note: &NewChange<'_>) -> Result<()> {
        let NewChange { environment, kind, subject, at } = *note;
        let environment = environment.map_or(0, |key| key.0);
        let mut statement = self.0.prepare_cached(
            "INSERT INTO change (environment, kind, subject, at) \
             VALUES (?1, ?2, ?3, coalesce(?4, CAST(unixepoch('subsec') * 1000000 AS INTEGER)))",
        )?;
        statement.execute(params![environment, kind, subject, at.map(|at| at.0)])?;
        let id = self.0.last_insert_rowid();
        if id % TRIM_INTERVAL == 0 {
            self.0.execute("DELETE FROM change WHERE id < ?1", [id - CHANGES_MAX])?;
        }
        Ok(())
    }
}

impl Database for SqliteStore {
    fn names(&self) -> &NameCache {
        &self.names
    }

    fn read_transaction(&self, work: &mut Work<'_>) -> Result<()> {
        self.read(|connection| work(&mut SqliteTransaction(connection)))
    }

    fn scan_transaction(&self, work: &mut Work<'_>) -> Result<()> {
        self.read_transaction(work)
    }

    /// The newest number: with a single writer, numbers are committed in order.
    fn settled_change(&self) -> Result<i64> {
        self.read(|tx| {
            Ok(tx.query_row("SELECT coalesce(max(id), 0) FROM change", (), |row| row.get(0))?)
        })
    }

    fn write_transaction(&self, work: &mut Work<'_>) -> Result<()> {
        self.transact(|connection| work(&mut SqliteTransaction(connection)))
    }

    fn locked_transaction(&self, work: &mut Work<'_>) -> Result<()> {
        self.write_transaction(work)
    }

    fn unmarked_transaction(&self, work: &mut Work<'_>) -> Result<()> {
        self.write(|connection| work(&mut SqliteTransaction(connection)))
    }
}
