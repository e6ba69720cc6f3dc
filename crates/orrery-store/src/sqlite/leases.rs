//! Leases: the right to act for an environment. The lock of the file proves that former holders have
//! ended, and a single writer needs no locks of rows.

use orrery_model::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::sql::SqliteTransaction;
use crate::encoding::unsigned;
use crate::records::lease_holder;
use crate::{EnvironmentKey, Lease, LeaseRequest, RenewalOutcome, Result, StoreError};

pub(super) fn acquire_lease(
    tx: &Connection,
    environment: EnvironmentKey,
    request: &LeaseRequest,
) -> Result<Lease> {
    let sql = "SELECT expires FROM lease WHERE environment = ?1 AND held";
    let held: Option<Option<i64>> =
        tx.query_row(sql, [environment.0], |row| row.get(0)).optional()?;
    if let Some(expires) = held
        && expires.is_none_or(|expires| expires > request.now.0)
        && let Some(holder) = lease_holder(&mut SqliteTransaction(tx), environment)?
    {
        return Err(StoreError::Leased { holder });
    }
    let holder = &request.holder;
    let epoch: i64 = tx.query_row(
        "INSERT INTO lease (environment, epoch, held, pid, host, command, since, expires) \
         VALUES (?1, 1, 1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (environment) DO UPDATE SET \
         epoch = lease.epoch + 1, held = 1, pid = excluded.pid, host = excluded.host, \
         command = excluded.command, since = excluded.since, expires = excluded.expires \
         RETURNING epoch",
        params![
            environment.0,
            holder.pid,
            holder.host,
            holder.command,
            holder.since.0,
            request.expires.map(|expires| expires.0),
        ],
        |row| row.get(0),
    )?;
    Ok(Lease { environment, epoch: unsigned(epoch)? })
}

/// Fails if the lease is not the current one.
pub(super) fn check_lease(tx: &Connection, lease: &Lease) -> Result<()> {
    let mut statement =
        tx.prepare_cached("SELECT epoch, held FROM lease WHERE environment = ?1")?;
    let found = statement
        .query_row([lease.environment.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (epoch, held): (i64, bool) = found.unwrap_or((0, false));
    let current = unsigned(epoch)?;
    if held && current == lease.epoch {
        return Ok(());
    }
    Err(StoreError::StaleEpoch { held: lease.epoch, current })
}

pub(super) fn renew_leases(
    tx: &Connection,
    leases: &[Lease],
    expires: Timestamp,
) -> Result<RenewalOutcome> {
    let sql = "UPDATE lease SET expires = ?3 WHERE environment = ?1 AND epoch = ?2 AND held";
    let mut update = tx.prepare_cached(sql)?;
    let mut renewal = RenewalOutcome::default();
    for lease in leases {
        let epoch = i64::try_from(lease.epoch).unwrap_or(i64::MAX);
        if update.execute(params![lease.environment.0, epoch, expires.0])? == 0 {
            renewal.lost.push(*lease);
        }
    }
    Ok(renewal)
}

pub(super) fn release_lease(tx: &Connection, lease: &Lease) -> Result<()> {
    check_lease(tx, lease)?;
    tx.execute("UPDATE lease SET held = 0 WHERE environment = ?1", [lease.environment.0])?;
    Ok(())
}
