//! The store in one SQLite file.
//!
//! One connection writes, under the lock of `crate::lock`; others read, each in a transaction of
//! its own, and never block the writer.
//!
//! | module | content |
//! |---|---|
//! | `open` | recognizing, opening and migrating a file |
//! | `sql` | the shared dialect: statements of `crate::records` |
//! | `compare`, `put` | storing a version |
//! | `leases` | leases of environments |

mod compare;
mod leases;
mod open;
mod put;
mod sql;

use std::path::PathBuf;
use std::sync::Mutex;

use orrery_base::lock::IgnorePoison;
use orrery_model::Timestamp;
use rusqlite::{Connection, TransactionBehavior};

use crate::backend::{Backend, PutTarget};
use crate::idempotency;
use crate::lock::WriterLock;
use crate::names::NameCache;
use crate::sql::Sql as _;
use crate::{
    EnvironmentKey, Holder, Lease, LeaseRequest, NewVersion, PutOutcome, RenewalOutcome, Result,
    StoreError,
};

/// Time at which a commit has to be on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    /// Before it returns.
    Now,
    /// With the next commit, or when the store is closed.
    Later,
}

fn commit<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Connection) -> Result<T>,
) -> Result<T> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let answer = work(&transaction)?;
    transaction.commit()?;
    Ok(answer)
}

/// A store in one SQLite file, or in memory.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    /// `None` in memory.
    path: Option<PathBuf>,
    /// Idle connections. Declared before the writer, because the last connection to close cleans up
    /// the write-ahead log, which a reader may not.
    readers: Mutex<Vec<Connection>>,
    /// `None` if it was opened for reading only. A panic of a holder leaves no half-written state,
    /// because transactions roll back when they are dropped.
    writer: Option<Mutex<Connection>>,
    names: NameCache,
    /// Declared last, so that it outlives the connections.
    _lock: Option<WriterLock>,
}

impl SqliteStore {
    /// Opens a file for writing, and creates it if it does not exist. Only one process at a time
    /// can.
    ///
    /// # Errors
    /// `Busy` if another process has it; `Newer`, `Foreign` or `Damaged` if it is not usable, in
    /// which case the file stays unchanged.
    pub(crate) fn open(path: impl Into<PathBuf>, holder: &Holder) -> Result<Self> {
        let path = path.into();
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(|error| StoreError::io(parent, error))?;
        }
        let lock = WriterLock::acquire(&path, holder)?;
        let writer = open::open_writer(&path)?;
        // Every former holder of a lease in this file has ended: the lock proves it.
        let released = writer.execute("UPDATE lease SET held = 0 WHERE held", ());
        released.map_err(|error| StoreError::from(error).at(&path))?;
        // The same holds for runs of compiles.
        let ended = "UPDATE compile SET alive_until = NULL WHERE alive_until IS NOT NULL";
        writer.execute(ended, ()).map_err(|error| StoreError::from(error).at(&path))?;
        let interrupted = writer.execute_batch(crate::records::INTERRUPT_ALL_SQL);
        interrupted.map_err(|error| StoreError::from(error).at(&path))?;
        Ok(SqliteStore {
            path: Some(path),
            writer: Some(Mutex::new(writer)),
            readers: Mutex::default(),
            names: NameCache::default(),
            _lock: Some(lock),
        })
    }

    /// Opens a file for reading, also while another process writes to it.
    ///
    /// # Errors
    /// `Missing` if it does not exist; otherwise as `open`, except `Busy`.
    pub(crate) fn open_read_only(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        open::check_readable(&path)?;
        let reader = open::open_reader(&path)?;
        let readers = Mutex::new(vec![reader]);
        let names = NameCache::default();
        Ok(SqliteStore { path: Some(path), writer: None, names, readers, _lock: None })
    }

    /// A store in memory, which ends with this value.
    ///
    /// # Errors
    /// If memory cannot be allocated.
    pub(crate) fn in_memory() -> Result<Self> {
        let writer = Some(Mutex::new(open::open_memory()?));
        let (readers, names) = (Mutex::default(), NameCache::default());
        Ok(SqliteStore { path: None, writer, names, readers, _lock: None })
    }

    /// Runs `work` in a transaction that is committed if it succeeds.
    fn write<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.write_with(Sync::Now, work)
    }

    /// Runs a transaction of a request that must be executed at most once.
    fn transact<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        idempotency::with_current_request(|attempt| {
            self.write(|tx| {
                idempotency::mark_executed(&mut sql::SqliteTransaction(tx), attempt)?;
                work(tx)
            })
        })
    }

    fn write_with<T>(&self, sync: Sync, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let Some(writer) = &self.writer else {
            return Err(StoreError::ReadOnly { path: self.path.clone().unwrap_or_default() });
        };
        let run = || {
            let mut connection = writer.lock().ignore_poison();
            if sync == Sync::Later {
                connection.pragma_update(None, "synchronous", "normal")?;
            }
            // Also after a panic: later commits must reach the disk.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                commit(&mut connection, work)
            }));
            if sync == Sync::Later {
                connection.pragma_update(None, "synchronous", "full")?;
            }
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        run().map_err(|error| self.explain(error))
    }

    /// Runs `work` on one snapshot of the store.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let run = || {
            let Some(path) = &self.path else {
                let writer = self.writer.as_ref();
                let connection = writer
                    .map(|writer| writer.lock().ignore_poison())
                    .ok_or_else(|| StoreError::ReadOnly { path: PathBuf::new() })?;
                return work(&connection);
            };
            let idle = self.readers.lock().ignore_poison().pop();
            let connection = match idle {
                Some(connection) => connection,
                None => open::open_reader(path)?,
            };
            let answer = {
                let transaction = connection.unchecked_transaction()?;
                work(&transaction)
            };
            self.readers.lock().ignore_poison().push(connection);
            answer
        };
        run().map_err(|error| self.explain(error))
    }

    fn explain(&self, error: StoreError) -> StoreError {
        match &self.path {
            Some(path) => error.at(path),
            None => error,
        }
    }
}

