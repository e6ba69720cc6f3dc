//! Shared SQL dialect: reads and writes records on either database.
//!
//! Statements use the dialect that SQLite and PostgreSQL share, with parameters as `?1`, `?2`, …;
//! no other question mark may occur in them. Integers are 64 bits wide, booleans are 0 or 1, times
//! are microseconds, ids are blobs of 16 bytes. Where the databases differ, [`Sql`] has the part of
//! the statement: lists, row locks, the clock. [`RowsStatement`] is one text for many rows, which
//! each database runs in its fastest way.

use std::pin::Pin;

use orrery_model::{Id, Timestamp};

use crate::names::NameCache;
use crate::{EnvironmentKey, Lease, NewChange, Result, StoreError};

/// A parameter of a statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SqlValue<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Blob(&'a [u8]),
    /// Stored as a blob.
    Id([u8; 16]),
    /// A list for [`Sql::in_integers`].
    Integers(&'a [i64]),
    /// A list for [`Sql::in_blobs`].
    Blobs(&'a [&'a [u8]]),
}

/// Type of a column in a [`RowsStatement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Integer,
    Text,
    Blob,
}

/// A statement on given rows. In its text, `{rows}` stands for a table `new` with these columns.
///
/// PostgreSQL gets a few thousand rows at a time as arrays, because each statement is a round trip.
/// SQLite runs a prepared statement once per row: with a table of one row in it, 100,000 results
/// took 930 ms of a processor instead of 270 ms (`examples/measure.rs`).
///
/// An insertion has the form `INSERT INTO … SELECT … FROM {rows}`, with `WHERE true` before ON
/// CONFLICT, and must get each row once. A join follows the rows at once: `{rows} JOIN …`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsStatement<'a> {
    pub(crate) text: &'a str,
    pub(crate) columns: &'a [(&'a str, ColumnType)],
}

/// One row of a result. Columns are counted from 0.
pub(crate) trait Row {
    fn integer(&self, column: usize) -> Result<Option<i64>>;
    fn text(&self, column: usize) -> Result<Option<&str>>;
    fn blob(&self, column: usize) -> Result<Option<&[u8]>>;
}

