//! Transactions: begin, retry, commit.
//!
//! The methods of `Store` run as READ COMMITTED and take the locks that they need. Transactions on
//! records are written once for both databases, without locks: they run as REPEATABLE READ, where
//! the database refuses to overwrite a concurrent change, and are then retried from the beginning.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use orrery_base::lock::IgnorePoison;
use postgres::Row;
use postgres::error::SqlState;
use postgres::types::Type;
use rustc_hash::FxHashSet;

use super::connection::{Connection, Parameter};
use super::copy::{CopyError, CopyRows};
use super::pool::Pool;
use super::{NAME_LOCK_CLASS, PostgresStore};
use crate::error::sql_state;
use crate::records::{CHANGES_MAX, TRIM_INTERVAL};
use crate::{EnvironmentKey, NewChange, Result, StoreError};

/// Attempts of a transaction after conflicts.
const ATTEMPTS: u32 = 12;

/// Attempts after a row turned out to exist: the next attempt sees that row and can report it.
const ATTEMPTS_AFTER_CHANGE: u32 = 3;

/// A connection in a transaction.
pub(super) struct Tx<'a> {
    connection: &'a mut Connection,
    /// Written last, so that other readers of the feed wait only for the commit.
    changes: Vec<PendingChange>,
    /// Names that this transaction has locked.
    locks: &'a BTreeSet<String>,
    /// A name to be locked, for which the transaction has to be restarted.
    lock_request: Option<String>,
    /// `None` if the transaction has begun.
    optimistic: Option<OptimisticRead<'a>>,
}

const BEGIN_READ_ONLY: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// An optimistic read: most reads are a single statement and need no transaction to see one
/// snapshot, which saves two of three round trips. At a second statement, the read is restarted in
/// a transaction, and its first statement is remembered.
struct OptimisticRead<'a> {
    first: Option<Box<str>>,
    /// First statements of reads that have several.
    multi_statement_reads: &'a Mutex<FxHashSet<Box<str>>>,
    needs_transaction: bool,
}

/// More than there are fixed statements: generated ones may be many.
const MULTI_STATEMENT_MAX: usize = 1_000;

struct PendingChange {
    environment: i64,
    kind: String,
    subject: String,
    at: Option<i64>,
}