/// Adds to the change feed, with the time of the database.
fn record_change(
    tx: &Connection,
    environment: EnvironmentKey,
    kind: &str,
    subject: &str,
) -> Result<()> {
    let environment = Some(environment);
    sql::SqliteTransaction(tx).record_change(&crate::NewChange {
        environment,
        kind,
        subject,
        at: None,
    })
}

fn text_from(value: rusqlite::types::ValueRef<'_>) -> Result<&str> {
    value.as_str().map_err(|error| StoreError::Unreadable(error.to_string()))
}

/// Allocates `count` numbers that were never used, and returns the first.
fn allocate_numbers(tx: &Connection, counter: &str, count: usize) -> Result<i64> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let sql = "UPDATE counter SET next = next + ?2 WHERE name = ?1 RETURNING next - ?2";
    let mut statement = tx.prepare_cached(sql)?;
    Ok(statement.query_row(rusqlite::params![counter, count], |row| row.get(0))?)
}

/// Number for a new row of a table whose last number is known only from its key.
fn allocate_id(tx: &Connection, table: &'static str) -> Result<i64> {
    let mut statement = tx.prepare_cached(&format!(
        "INSERT INTO counter (name, next) \
         VALUES ('{table}', (SELECT coalesce(max(id), 0) + 2 FROM {table})) \
         ON CONFLICT (name) DO UPDATE SET next = next + 1 RETURNING next - 1"
    ))?;
    Ok(statement.query_row((), |row| row.get(0))?)
}

impl Backend for SqliteStore {
    fn acquire_lease(&self, environment: EnvironmentKey, request: &LeaseRequest) -> Result<Lease> {
        self.write(|tx| leases::acquire_lease(tx, environment, request))
    }

    fn renew_leases(&self, leases: &[Lease], expires: Timestamp) -> Result<RenewalOutcome> {
        self.write(|tx| leases::renew_leases(tx, leases, expires))
    }

    fn release_lease(&self, lease: &Lease) -> Result<()> {
        self.write_with(Sync::Later, |tx| leases::release_lease(tx, lease))
    }

    fn put_version(&self, target: PutTarget<'_>, version: &NewVersion<'_>) -> Result<PutOutcome> {
        self.transact(|tx| put::put_version(tx, target, version))
    }

    fn check(&self) -> Result<Vec<String>> {
        let lines = self.read(|tx| {
            let mut statement = tx.prepare("PRAGMA integrity_check")?;
            let lines = statement.query_map((), |row| row.get::<_, String>(0))?;
            Ok(lines.collect::<rusqlite::Result<Vec<String>>>()?)
        });
        match lines {
            Ok(lines) => Ok(lines.into_iter().filter(|line| line != "ok").collect()),
            // Damage that stops the check itself.
            Err(StoreError::Damaged { detail, .. }) => Ok(vec![detail]),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_later_commits_as_durable_as_before() {
        let store = SqliteStore::in_memory().unwrap();
        let synchronous = || {
            let connection = store.writer.as_ref().unwrap().lock().ignore_poison();
            connection.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0)).unwrap()
        };
        store.write_with(Sync::Later, |_| Ok(())).unwrap();
        let before = synchronous();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.write_with(Sync::Later, |_| -> Result<()> { panic!("in the middle") })
        }));
        assert!(panicked.is_err());
        assert_eq!((before, synchronous()), (2, 2));
    }
}
