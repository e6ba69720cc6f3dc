//! What handlers tell while they run. It is kept only if their engine still has the environment: a process that lost it must not
//! write over what another one knows by now.

use orrery_model::Timestamp;

use crate::records::{NewDiscovered, NewParameter, Records, discovered, parameters};
use crate::sql::{RowExt as _, Sql, SqlExt as _};
use crate::{Lease, ParameterEffect, Result, StoreError, values};

/// Ends the transaction if the lease is not the current one. Whoever wants to take it over waits until the transaction is over.
fn keep_hold(sql: &mut dyn Sql, lease: &Lease) -> Result<()> {
    let epoch = i64::try_from(lease.epoch).unwrap_or(i64::MAX);
    let values = values![lease.environment.0, epoch];
    // To write the row is the one way to lock it that both databases know.
    let hold = "UPDATE lease SET held = 1 WHERE environment = ?1 AND epoch = ?2 AND held = 1";
    if sql.run(hold, values)? > 0 {
        return Ok(());
    }
    let select = "SELECT epoch FROM lease WHERE environment = ?1";
    let current = sql.first(select, values![lease.environment.0], |row| row.int(0))?;
    let current = u64::try_from(current.unwrap_or(0)).unwrap_or(0);
    Err(StoreError::StaleEpoch { held: lease.epoch, current })
}

impl Records<'_> {
    /// As `put_parameter`, for a handler.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one; `NoResource` if there is no such resource; those of `then`.
    pub fn put_parameter_of_handler(
        &self,
        lease: &Lease,
        new: &NewParameter<'_>,
        now: Timestamp,
        then: &dyn Fn(&mut dyn Sql, ParameterEffect) -> Result<()>,
    ) -> Result<ParameterEffect> {
        self.change(|sql| {
            keep_hold(sql, lease)?;
            parameters::put(sql, lease.environment, new, None, now, then)
        })
    }

    /// As `put_discovered`, for a handler.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn put_discovered_of_handler(
        &self,
        lease: &Lease,
        found: &[NewDiscovered<'_>],
        now: Timestamp,
    ) -> Result<()> {
        self.change(|sql| {
            keep_hold(sql, lease)?;
            discovered::put(sql, lease.environment, found, now)
        })
    }
}
