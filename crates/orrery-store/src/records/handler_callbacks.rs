//! Records that handlers write while they run. They are stored only if the engine still holds the
//! lease: a process that lost it must not overwrite newer values of another one.

use orrery_model::Timestamp;

use crate::records::{NewDiscovered, NewParameter, Records, discovered, parameters};
use crate::sql::Sql;
use crate::{Lease, ParameterEffect, Result};

impl Records<'_> {
    /// As `put_parameter`, for a handler.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one; `NoResource` if there is no such resource;
    /// those of `then`.
    pub fn put_handler_parameter(
        &self,
        lease: &Lease,
        new: &NewParameter<'_>,
        now: Timestamp,
        then: &dyn Fn(&mut dyn Sql, ParameterEffect) -> Result<()>,
    ) -> Result<ParameterEffect> {
        self.write(|sql| {
            sql.check_lease(lease)?;
            parameters::put(sql, lease.environment, new, None, now, then)
        })
    }

    /// As `put_discovered`, for a handler.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn put_handler_discovered(
        &self,
        lease: &Lease,
        found: &[NewDiscovered<'_>],
        now: Timestamp,
    ) -> Result<()> {
        self.write(|sql| {
            sql.check_lease(lease)?;
            discovered::put(sql, lease.environment, found, now)
        })
    }
}
