//! The store in a PostgreSQL database, which several processes may use at the same time.
//!
//! What SQLite's single writer gives for free is explicit here: who changes the versions of an environment locks its row, what an
//! engine writes locks its lease, and records are tried again if somebody was faster. `docs/decisions/0007-postgresql.md` has
//! the reasons.
//!
//! | module | what |
//! |---|---|
//! | `pool`, `connection` | connections, statements, errors |
//! | `transaction` | transactions, tried again where that helps; the change feed's notes |
//! | `migrate` | the schema |
//! | `compare`, `put`, `read`, `prune` | versions |
//! | `leases` | who may act for an environment |
//! | `engine` | states, results |
//! | `query` | lists, counts, logs |
//! | `environments`, `parameters` | the rest |
//! | `check` | whether all fits together |
//! | `sql` | records, in the shared dialect |
//!
//! The client blocks, and must not be used on a thread that drives an asynchronous runtime: a server calls it from threads that
//! may block.

mod check;
mod compare;
mod connection;
mod copy;
mod engine;
mod environments;
mod leases;
mod migrate;
mod parameters;
mod pool;
mod prune;
mod put;
mod query;
mod read;
mod sql;
mod transaction;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use orrery_model::{Timestamp, VersionNumber};
use rustc_hash::FxHashSet;

pub(crate) use self::connection::is_cancelled;
use self::pool::{Pool, Purpose};
use self::transaction::Tx;
use crate::acting;
use crate::plan::Given;
use crate::{
    Action, ActionKey, Agent, Connections, ContentHash, Environment, EnvironmentKey, Holder, Lease,
    LeaseRequest, NewRequest, NewVersion, Parameter, ParameterEffect, ParameterSource, PutVersion,
    Recording, Renewal, RequestRecord, ResourceDifference, ResourceFilter, ResourcePage,
    ResourceRow, ResourceSummary, Result, Started, StateRecord, StateRow, Store, Unknown,
    VersionInfo,
};

/// Kinds of locks by name, each with names of its own. 1 belongs to `take_numbers`, in the schema.
const LOCK_OF_CLAIMS: i32 = 2;
const LOCK_OF_SCHEMA: i32 = 3;

/// Connections that a store has at most, unless it is told otherwise.
const CONNECTIONS: usize = 10;

/// Connections for renewals of leases alone: one, and another one while that does not answer.
const RENEWAL_CONNECTIONS: usize = 2;

/// So many new rows change what the planner should know of a table.
const LARGE: u64 = 10_000;

/// A store in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    pool: Arc<Pool>,
    /// For renewals of leases, which whatever else is being done must not hold up.
    renewals: Pool,
    growth: Mutex<Growth>,
    /// Statements after which a look at the database goes on with others.
    followed: Mutex<FxHashSet<Box<str>>>,
}

/// Rows that this process wrote.
#[derive(Debug, Default)]
struct Growth {
    /// Those that the planner was told of.
    told: u64,
    untold: u64,
}

impl PostgresStore {
    /// Opens a database, named as `postgres://user:password@host:port/name`, and brings its schema up to date. A directory with
    /// the server's socket can stand for the host, with each `/` written as `%2F`.
    ///
    /// With `sslmode=require`, connections are encrypted, and the server's certificate has to be signed by an authority that
    /// this machine trusts, for the name of the host; with `prefer`, so they are if the server can; with `disable`, never.
    /// Without it, they are encrypted if the server can and is another machine.
    ///
    /// # Errors
    /// `BadUrl`; `Unreachable` or `Refused`, with the place; `NewerDatabase`, `ForeignDatabase` or `UnfitDatabase`, in which
    /// case the database stays as it is.
    pub fn open(url: &str, holder: &Holder) -> Result<Self> {
        Self::open_with(url, holder, CONNECTIONS)
    }

    /// As `open`, with at most so many connections. They are made when they are needed.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_with(url: &str, holder: &Holder, connections: usize) -> Result<Self> {
        let pool = Pool::new(url, holder, connections, Purpose::Work)?;
        let renewals = Pool::new(url, holder, RENEWAL_CONNECTIONS, Purpose::Renewals)?;
        pool.take(&mut migrate::migrate)?;
        Ok(PostgresStore {
            pool: Arc::new(pool),
            renewals,
            growth: Mutex::default(),
            followed: Mutex::default(),
        })
    }

    /// Which database it is, for people: without the password.
    pub fn place(&self) -> &str {
        self.pool.place()
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn renewals(&self) -> &Pool {
        &self.renewals
    }

    /// The planner gets to know tables that have doubled soon, and not only when the database gets round to it. Whoever made them
    /// grow does not wait, and nobody minds if it does not work.
    fn tell_planner(&self, written: u64) {
        let due = {
            let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
            growth.untold += written;
            let due = growth.untold >= LARGE.max(growth.told);
            if due {
                growth.told += std::mem::take(&mut growth.untold);
            }
            due
        };
        if due {
            let pool = Arc::clone(&self.pool);
            let analyze = move || {
                let _ = pool.take(&mut |connection| {
                    connection.batch("ANALYZE resource, revision, ended, state")
                });
            };
            let _ = std::thread::Builder::new().name("analyze".to_owned()).spawn(analyze);
        }
    }

    fn followed(&self) -> &Mutex<FxHashSet<Box<str>>> {
        &self.followed
    }
}

impl PostgresStore {
    /// Writes what somebody asked for, and is not to happen twice.
    fn act<T>(&self, mut work: impl FnMut(&mut Tx<'_>) -> Result<T>) -> Result<T> {
        acting::transact(|attempt| {
            self.write(|tx| {
                acting::mark(tx, attempt)?;
                work(tx)
            })
        })
    }
}

impl Store for PostgresStore {
    crate::both::methods_of_both_stores!();

    fn connections(&self) -> Option<Connections> {
        Some(self.pool.connections())
    }

    fn acquire_lease(&self, environment: EnvironmentKey, request: &LeaseRequest) -> Result<Lease> {
        self.write(|tx| leases::acquire_lease(tx, environment, request))
    }

    /// For as long again as they lasted: the clock that counts is that of the database.
    fn renew_leases(&self, leases: &[Lease], _: Timestamp) -> Result<Renewal> {
        self.renew(leases)
    }

    fn release_lease(&self, lease: &Lease) -> Result<()> {
        self.write(|tx| leases::release_lease(tx, lease))
    }

    fn lease_holder(&self, environment: EnvironmentKey) -> Result<Option<Holder>> {
        self.read_once(|tx| leases::lease_holder(tx, environment))
    }

    fn put_version(
        &self,
        environment: EnvironmentKey,
        version: &NewVersion<'_>,
    ) -> Result<PutVersion> {
        let given = Given::new(version.resources)?;
        let files = self.read_once(|tx| put::intern_files(tx, version.resources))?;
        let stored = self.act(|tx| put::put_version(tx, environment, version, &given, &files))?;
        self.tell_planner(stored.added + stored.changed);
        Ok(stored)
    }

    fn check(&self) -> Result<Vec<String>> {
        self.read(check::check)
    }
}
