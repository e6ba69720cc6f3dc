//! The store in a PostgreSQL database, which several processes may use at the same time.
//!
//! SQLite's single writer is replaced by explicit locks: a writer of an environment's versions
//! locks its row, a write of an engine locks its lease, and transactions on records are retried
//! after a conflict. `docs/decisions/0007-postgresql.md` has the reasons.
//!
//! | module | content |
//! |---|---|
//! | `pool`, `connection` | connections, statements, errors |
//! | `async_connection` | connections for reads that do not block |
//! | `transaction` | transactions with retries; entries of the change feed |
//! | `migrate` | the schema |
//! | `sql` | the shared dialect: statements of `crate::records` |
//! | `compare`, `copy`, `put`, `revisions` | storing a version |
//! | `leases` | leases of environments |
//! | `check` | consistency check |
//!
//! Most of the client blocks, and must not be used on a thread that drives an asynchronous runtime:
//! a server calls it from threads that may block. Frequent reads of a few rows also have an
//! asynchronous form, since waking two threads takes longer than such a read.

mod async_connection;
mod check;
mod compare;
mod connection;
mod copy;
mod leases;
mod migrate;
mod pool;
mod put;
mod revisions;
mod sql;
#[cfg(test)]
mod tests;
mod transaction;

use std::sync::{Arc, Mutex};

use orrery_base::lock::IgnorePoison;
use orrery_base::thread::spawn_named;
use orrery_model::Timestamp;
use rustc_hash::FxHashSet;

use self::pool::{Pool, PoolPurpose};
use self::transaction::Tx;
use crate::backend::{Backend, PutTarget};
use crate::idempotency;
use crate::names::NameCache;
use crate::version_delta::SortedInput;
use crate::{
    EnvironmentKey, Holder, Lease, LeaseRequest, NewVersion, PoolStatus, PutOutcome,
    RenewalOutcome, Result,
};

/// Classes of advisory locks, each with its own names. 1 belongs to the function `take_numbers` of
/// the schema.
const NAME_LOCK_CLASS: i32 = 2;
const SCHEMA_LOCK_CLASS: i32 = 3;

/// Default maximum number of connections of a store.
const CONNECTIONS: usize = 10;

/// Connections for renewals of leases alone: one, and a second one while the first does not answer.
const RENEWAL_CONNECTIONS: usize = 2;

/// Number of new rows after which the planner's statistics of a table are outdated.
const ANALYZE_THRESHOLD: u64 = 10_000;

/// A store in a PostgreSQL database.
#[derive(Debug)]
pub(crate) struct PostgresStore {
    pool: Arc<Pool>,
    /// Connections for renewals of leases, which other work must not delay.
    renewals: Pool,
    growth: Mutex<Growth>,
    /// First statements of reads that turned out to have several.
    multi_statement_reads: Mutex<FxHashSet<Box<str>>>,
    names: NameCache,
}

/// Rows that this process wrote.
#[derive(Debug, Default)]
struct Growth {
    /// Rows covered by the last ANALYZE.
    analyzed: u64,
    unanalyzed: u64,
}

impl PostgresStore {
    /// Opens a database, named as `postgres://user:password@host:port/name`, and migrates its
    /// schema. A directory with the server's socket can stand for the host, with each `/` written
    /// as `%2F`.
    ///
    /// With `sslmode=require`, connections are encrypted, and the server's certificate must be
    /// signed by an authority that this machine trusts, for the name of the host. With `prefer`,
    /// the same holds if the server supports encryption; with `disable`, connections are never
    /// encrypted. By default, connections are encrypted if the server supports it and is another
    /// machine.
    ///
    /// # Errors
    /// `BadUrl`; `Unreachable` or `Refused`, with the database; `NewerDatabase`, `ForeignDatabase`
    /// or `UnfitDatabase`, in which case the database stays unchanged.
    pub(crate) fn open(url: &str, holder: &Holder) -> Result<Self> {
        Self::open_with_pool_size(url, holder, CONNECTIONS)
    }

    /// As `open`, with at most this number of connections. They are opened on demand.
    ///
    /// # Errors
    /// As `open`.
    pub(crate) fn open_with_pool_size(
        url: &str,
        holder: &Holder,
        connections: usize,
    ) -> Result<Self> {
        let pool = Pool::new(url, holder, connections, PoolPurpose::Work)?;
        let renewals = Pool::new(url, holder, RENEWAL_CONNECTIONS, PoolPurpose::Renewals)?;
        pool.acquire(&mut migrate::migrate)?;
        Ok(PostgresStore {
            pool: Arc::new(pool),
            renewals,
            growth: Mutex::default(),
            multi_statement_reads: Mutex::default(),
            names: NameCache::default(),
        })
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn renewals(&self) -> &Pool {
        &self.renewals
    }

    /// Updates the planner's statistics of tables that have doubled, without waiting for
    /// autovacuum. Runs in the background; errors are ignored.
    fn analyze_if_grown(&self, written: u64) {
        let due = {
            let mut growth = self.growth.lock().ignore_poison();
            growth.unanalyzed += written;
            let due = growth.unanalyzed >= ANALYZE_THRESHOLD.max(growth.analyzed);
            if due {
                growth.analyzed += std::mem::take(&mut growth.unanalyzed);
            }
            due
        };
        if due {
            let pool = Arc::clone(&self.pool);
            let analyze = move || {
                let _ = pool.acquire(&mut |connection| {
                    connection.batch("ANALYZE resource, revision, ended, state")
                });
            };
            let _ = spawn_named("analyze", analyze);
        }
    }

    fn multi_statement_reads(&self) -> &Mutex<FxHashSet<Box<str>>> {
        &self.multi_statement_reads
    }
}

impl PostgresStore {
    /// Runs a transaction of a request that must be executed at most once.
    fn transact<T>(&self, mut work: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        idempotency::with_current_request(|attempt| {
            self.write(|tx| {
                idempotency::mark_executed(tx, attempt)?;
                work(tx)
            })
        })
    }
}

impl Backend for PostgresStore {
    fn database_name(&self) -> Option<&str> {
        Some(self.pool.database())
    }

    fn connections(&self) -> Option<PoolStatus> {
        Some(self.pool.status())
    }

    fn acquire_lease(&self, environment: EnvironmentKey, request: &LeaseRequest) -> Result<Lease> {
        self.write(|tx| leases::acquire_lease(tx, environment, request))
    }

    /// Renews leases for their original duration, by the clock of the database.
    fn renew_leases(&self, leases: &[Lease], _: Timestamp) -> Result<RenewalOutcome> {
        self.renew(leases)
    }

    fn release_lease(&self, lease: &Lease) -> Result<()> {
        self.write(|tx| leases::release_lease(tx, lease))
    }

    fn put_version(&self, target: PutTarget<'_>, version: &NewVersion<'_>) -> Result<PutOutcome> {
        let given = SortedInput::new(version.resources)?;
        let files = self.read_once(|tx| put::intern_files(tx, version.resources))?;
        let pool = self.pool();
        let stored =
            self.transact(|tx| put::put_version(tx, pool, target, version, &given, &files))?;
        self.analyze_if_grown(stored.added + stored.changed);
        Ok(stored)
    }

    fn check(&self) -> Result<Vec<String>> {
        self.read(check::check)
    }
}
