//! Transactions: how they begin, are tried again, and end.
//!
//! The methods of `Store` run as READ COMMITTED and take the locks that they need. Records are written once for both databases
//! by code that believes itself alone: they run as REPEATABLE READ, where writing what somebody else has changed meanwhile is
//! refused by the database, and are then tried again from the beginning.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postgres::Row;
use postgres::error::SqlState;
use postgres::types::Type;
use rustc_hash::FxHashSet;

use super::connection::{Connection, Parameter, state_of};
use super::copy::{CopyRows, NotCopied};
use super::pool::Pool;
use super::{LOCK_OF_CLAIMS, PostgresStore};
use crate::records::{KEPT_CHANGES, TIDY_EVERY};
use crate::{EnvironmentKey, NewNote, Result, StoreError};

/// How often a transaction is tried if others are in its way.
const ATTEMPTS: u32 = 12;

/// How often it is tried if a row that it makes is already there: the next time, it sees that row and can say so.
const ATTEMPTS_TO_SEE: u32 = 3;

/// A connection in a transaction.
pub(super) struct Tx<'a> {
    connection: &'a mut Connection,
    /// Written last, so that other readers of the feed wait only for the commit.
    notes: Vec<Note>,
    /// Names that this transaction has for itself.
    claims: &'a BTreeSet<String>,
    /// A name that it wants, and has to be begun again for.
    wanted: Option<String>,
    /// `None` if it has begun.
    look: Option<Look<'a>>,
}

const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A look at the database, which most often is a single statement and then needs no transaction to see one state: that saves two
/// of three round trips. If there is a second statement, the look is begun again, and the first one is remembered.
struct Look<'a> {
    first: Option<Box<str>>,
    /// Statements that others followed.
    followed: &'a Mutex<FxHashSet<Box<str>>>,
    has_to_begin_again: bool,
}

/// More texts than there are fixed statements: those that are put together may be many.
const FOLLOWED: usize = 1_000;

struct Note {
    environment: i64,
    kind: String,
    subject: String,
    at: Option<i64>,
}