/// A connection that is in a transaction.
pub(crate) trait Sql {
    /// Runs a statement and returns the number of affected rows.
    fn run(&mut self, sql: &str, values: &[SqlValue<'_>]) -> Result<u64>;
    /// Visits the rows of a result.
    fn visit(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()>;
    /// Runs a statement for all given rows, which are the cells row by row. Returns the number of
    /// affected rows.
    fn run_rows(
        &mut self,
        statement: &RowsStatement<'_>,
        values: &[SqlValue<'_>],
        cells: &[SqlValue<'_>],
    ) -> Result<u64>;
    /// Visits the result of a query on all given rows, which are the cells row by row.
    fn visit_rows(
        &mut self,
        statement: &RowsStatement<'_>,
        values: &[SqlValue<'_>],
        cells: &[SqlValue<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()>;
    /// SQL condition after a column: its integer is in the list of a parameter.
    fn in_integers(&self, parameter: &str) -> String;
    /// SQL condition after a column: its blob is in the list of a parameter.
    fn in_blobs(&self, parameter: &str) -> String;
    /// SQL clause after a query that locks its rows against other writers until the transaction
    /// ends. Empty on a database with a single writer.
    fn row_lock(&self) -> &'static str;
    /// SQL table and condition of the resources that the newest version does not have, by index.
    fn absent_resources(&self) -> &'static str;
    /// SQL assignment, after others, that keeps the index of absent resources complete. Empty where
    /// the database derives it from the head.
    fn set_absent(&self, absent: bool) -> &'static str;
    /// Deletes what a put of an environment left that failed between two commits. The environment
    /// must be locked.
    fn delete_unclaimed(&mut self, _: EnvironmentKey) -> Result<()> {
        Ok(())
    }
    /// Makes the rest of this transaction prefer index scans, for statements that are written for
    /// them.
    fn prefer_index_scans(&mut self) -> Result<()> {
        Ok(())
    }
    /// Allocates `count` consecutive numbers of a counter that were never used. Returns the first.
    fn allocate_numbers(&mut self, counter: &'static str, count: usize) -> Result<i64>;
    /// Name of the SQL function that returns the position of a text within another, or of bytes
    /// within others, counted from 1.
    fn position_function(&self) -> &'static str;
    /// SQL expression for the current time, by a clock that all users of the database share.
    fn now_expression(&self) -> &'static str;
    /// SQL expression, in a query of aggregates on the table `change`, for the newest number of a
    /// change, including uncommitted ones.
    fn newest_change(&self) -> &'static str;
    /// Takes an exclusive lock on a name until the transaction ends. No-op on a database with a
    /// single writer.
    fn lock_name(&mut self, name: &str) -> Result<()>;
    /// Fails if the lease is not the current one. Until the transaction ends, no other process can
    /// take the lease over.
    fn check_lease(&mut self, lease: &Lease) -> Result<()>;
    /// Number for a new row of a table that no row of it ever had. By default, SQLite reuses the
    /// number of the newest row after its deletion, and a reader that remembers the number would
    /// confuse the two rows.
    fn allocate_id(&mut self, table: &'static str) -> Result<i64>;
    /// Adds to the change feed, in this transaction. The change becomes visible with the commit.
    fn record_change(&mut self, note: &NewChange<'_>) -> Result<()>;
}

/// Outcome of an asynchronous read: false if nothing was read, because only blocking reads work.
pub(crate) type AsyncVisit<'a> = Pin<Box<dyn Future<Output = Result<bool>> + Send + 'a>>;

/// Visitor of the rows of an asynchronous read.
pub(crate) type AsyncVisitor<'a> = dyn FnMut(&dyn Row) -> Result<()> + Send + 'a;

/// Work of a transaction.
pub(crate) type Work<'a> = dyn FnMut(&mut dyn Sql) -> Result<()> + 'a;

/// Runs transactions. The database may run a transaction more than once, so its work must have no
/// effect that a rollback does not undo.
///
/// With a single writer, as on SQLite, all kinds of writing transactions are the same, apart from
/// the mark of an idempotent request.
pub(crate) trait Database {
    /// Names that were read from this database.
    fn names(&self) -> &NameCache;
    /// Runs `work` on one snapshot of the database.
    fn read_transaction(&self, work: &mut Work<'_>) -> Result<()>;
    /// As `read_transaction`, for work of several statements, or with effects outside: it is not
    /// repeated.
    fn scan_transaction(&self, work: &mut Work<'_>) -> Result<()>;
    /// Visits the rows of a single statement without blocking the thread. By default, only blocking
    /// reads work.
    fn visit_async<'a>(
        &'a self,
        _sql: &'a str,
        _values: &'a [SqlValue<'a>],
        _each: &'a mut AsyncVisitor<'a>,
    ) -> AsyncVisit<'a> {
        Box::pin(std::future::ready(Ok(false)))
    }
    /// Newest settled sequence number of the change feed: every later change has a greater number,
    /// whichever transaction writes it. Read it before the feed.
    fn settled_change(&self) -> Result<i64>;
    /// Runs `work` in a transaction that is committed if it succeeds, and is on disk when this
    /// returns. It sees one snapshot, and is repeated if a concurrent transaction changes a row
    /// that it changes: for work that assumes that it runs alone.
    fn write_transaction(&self, work: &mut Work<'_>) -> Result<()>;
    /// As `write_transaction`, for work that first locks a row ([`Sql::row_lock`],
    /// [`Sql::check_lease`]): it waits for concurrent holders of the lock, and then sees what they
    /// committed. For large work and contended rows, where repeating would cost more than waiting.
    fn locked_transaction(&self, work: &mut Work<'_>) -> Result<()>;
    /// As `locked_transaction`, for work that may be repeated by an idempotent request, and
    /// therefore does not mark it as executed.
    fn unmarked_transaction(&self, work: &mut Work<'_>) -> Result<()>;
}

impl RowsStatement<'_> {
    /// The text with `table` in the place of the rows.
    pub(crate) fn with_rows(&self, table: &str) -> String {
        self.text.replace("{rows}", table)
    }
}

impl From<i64> for SqlValue<'_> {
    fn from(value: i64) -> Self {
        SqlValue::Integer(value)
    }
}

impl From<bool> for SqlValue<'_> {
    fn from(value: bool) -> Self {
        SqlValue::Integer(value.into())
    }
}

impl From<Timestamp> for SqlValue<'_> {
    fn from(value: Timestamp) -> Self {
        SqlValue::Integer(value.0)
    }
}

impl<K> From<Id<K>> for SqlValue<'_> {
    fn from(value: Id<K>) -> Self {
        SqlValue::Id(value.into_bytes())
    }
}

impl<K> From<&Id<K>> for SqlValue<'_> {
    fn from(value: &Id<K>) -> Self {
        (*value).into()
    }
}

impl<'a> From<&'a str> for SqlValue<'a> {
    fn from(value: &'a str) -> Self {
        SqlValue::Text(value)
    }
}

impl<'a> From<&'a String> for SqlValue<'a> {
    fn from(value: &'a String) -> Self {
        SqlValue::Text(value)
    }
}

impl<'a> From<&'a [u8]> for SqlValue<'a> {
    fn from(value: &'a [u8]) -> Self {
        SqlValue::Blob(value)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for SqlValue<'a> {
    fn from(value: &'a [u8; N]) -> Self {
        SqlValue::Blob(value)
    }
}

impl<'a, T: Into<SqlValue<'a>>> From<Option<T>> for SqlValue<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(SqlValue::Null, Into::into)
    }
}

/// Parameters of a statement, each converted to a [`SqlValue`].
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::sql::SqlValue::from($value)),*] };
}
pub(crate) use values;

