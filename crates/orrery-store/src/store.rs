//! The handle of callers: one group of methods per noun.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use orrery_model::ResourceId;

use crate::backend::Backend;
use crate::postgres::PostgresStore;
use crate::records::{self, Access, for_each_noun};
use crate::sqlite::SqliteStore;
use crate::{EnvironmentKey, Holder, Lease, PoolStatus, ResourceKey, Result, StoreError};

/// All persistent state, in one database. Clones share it.
///
/// Every method of a noun that writes is one transaction: when it returns, the change is on disk;
/// when it fails, nothing is changed. Methods block, apart from those named `…_async`, and may be
/// called from any thread. A visitor must not call the store: the database may have only one
/// connection.
#[derive(Clone)]
pub struct Store {
    backend: Arc<dyn Backend>,
    lease: Option<Lease>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Store {
    fn new(backend: impl Backend + 'static) -> Self {
        Store { backend: Arc::new(backend), lease: None }
    }

    /// Opens an SQLite file for writing, and creates it if it does not exist. Only one process at a
    /// time can.
    ///
    /// # Errors
    /// `Busy` if another process has it; `Newer`, `Foreign` or `Damaged` if it is not usable, in
    /// which case the file stays unchanged.
    pub fn open(path: impl Into<PathBuf>, holder: &Holder) -> Result<Self> {
        SqliteStore::open(path, holder).map(Store::new)
    }

    /// Opens an SQLite file for reading, also while another process writes to it.
    ///
    /// # Errors
    /// `Missing` if it does not exist; otherwise as `open`, except `Busy`.
    pub fn open_read_only(path: impl Into<PathBuf>) -> Result<Self> {
        SqliteStore::open_read_only(path).map(Store::new)
    }

    /// A store in memory, which ends with its last clone.
    ///
    /// # Errors
    /// If memory cannot be allocated.
    pub fn in_memory() -> Result<Self> {
        SqliteStore::in_memory().map(Store::new)
    }

    /// Opens a PostgreSQL database, named as `postgres://user:password@host:port/name`, and migrates
    /// its schema. A directory with the server's socket can stand for the host, with each `/`
    /// written as `%2F`.
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
    pub fn connect(url: &str, holder: &Holder) -> Result<Self> {
        PostgresStore::open(url, holder).map(Store::new)
    }

    /// As `connect`, with at most this number of connections. They are opened on demand.
    ///
    /// # Errors
    /// As `connect`.
    pub fn connect_with_pool_size(url: &str, holder: &Holder, connections: usize) -> Result<Self> {
        PostgresStore::open_with_pool_size(url, holder, connections).map(Store::new)
    }

    /// The same store under a lease: every change by shared statements fails with `StaleEpoch` if
    /// the lease is not the current one.
    #[must_use]
    pub fn under_lease(&self, lease: &Lease) -> Self {
        Store { backend: Arc::clone(&self.backend), lease: Some(*lease) }
    }

    pub(crate) fn access(&self) -> Access<'_> {
        Access { backend: &*self.backend, lease: self.lease }
    }

    /// Connections to a database server; `None` for a store without a server.
    pub fn connections(&self) -> Option<PoolStatus> {
        self.backend.connections()
    }

    /// Name of the database for people, without the password; `None` for a file.
    pub fn database_name(&self) -> Option<&str> {
        self.backend.database_name()
    }

    /// Checks the consistency of everything stored. Returns the problems found. Slow.
    ///
    /// # Errors
    /// Database errors.
    pub fn check(&self) -> Result<Vec<String>> {
        self.backend.check()
    }
}

/// Declares the accessors of the groups of methods.
macro_rules! accessors {
    ($($(#[$doc:meta])* $accessor:ident: $noun:ident;)+) => {
        impl Store {
            $(
                $(#[$doc])*
                pub fn $accessor(&self) -> records::$noun<'_> {
                    records::$noun(self.access())
                }
            )+
        }
    };
}

for_each_noun!(accessors);

/// Keys of resources by their ids, for callers that did not put or read the version themselves.
///
/// # Errors
/// `NoResource` if one does not exist.
pub fn resource_keys<'a>(
    store: &Store,
    environment: EnvironmentKey,
    ids: impl IntoIterator<Item = &'a ResourceId>,
) -> Result<BTreeMap<ResourceId, ResourceKey>> {
    let mut keys = BTreeMap::new();
    for id in ids {
        let found = store.resources().find(environment, id.as_str())?;
        let found = found.ok_or_else(|| StoreError::NoResource(id.to_string()))?;
        keys.insert(id.clone(), found.key);
    }
    Ok(keys)
}
