//! One text for two databases: how records are read and written, whichever database keeps them.
//!
//! Statements stay in the dialect that SQLite and PostgreSQL share, with parameters as `?1`, `?2`, …; no other question mark
//! may stand in them. Integers are 64 bits wide, truth is 0 or 1, times are microseconds, ids are blobs of 16 bytes. What has
//! to be fast for a million rows is written for each database by itself instead.

use orrery_model::Timestamp;

use crate::{Lease, NewNote, Result, StoreError};

/// A parameter of a statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Blob(&'a [u8]),
}

/// One row of an answer. Columns are counted from 0.
pub trait Row {
    fn integer(&self, column: usize) -> Result<Option<i64>>;
    fn text(&self, column: usize) -> Result<Option<&str>>;
    fn blob(&self, column: usize) -> Result<Option<&[u8]>>;
}

/// A connection that is in a transaction.
pub trait Sql {
    /// Runs a statement, and answers how many rows it touched.
    fn run(&mut self, sql: &str, values: &[Value<'_>]) -> Result<u64>;
    /// Visits the rows of an answer.
    fn visit(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()>;
    /// The name of the function that tells where a text begins within another one, or bytes within others, counted from 1.
    fn position(&self) -> &'static str;
    /// The text for the time now, by the clock that all who use the database share.
    fn clock(&self) -> &'static str;
    /// Makes this transaction wait for, or keep away, others that claim the same name, until it ends. With one writer
    /// there is nothing to do.
    fn claim(&mut self, name: &str) -> Result<()>;
    /// Ends the transaction if the lease is not the current one. Whoever wants to take it over waits until the transaction ends.
    fn check_lease(&mut self, lease: &Lease) -> Result<()>;
    /// A number for a new row of a table, which no row of it ever had. Left to itself, SQLite gives the number of the newest row
    /// again after that is deleted, and who remembers the number would take one row for the other.
    fn new_number(&mut self, table: &'static str) -> Result<i64>;
    /// Adds to the change feed, in this transaction. It can be seen when the transaction is over.
    fn note(&mut self, note: &NewNote<'_>) -> Result<()>;
}

/// What runs transactions. A transaction may be run more than once if the database asks for that, so that its work must
/// do nothing but what can be undone.
pub trait Database {
    /// Runs `work` on one state of the database.
    fn look(&self, work: &mut dyn FnMut(&mut dyn Sql) -> Result<()>) -> Result<()>;
    /// The newest place of the change feed that is settled: what comes later has a greater number, whichever transaction
    /// it belongs to. To be asked before the feed is read.
    fn settled_change(&self) -> Result<i64>;
    /// Runs `work` in a transaction that is committed if it succeeds, and on disk when this answers.
    fn change(&self, work: &mut dyn FnMut(&mut dyn Sql) -> Result<()>) -> Result<()>;
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Value::Integer(value)
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Integer(value.into())
    }
}

impl From<Timestamp> for Value<'_> {
    fn from(value: Timestamp) -> Self {
        Value::Integer(value.0)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Value::Text(value)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(value: &'a String) -> Self {
        Value::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Self {
        Value::Blob(value)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Value<'a> {
    fn from(value: &'a [u8; N]) -> Self {
        Value::Blob(value)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// Values of a statement, each turned into a parameter.
#[macro_export]
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::sql::Value::from($value)),*] };
}

/// Columns that must not be empty, as the types that records have.
pub(crate) trait RowExt {
    fn int(&self, column: usize) -> Result<i64>;
    fn flag(&self, column: usize) -> Result<bool>;
    fn time(&self, column: usize) -> Result<Timestamp>;
    fn maybe_time(&self, column: usize) -> Result<Option<Timestamp>>;
    fn str(&self, column: usize) -> Result<&str>;
    fn string(&self, column: usize) -> Result<String>;
    fn maybe_string(&self, column: usize) -> Result<Option<String>>;
    fn id(&self, column: usize) -> Result<[u8; 16]>;
    fn maybe_id(&self, column: usize) -> Result<Option<[u8; 16]>>;
    fn json(&self, column: usize) -> Result<serde_json::Value>;
}

fn empty(column: usize) -> StoreError {
    StoreError::Unreadable(format!("column {column} is empty"))
}

fn id_of(bytes: &[u8]) -> Result<[u8; 16]> {
    bytes.try_into().map_err(|_| StoreError::Unreadable("an id has the wrong length".to_owned()))
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

    fn id(&self, column: usize) -> Result<[u8; 16]> {
        id_of(self.blob(column)?.ok_or_else(|| empty(column))?)
    }

    fn maybe_id(&self, column: usize) -> Result<Option<[u8; 16]>> {
        self.blob(column)?.map(id_of).transpose()
    }

    fn json(&self, column: usize) -> Result<serde_json::Value> {
        serde_json::from_str(self.str(column)?)
            .map_err(|error| StoreError::Unreadable(format!("column {column}: {error}")))
    }
}

/// Short ways to ask.
pub(crate) trait SqlExt {
    /// All rows, each turned into a record.
    fn all<T>(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
        make: impl FnMut(&dyn Row) -> Result<T>,
    ) -> Result<Vec<T>>;
    /// The first row, if there is one.
    fn first<T>(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
        make: impl FnMut(&dyn Row) -> Result<T>,
    ) -> Result<Option<T>>;
}

impl SqlExt for dyn Sql + '_ {
    fn all<T>(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
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
        values: &[Value<'_>],
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
