//! Records in SQLite: the shared dialect on a connection that is in a transaction.

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, params, params_from_iter};

use crate::records::{CHANGES_MAX, TRIM_INTERVAL};
use crate::sql::{Database, Row, Sql, SqlValue};
use crate::{Lease, NewChange, Result, StoreError};

use super::SqliteStore;

/// A connection in a transaction.
pub(super) struct SqliteTransaction<'a>(pub(super) &'a Connection);

impl ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            SqlValue::Null => ValueRef::Null,
            SqlValue::Integer(value) => ValueRef::Integer(*value),
            SqlValue::Text(text) => ValueRef::Text(text.as_bytes()),
            SqlValue::Blob(bytes) => ValueRef::Blob(bytes),
            SqlValue::Id(bytes) => ValueRef::Blob(bytes),
        }))
    }
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

    fn position_function(&self) -> &'static str {
        "instr"
    }

    fn now_expression(&self) -> &'static str {
        "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
    }

    fn lock_name(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn check_lease(&mut self, lease: &Lease) -> Result<()> {
        super::engine::check_lease(self.0, lease)
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
    fn read_transaction(&self, work: &mut dyn FnMut(&mut dyn Sql) -> Result<()>) -> Result<()> {
        self.read(|connection| work(&mut SqliteTransaction(connection)))
    }

    /// The newest number: with a single writer, numbers are committed in order.
    fn settled_change(&self) -> Result<i64> {
        self.read(|tx| {
            Ok(tx.query_row("SELECT coalesce(max(id), 0) FROM change", (), |row| row.get(0))?)
        })
    }

    fn write_transaction(&self, work: &mut dyn FnMut(&mut dyn Sql) -> Result<()>) -> Result<()> {
        self.transact(|connection| work(&mut SqliteTransaction(connection)))
    }
}