impl Tx<'_> {
    /// Begins the transaction of a look, if it needs one.
    fn before(&mut self, sql: &str) -> Result<()> {
        let Some(look) = &mut self.look else { return Ok(()) };
        let mut followed = look.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(first) = look.first.take() else {
            if !followed.contains(sql) {
                look.first = Some(sql.into());
                return Ok(());
            }
            drop(followed);
            self.connection.batch(BEGIN_READING)?;
            self.connection.in_transaction = true;
            self.look = None;
            return Ok(());
        };
        if followed.len() >= FOLLOWED {
            followed.clear();
        }
        followed.insert(first);
        look.has_to_begin_again = true;
        Err(StoreError::Contended { place: self.connection.place().to_owned(), attempts: 0 })
    }

    pub(super) fn execute(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64> {
        self.before(sql)?;
        self.connection.execute(sql, parameters)
    }

    pub(super) fn query(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        self.before(sql)?;
        self.connection.query(sql, parameters)
    }

    pub(super) fn one(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Row> {
        self.before(sql)?;
        self.connection.one(sql, parameters)
    }

    /// Streams rows into a table: `into` names it and its columns.
    pub(super) fn copy(
        &mut self,
        into: &str,
        types: &[Type],
        rows: impl FnOnce(&mut CopyRows<'_>) -> std::result::Result<(), NotCopied>,
    ) -> Result<()> {
        self.before(into)?;
        self.connection.copy(into, types, rows)
    }

    /// The rest of this transaction finds rows by walking along indexes. That is what its statements are written for, and what
    /// a planner that knows little of a table, because it was filled a moment ago, does not choose by itself: it would sort.
    pub(super) fn walk(&mut self) -> Result<()> {
        self.connection.batch(
            "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
             SET LOCAL enable_sort = off; SET LOCAL enable_hashjoin = off; \
             SET LOCAL enable_mergejoin = off",
        )
    }

    /// The first row, if there is one.
    pub(super) fn first(&mut self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Option<Row>> {
        Ok(self.query(sql, parameters)?.into_iter().next())
    }

    pub(super) fn add_note(&mut self, note: &NewNote<'_>) {
        self.notes.push(Note {
            environment: note.environment.map_or(0, |key| key.0),
            kind: note.kind.to_owned(),
            subject: note.subject.to_owned(),
            at: note.at.map(|at| at.0),
        });
    }

    /// Adds to the change feed what this transaction does, with the time of the database.
    pub(super) fn note(&mut self, environment: EnvironmentKey, kind: &str, subject: &str) {
        self.add_note(&NewNote { environment: Some(environment), kind, subject, at: None });
    }

    /// A transaction sees the state from when it began, so a lock that it had to wait for would come too late: it is begun
    /// again, with the lock taken before.
    pub(super) fn claim(&mut self, name: &str) -> Result<()> {
        if self.claims.contains(name) {
            return Ok(());
        }
        self.wanted = Some(name.to_owned());
        Err(StoreError::Contended { place: self.connection.place().to_owned(), attempts: 0 })
    }

    /// Takes `count` consecutive numbers that were never given before, and answers the first.
    pub(super) fn take_numbers(&mut self, counter: &str, count: usize) -> Result<i64> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let sql = "SELECT take_numbers(($1::text || '_number')::regclass, $2)";
        Ok(self.one(sql, &[&counter, &count])?.get(0))
    }

    fn write_notes(&mut self) -> Result<()> {
        if self.notes.is_empty() {
            return Ok(());
        }
        let notes = std::mem::take(&mut self.notes);
        let environments: Vec<i64> = notes.iter().map(|note| note.environment).collect();
        let kinds: Vec<&str> = notes.iter().map(|note| &*note.kind).collect();
        let subjects: Vec<&str> = notes.iter().map(|note| &*note.subject).collect();
        let times: Vec<Option<i64>> = notes.iter().map(|note| note.at).collect();
        let sql = "SELECT note_changes($1, $2, $3, $4)";
        let last: i64 = self.one(sql, &[&environments, &kinds, &subjects, &times])?.get(0);
        let before = last - i64::try_from(notes.len()).unwrap_or(0);
        if last / TIDY_EVERY != before / TIDY_EVERY {
            let oldest = last - KEPT_CHANGES;
            self.execute("DELETE FROM change WHERE id < $1", &[&oldest])?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.write_notes()?;
        if self.connection.has_failed {
            return Err(StoreError::Unreadable("a failed statement was passed over".to_owned()));
        }
        self.connection.batch("COMMIT")
    }
}

/// Why a transaction may succeed if it is tried again.
enum Again {
    /// Others were in the way.
    Conflict,
    /// Somebody made the same thing, or removed what this one needs.
    Changed,
}

fn again(error: &StoreError, is_whole: bool) -> Option<Again> {
    let StoreError::Database { source } = error else { return None };
    match *state_of(source.as_ref())? {
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => {
            Some(Again::Conflict)
        }
        SqlState::UNIQUE_VIOLATION | SqlState::FOREIGN_KEY_VIOLATION if is_whole => {
            Some(Again::Changed)
        }
        _ => None,
    }
}

impl PostgresStore {
    /// Runs `work` in a transaction that is committed if it succeeds. It sees what others commit meanwhile, and locks what must
    /// not change.
    pub(super) fn write<T>(&self, work: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        self.write_through(self.pool(), work)
    }

    /// The same through another set of connections.
    pub(super) fn write_through<T>(
        &self,
        pool: &Pool,
        work: impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transact(pool, "BEGIN ISOLATION LEVEL READ COMMITTED", false, work)
    }

    /// Runs `work` in a transaction that sees one state and is begun again if somebody changes what it writes.
    pub(super) fn write_whole<T>(&self, work: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        self.transact(self.pool(), "BEGIN ISOLATION LEVEL REPEATABLE READ", true, work)
    }

    /// Runs `work` on one state of the store.
    pub(super) fn read<T>(&self, work: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        self.transact(self.pool(), BEGIN_READING, false, work)
    }

    /// The same for work that may be run again, and most often is a single statement.
    pub(super) fn look_at<T>(&self, mut work: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        let claims = BTreeSet::new();
        let (mut answer, mut has_to_begin_again) = (None, false);
        let done = self.pool().take(&mut |connection| {
            connection.has_failed = false;
            let look =
                Some(Look { first: None, followed: self.followed(), has_to_begin_again: false });
            let mut tx = Tx { connection, notes: Vec::new(), claims: &claims, wanted: None, look };
            let outcome = work(&mut tx);
            has_to_begin_again = tx.look.is_some_and(|look| look.has_to_begin_again);
            if connection.in_transaction && connection.batch("ROLLBACK").is_ok() {
                connection.in_transaction = false;
            }
            answer = Some(outcome?);
            Ok(())
        });
        if has_to_begin_again {
            return self.read(work);
        }
        done?;
        answer.ok_or_else(|| StoreError::Unreadable("a statement was not run".to_owned()))
    }

    /// Runs work that is a single statement, and so needs no transaction to see one state.
    pub(super) fn read_once<T>(&self, work: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        self.read_once_through(self.pool(), work)
    }

    /// The same through another set of connections.
    pub(super) fn read_once_through<T>(
        &self,
        pool: &Pool,
        mut work: impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut answer = None;
        let claims = BTreeSet::new();
        pool.take(&mut |connection| {
            connection.has_failed = false;
            let mut tx =
                Tx { connection, notes: Vec::new(), claims: &claims, wanted: None, look: None };
            answer = Some(work(&mut tx)?);
            Ok(())
        })?;
        answer.ok_or_else(|| StoreError::Unreadable("a statement was not run".to_owned()))
    }

    fn transact<T>(
        &self,
        pool: &Pool,
        begin: &str,
        is_whole: bool,
        mut work: impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut claims = BTreeSet::new();
        let mut attempt = 1;
        loop {
            let (outcome, wanted) = self.attempt(pool, begin, &claims, &mut work);
            let error = match (outcome, wanted) {
                (Ok(answer), _) => return Ok(answer),
                (Err(_), Some(name)) => {
                    claims.insert(name);
                    continue;
                }
                (Err(error), None) => error,
            };
            match again(&error, is_whole) {
                Some(Again::Changed) if attempt < ATTEMPTS_TO_SEE => {}
                Some(Again::Conflict) if attempt < ATTEMPTS => pause(attempt),
                Some(Again::Conflict) => {
                    let place = pool.place().to_owned();
                    return Err(StoreError::Contended { place, attempts: attempt });
                }
                _ => return Err(error),
            }
            attempt += 1;
        }
    }

    /// One try. Answers also which name it has to have before the next.
    fn attempt<T>(
        &self,
        pool: &Pool,
        begin: &str,
        claims: &BTreeSet<String>,
        work: &mut impl FnMut(&mut Tx<'_>) -> Result<T>,
    ) -> (Result<T>, Option<String>) {
        let taken = pool.take(&mut |connection| {
            let mut began = Ok(());
            for name in claims {
                let sql = "SELECT pg_advisory_lock($1, hashtext($2))";
                began = began
                    .and_then(|()| connection.execute(sql, &[&LOCK_OF_CLAIMS, name]).map(drop));
            }
            began = began.and_then(|()| connection.batch(begin));
            // Some of the locks may be there, and nobody would give them back.
            connection.is_broken |= began.is_err() && !claims.is_empty();
            began
        });
        let mut connection = match taken {
            Ok(connection) => connection,
            Err(error) => return (Err(error), None),
        };
        connection.in_transaction = true;
        connection.has_failed = false;
        let mut tx =
            Tx { connection: &mut connection, notes: Vec::new(), claims, wanted: None, look: None };
        let outcome = work(&mut tx).and_then(|answer| tx.commit().map(|()| answer));
        let wanted = tx.wanted.take();
        if outcome.is_ok() || connection.batch("ROLLBACK").is_ok() {
            connection.in_transaction = false;
        }
        if !claims.is_empty() && connection.batch("SELECT pg_advisory_unlock_all()").is_err() {
            connection.is_broken = true;
        }
        (outcome, wanted)
    }
}

/// Waits a little, and not as long as those that were in each other's way.
fn pause(attempt: u32) {
    let most = 1_000_u64 << attempt.min(6);
    let random = RandomState::new().build_hasher().finish();
    std::thread::sleep(Duration::from_micros(most / 2 + random % most));
}
