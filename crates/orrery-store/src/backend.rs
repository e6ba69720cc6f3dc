//! Operations that each database implements itself.
//!
//! Everything else is written once, in `crate::records`, over the dialect of `crate::sql`. An
//! operation is here for a reason:
//!
//! - Storing a version is the hottest path. PostgreSQL streams a million rows with `COPY` and
//!   compares pages; SQLite inserts with prepared statements beside a cursor over the table.
//!   `examples/measure.rs` has the times.
//! - Leases follow the clock of a shared database and its row locks; in a file, the lock of the
//!   file decides.

use orrery_model::Timestamp;

use crate::cluster_types::ClusterWrite;
use crate::sql::Database;
use crate::{
    EnvironmentKey, Lease, LeaseRequest, NewVersion, PoolStatus, PutOutcome, RenewalOutcome, Result,
};

/// Environment of a new version.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PutTarget<'a> {
    Environment(EnvironmentKey),
    /// That of a cluster, which changes in the same transaction.
    Cluster(&'a ClusterWrite<'a>),
}

/// A database. Callers use [`crate::Store`], which groups operations by noun.
///
/// Every method that writes is one transaction: when it returns, the change is on disk; when it
/// fails, nothing is changed. Methods block, and may be called from any thread.
pub(crate) trait Backend: Database + Send + Sync {
    /// Connections to a database server; `None` for a store without a server.
    fn connections(&self) -> Option<PoolStatus> {
        None
    }

    /// Name of the database for people, without the password; `None` for a file.
    fn database_name(&self) -> Option<&str> {
        None
    }

    /// Acquires the lease, with a new epoch, unless another process holds it.
    fn acquire_lease(&self, environment: EnvironmentKey, request: &LeaseRequest) -> Result<Lease>;
    /// Renews leases that expire, all in one step; returns those that are not renewed.
    fn renew_leases(&self, leases: &[Lease], expires: Timestamp) -> Result<RenewalOutcome>;
    /// Releases the lease. Later writes under it are refused. A power failure right afterwards may
    /// undo the release, but then the holder has ended, too.
    fn release_lease(&self, lease: &Lease) -> Result<()>;

    /// Stores a version. Resources that equal those of the newest version are shared with it.
    fn put_version(&self, target: PutTarget<'_>, version: &NewVersion<'_>) -> Result<PutOutcome>;

    /// Checks the consistency of everything stored. Returns the problems found. Slow.
    fn check(&self) -> Result<Vec<String>>;
}
