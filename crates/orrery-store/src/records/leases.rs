//! Leases: the exclusive right of one process to act for an environment.

use orrery_model::Timestamp;

use crate::encoding::unsigned;
use crate::records::{Leases, Transactions as _};
use crate::sql::{RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Holder, Lease, LeaseRequest, RenewalOutcome, Result, values};

pub(crate) fn lease_holder(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
) -> Result<Option<Holder>> {
    let select = "SELECT pid, host, command, since FROM lease WHERE environment = ?1 AND held = 1";
    sql.first(select, values![environment.0], |row| {
        Ok(Holder {
            pid: unsigned(row.int(0)?)?,
            host: row.string(1)?,
            command: row.string(2)?,
            since: row.time(3)?,
        })
    })
}

impl Leases<'_> {
    /// Acquires the lease, with a new epoch.
    ///
    /// # Errors
    /// `Leased` if another process holds it.
    pub fn acquire(&self, environment: EnvironmentKey, request: &LeaseRequest) -> Result<Lease> {
        self.backend().acquire_lease(environment, request)
    }

    /// Renews leases that expire, all in one step; returns those that are not renewed.
    ///
    /// # Errors
    /// Database errors.
    pub fn renew(&self, leases: &[Lease], expires: Timestamp) -> Result<RenewalOutcome> {
        self.backend().renew_leases(leases, expires)
    }

    /// Releases the lease. Later writes under it are refused. A power failure right afterwards may
    /// undo the release, but then the holder has ended, too.
    ///
    /// # Errors
    /// Database errors.
    pub fn release(&self, lease: &Lease) -> Result<()> {
        self.backend().release_lease(lease)
    }

    /// Current holder of the lease.
    ///
    /// # Errors
    /// Database errors.
    pub fn holder(&self, environment: EnvironmentKey) -> Result<Option<Holder>> {
        self.query(|sql| lease_holder(sql, environment))
    }
}