impl Tx<'_> {
    /// Begins the transaction of an optimistic read, if it needs one.
    fn ensure_begun(&mut self, sql: &str) -> Result<()> {
        let Some(optimistic) = &mut self.optimistic else { return Ok(()) };
        let mut multi_statement_reads = optimistic.multi_statement_reads.lock().ignore_poison();
        let Some(first) = optimistic.first.take() else {
            if !multi_statement_reads.contains(sql) {
                optimistic.first = Some(sql.into());
                return Ok(());
            }
            drop(multi_statement_reads);
            self.connection.batch(BEGIN_READ_ONLY)?;
            self.connection.in_transaction = true;
            self.optimistic = None;
            return Ok(());
        };
        if multi_statement_reads.len() >= MULTI_STATEMENT_MAX {
            multi_statement_reads.clear();
        }
        multi_statement_reads.insert(first);
        optimistic.needs_transaction = true;
        Err(StoreError::Contended { database: self.connection.database().to_owned(), attempts: 0 })
    }

    pub(super) fn execute(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64> {
        self.ensure_begun(sql)?;
        self.connection.execute(sql, parameters)
    }

    pub(super) fn query(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        self.ensure_begun(sql)?;
        self.connection.query(sql, parameters)
    }

    pub(super) fn query_one(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Row> {
        self.ensure_begun(sql)?;
        self.connection.query_one(sql, parameters)
    }

    /// Streams rows into a table: `into` names it and its columns.
    pub(super) fn copy(
        &mut self,
        into: &str,
        types: &[Type],
        rows: impl FnOnce(&mut CopyRows<'_>) -> std::result::Result<(), CopyError>,
    ) -> Result<()> {
        self.ensure_begun(into)?;
        self.connection.copy(into, types, rows)
    }

    /// Makes the rest of this transaction prefer index scans. Its statements are written for them,
    /// but with outdated statistics of a table that was just filled, the planner would sort
    /// instead.
    pub(super) fn prefer_index_scans(&mut self) -> Result<()> {
        self.connection.batch(
            "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
             SET LOCAL enable_sort = off; SET LOCAL enable_hashjoin = off; \
             SET LOCAL enable_mergejoin = off",
        )
    }

    /// The first row, if any.
    pub(super) fn first(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Option<Row>> {
        Ok(self.query(sql, parameters)?.into_iter().next())
    }

    pub(super) fn add_change(&mut self, note: &NewChange<'_>) {
        self.changes.push(PendingChange {
            environment: note.environment.map_or(0, |key| key.0),
            kind: note.kind.to_owned(),
            subject: note.subject.to_owned(),
            at: note.at.map(|at| at.0),
        });
    }

    /// Adds to the change feed, with the time of the database.
    pub(super) fn record_change(&mut self, environment: EnvironmentKey, kind: &str, subject: &str) {
        self.add_change(&NewChange { environment: Some(environment), kind, subject, at: None });
    }

    /// Locks a name. A transaction sees the snapshot of its start, so a lock that it waited for
    /// would come too late: it is restarted with the lock taken before.
    pub(super) fn lock_name(&mut self, name: &str) -> Result<()> {
        if self.locks.contains(name) {
            return Ok(());
        }
        self.lock_request = Some(name.to_owned());
        Err(StoreError::Contended { database: self.connection.database().to_owned(), attempts: 0 })
    }

    /// Allocates `count` consecutive numbers that were never used, and returns the first.
    pub(super) fn allocate_numbers(&mut self, counter: &str, count: usize) -> Result<i64> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let sql = "SELECT take_numbers(($1::text || '_number')::regclass, $2)";
        Ok(self.query_one(sql, &[&counter, &count])?.get(0))
    }

    fn write_changes(&mut self) -> Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let changes = std::mem::take(&mut self.changes);
        let environments: Vec<i64> = changes.iter().map(|note| note.environment).collect();
        let kinds: Vec<&str> = changes.iter().map(|note| &*note.kind).collect();
        let subjects: Vec<&str> = changes.iter().map(|note| &*note.subject).collect();
        let times: Vec<Option<i64>> = changes.iter().map(|note| note.at).collect();
        let sql = "SELECT note_changes($1, $2, $3, $4)";
        let last: i64 = self.query_one(sql, &[&environments, &kinds, &subjects, &times])?.get(0);
        let before = last - i64::try_from(changes.len()).unwrap_or(0);
        if last / TRIM_INTERVAL != before / TRIM_INTERVAL {
            let oldest = last - CHANGES_MAX;
            self.execute("DELETE FROM change WHERE id < $1", &[&oldest])?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.write_changes()?;
        if self.connection.has_failed {
            return Err(StoreError::Unreadable("a failed statement was ignored".to_owned()));
        }
        self.connection.batch("COMMIT")
    }
}

/// Reason why a retry of a transaction may succeed.
enum RetryReason {
    /// Conflict with concurrent transactions.
    Conflict,
    /// A concurrent transaction created the same row, or deleted a required one.
    Changed,
}

fn retry_reason(error: &StoreError, is_whole: bool) -> Option<RetryReason> {
    let StoreError::Database { source } = error else { return None };
    match *sql_state(source.as_ref())? {
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => {
            Some(RetryReason::Conflict)
        }
        SqlState::UNIQUE_VIOLATION | SqlState::FOREIGN_KEY_VIOLATION if is_whole => {
            Some(RetryReason::Changed)
        }
        _ => None,
    }
}

impl PostgresStore {
    /// Runs `work` in a transaction that is committed if it succeeds. It sees concurrent commits,
    /// and locks rows that must not change.
    pub(super) fn write<T>(&self, work: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        self.write_on(self.pool(), work)
    }

    /// As `write`, on another pool.
    pub(super) fn write_on<T>(
        &self,
        pool: &Pool,
        work: impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.run_transaction(pool, "BEGIN ISOLATION LEVEL READ COMMITTED", false, work)
    }

    /// Runs `work` in a transaction that sees one snapshot and is restarted after a conflicting
    /// change.
    pub(super) fn write_repeatable<T>(
        &self,
        work: impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.run_transaction(self.pool(), "BEGIN ISOLATION LEVEL REPEATABLE READ", true, work)
    }

    /// Runs `work` on one snapshot of the store.
    pub(super) fn read<T>(&self, work: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        self.run_transaction(self.pool(), BEGIN_READ_ONLY, false, work)
    }

    /// As `read`, for work that may be run again and mostly is a single statement.
    pub(super) fn read_optimistic<T>(
        &self,
        mut work: impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let locks = BTreeSet::new();
        let (mut answer, mut needs_transaction) = (None, false);
        let done = self.pool().acquire(&mut |connection| {
            connection.has_failed = false;
            let optimistic = Some(OptimisticRead {
                first: None,
                multi_statement_reads: self.multi_statement_reads(),
                needs_transaction: false,
            });
            let mut tx = Tx {
                connection,
                changes: Vec::new(),
                locks: &locks,
                lock_request: None,
                optimistic,
            };
            let outcome = work(&mut tx);
            needs_transaction =
                tx.optimistic.is_some_and(|optimistic| optimistic.needs_transaction);
            if connection.in_transaction && connection.batch("ROLLBACK").is_ok() {
                connection.in_transaction = false;
            }
            answer = Some(outcome?);
            Ok(())
        });
        if needs_transaction {
            return self.read(work);
        }
        done?;
        answer.ok_or_else(|| StoreError::Unreadable("a statement was not run".to_owned()))
    }

    /// Runs work of a single statement, which needs no transaction to see one snapshot.
    pub(super) fn read_once<T>(&self, work: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        self.read_once_on(self.pool(), work)
    }

    /// As `read_once`, on another pool.
    pub(super) fn read_once_on<T>(
        &self,
        pool: &Pool,
        mut work: impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut answer = None;
        let locks = BTreeSet::new();
        pool.acquire(&mut |connection| {
            connection.has_failed = false;
            let mut tx = Tx {
                connection,
                changes: Vec::new(),
                locks: &locks,
                lock_request: None,
                optimistic: None,
            };
            answer = Some(work(&mut tx)?);
            Ok(())
        })?;
        answer.ok_or_else(|| StoreError::Unreadable("a statement was not run".to_owned()))
    }

    fn run_transaction<T>(
        &self,
        pool: &Pool,
        begin: &str,
        is_whole: bool,
        mut work: impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut locks = BTreeSet::new();
        let mut attempt = 1;
        loop {
            let (outcome, lock_request) = self.attempt(pool, begin, &locks, &mut work);
            let error = match (outcome, lock_request) {
                (Ok(answer), _) => return Ok(answer),
                (Err(_), Some(name)) => {
                    locks.insert(name);
                    continue;
                }
                (Err(error), None) => error,
            };
            match retry_reason(&error, is_whole) {
                Some(RetryReason::Changed) if attempt < ATTEMPTS_AFTER_CHANGE => {}
                Some(RetryReason::Conflict) if attempt < ATTEMPTS => pause(attempt),
                Some(RetryReason::Conflict) => {
                    let database = pool.database().to_owned();
                    return Err(StoreError::Contended { database, attempts: attempt });
                }
                _ => return Err(error),
            }
            attempt += 1;
        }
    }

    /// One attempt. Also returns the name to be locked before the next one.
    fn attempt<T>(
        &self,
        pool: &Pool,
        begin: &str,
        locks: &BTreeSet<String>,
        work: &mut impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> (Result<T>, Option<String>) {
        let acquired = pool.acquire(&mut |connection| {
            let mut began = Ok(());
            for name in locks {
                let sql = "SELECT pg_advisory_lock($1, hashtext($2))";
                began = began
                    .and_then(|()| connection.execute(sql, &[&NAME_LOCK_CLASS, name]).map(drop));
            }
            began = began.and_then(|()| connection.batch(begin));
            // Some of the locks may be held, and nothing else would release them.
            connection.is_broken |= began.is_err() && !locks.is_empty();
            began
        });
        let mut connection = match acquired {
            Ok(connection) => connection,
            Err(error) => return (Err(error), None),
        };
        connection.in_transaction = true;
        connection.has_failed = false;
        let mut tx = Tx {
            connection: &mut connection,
            changes: Vec::new(),
            locks,
            lock_request: None,
            optimistic: None,
        };
        let outcome = work(&mut tx).and_then(|answer| tx.commit().map(|()| answer));
        let lock_request = tx.lock_request.take();
        if outcome.is_ok() || connection.batch("ROLLBACK").is_ok() {
            connection.in_transaction = false;
        }
        if !locks.is_empty() && connection.batch("SELECT pg_advisory_unlock_all()").is_err() {
            connection.is_broken = true;
        }
        (outcome, lock_request)
    }
}

/// Sleeps with exponential backoff and jitter.
fn pause(attempt: u32) {
    let most = 1_000_u64 << attempt.min(6);
    let random = RandomState::new().build_hasher().finish();
    std::thread::sleep(Duration::from_micros(most / 2 + random % most));
}