/// Non-null columns, as the types that records use.
pub(crate) trait RowExt {
    fn int(&self, column: usize) -> Result<i64>;
    fn flag(&self, column: usize) -> Result<bool>;
    fn time(&self, column: usize) -> Result<Timestamp>;
    fn maybe_time(&self, column: usize) -> Result<Option<Timestamp>>;
    fn str(&self, column: usize) -> Result<&str>;
    fn string(&self, column: usize) -> Result<String>;
    fn maybe_string(&self, column: usize) -> Result<Option<String>>;
    fn id<K>(&self, column: usize) -> Result<Id<K>>;
    fn maybe_id<K>(&self, column: usize) -> Result<Option<Id<K>>>;
    fn json(&self, column: usize) -> Result<serde_json::Value>;
}

fn empty(column: usize) -> StoreError {
    StoreError::Unreadable(format!("column {column} is empty"))
}

fn id_from<K>(bytes: &[u8]) -> Result<Id<K>> {
    let bytes = bytes.try_into();
    bytes
        .map(Id::from_bytes)
        .map_err(|_| StoreError::Unreadable("an id has the wrong length".to_owned()))
}

impl<R: Row + ?Sized> RowExt for R {
    fn int(&self, column: usize) -> Result<i64> {
        self.integer(column)?.ok_or_else(|| empty(column))
    }

    fn flag(&self, column: usize) -> Result<bool> {
        Ok(self.int(column)? != 0)
    }

    fn time(&self, column: usize) -> Result<Timestamp> {
        Ok(Timestamp(self.int(column)?))
    }

    fn maybe_time(&self, column: usize) -> Result<Option<Timestamp>> {
        Ok(self.integer(column)?.map(Timestamp))
    }

    fn str(&self, column: usize) -> Result<&str> {
        self.text(column)?.ok_or_else(|| empty(column))
    }

    fn string(&self, column: usize) -> Result<String> {
        Ok(self.str(column)?.to_owned())
    }

    fn maybe_string(&self, column: usize) -> Result<Option<String>> {
        Ok(self.text(column)?.map(str::to_owned))
    }

    fn id<K>(&self, column: usize) -> Result<Id<K>> {
        id_from(self.blob(column)?.ok_or_else(|| empty(column))?)
    }

    fn maybe_id<K>(&self, column: usize) -> Result<Option<Id<K>>> {
        self.blob(column)?.map(id_from).transpose()
    }

    fn json(&self, column: usize) -> Result<serde_json::Value> {
        serde_json::from_str(self.str(column)?)
            .map_err(|error| StoreError::Unreadable(format!("column {column}: {error}")))
    }
}

/// Shorthand queries.
pub(crate) trait SqlExt {
    /// All rows, each converted to a record.
    fn all<T>(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
        make: impl FnMut(&dyn Row) -> Result<T>,
    ) -> Result<Vec<T>>;
    /// The first row, if any.
    fn first<T>(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
        make: impl FnMut(&dyn Row) -> Result<T>,
    ) -> Result<Option<T>>;
}

impl SqlExt for dyn Sql + '_ {
    fn all<T>(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
        mut make: impl FnMut(&dyn Row) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.visit(sql, values, &mut |row| {
            found.push(make(row)?);
            Ok(())
        })?;
        Ok(found)
    }

    fn first<T>(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
        mut make: impl FnMut(&dyn Row) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut found = None;
        self.visit(sql, values, &mut |row| {
            if found.is_none() {
                found = Some(make(row)?);
            }
            Ok(())
        })?;
        Ok(found)
    }
}
