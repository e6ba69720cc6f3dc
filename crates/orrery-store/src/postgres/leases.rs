//! Leases: the right to act for an environment until an expiry time. Times are those of the
//! database.

use std::collections::BTreeSet;

use super::PostgresStore;
use super::transaction::Tx;
use crate::encoding::unsigned;
use crate::records::lease_holder;
use crate::sql::RowExt as _;
use crate::{EnvironmentKey, Lease, LeaseRequest, RenewalOutcome, Result, StoreError};

/// Duration, in microseconds, of a lease without a requested one: the end of its holder cannot be
/// detected here.
const DEFAULT_DURATION: i64 = 60_000_000;

/// Time for which a renewal waits for a transaction under the lease.
const RENEWAL_LOCK_TIMEOUT: &str = "500ms";

/// Acquires a lease in one statement, so that only one of two concurrent processes gets it. Times
/// are those of the database, so a process with a wrong clock neither steals nor keeps a lease.
pub(super) fn acquire_lease(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    request: &LeaseRequest,
) -> Result<Lease> {
    let LeaseRequest { holder, now, expires } = request;
    let lasts = expires.map_or(DEFAULT_DURATION, |expires| expires.0.saturating_sub(now.0));
    let acquired = tx.first(
        "INSERT INTO lease (environment, epoch, held, pid, host, command, since, expires, lasts) \
         VALUES ($1, 1, 1, $2, $3, $4, $5, clock() + $6::bigint, $6) \
         ON CONFLICT (environment) DO UPDATE SET \
         epoch = lease.epoch + 1, held = 1, pid = excluded.pid, host = excluded.host, \
         command = excluded.command, since = excluded.since, expires = excluded.expires, \
         lasts = excluded.lasts \
         WHERE lease.held = 0 OR lease.expires <= clock() RETURNING epoch",
        &[
            &environment.0,
            &i64::from(holder.pid),
            &holder.host,
            &holder.command,
            &holder.since.0,
            &lasts,
        ],
    )?;
    if let Some(row) = acquired {
        return Ok(Lease { environment, epoch: unsigned(row.int(0)?)? });
    }
    // It may have been released between the two statements: a retry acquires it.
    let holder = lease_holder(tx, environment)?.unwrap_or_else(|| holder.clone());
    Err(StoreError::Leased { holder })
}

/// Fails if the lease is not the current one, and keeps it current until the transaction ends:
/// another process waits to take it over. The database ends a transaction that is idle for two
/// thirds of the lease's duration, and at least two seconds, so that a frozen holder keeps the
/// environment no longer than its lease.
pub(super) fn check_lease(tx: &mut Tx<'_>, lease: &Lease) -> Result<()> {
    let sql = "SELECT epoch, held, \
         set_config('idle_in_transaction_session_timeout', greatest(lasts / 1500, 2000)::text, true) \
         FROM lease WHERE environment = $1 FOR SHARE";
    let row = tx.first(sql, &[&lease.environment.0])?;
    let (epoch, held) = match row {
        Some(row) => (row.int(0)?, row.flag(1)?),
        None => (0, false),
    };
    let current = unsigned(epoch)?;
    if held && current == lease.epoch {
        return Ok(());
    }
    Err(StoreError::StaleEpoch { held: lease.epoch, current })
}

/// Changes a lease if it is the current one. One statement, because two that check first would
/// deadlock.
fn change_lease(tx: &mut Tx<'_>, lease: &Lease, change: &str) -> Result<()> {
    let epoch = i64::try_from(lease.epoch).unwrap_or(i64::MAX);
    let sql =
        format!("UPDATE lease SET {change} WHERE environment = $1 AND epoch = $2 AND held = 1");
    if tx.execute(&sql, &[&lease.environment.0, &epoch])? == 0 {
        check_lease(tx, lease)?;
    }
    Ok(())
}

/// Rows of leases that are the current ones.
const CURRENT_LEASES: &str = "FROM lease \
     JOIN unnest($1::bigint[], $2::bigint[]) AS wanted (environment, epoch) \
     ON wanted.environment = lease.environment AND wanted.epoch = lease.epoch \
     WHERE lease.held = 1";

/// Renews leases for their original duration. Skips those with an active transaction: waiting for
/// one would keep the rows of all renewed ones locked.
fn renew_idle(tx: &mut Tx<'_>, leases: &[Lease]) -> Result<BTreeSet<(i64, i64)>> {
    let sql = format!(
        "WITH mine AS (SELECT lease.environment {CURRENT_LEASES} \
         ORDER BY lease.environment FOR NO KEY UPDATE OF lease SKIP LOCKED) \
         UPDATE lease SET expires = clock() + lease.lasts FROM mine \
         WHERE lease.environment = mine.environment RETURNING lease.environment, lease.epoch"
    );
    find(tx, &sql, leases)
}

/// Leases that were neither taken over nor released.
fn current(tx: &mut Tx<'_>, leases: &[Lease]) -> Result<BTreeSet<(i64, i64)>> {
    find(tx, &format!("SELECT lease.environment, lease.epoch {CURRENT_LEASES}"), leases)
}

fn find(tx: &mut Tx<'_>, sql: &str, leases: &[Lease]) -> Result<BTreeSet<(i64, i64)>> {
    let (environments, epochs): (Vec<i64>, Vec<i64>) = leases.iter().map(numbers).unzip();
    let rows = tx.query(sql, &[&environments, &epochs])?;
    rows.iter().map(|row| Ok((row.int(0)?, row.int(1)?))).collect()
}

fn numbers(lease: &Lease) -> (i64, i64) {
    (lease.environment.0, i64::try_from(lease.epoch).unwrap_or(i64::MAX))
}

impl PostgresStore {
    pub(super) fn renew(&self, leases: &[Lease]) -> Result<RenewalOutcome> {
        let mut renewal = RenewalOutcome::default();
        let renewed = self.write_on(self.renewals(), |tx| renew_idle(tx, leases))?;
        let mut remaining: Vec<Lease> = leases.to_vec();
        remaining.retain(|lease| !renewed.contains(&numbers(lease)));
        if remaining.is_empty() {
            return Ok(renewal);
        }
        let current = self.read_once_on(self.renewals(), |tx| current(tx, &remaining))?;
        for lease in remaining {
            if !current.contains(&numbers(&lease)) {
                renewal.lost.push(lease);
                continue;
            }
            match self.write_on(self.renewals(), |tx| renew_with_lock_wait(tx, &lease)) {
                Ok(()) => {}
                Err(StoreError::StaleEpoch { .. }) => renewal.lost.push(lease),
                Err(StoreError::Contended { .. }) => renewal.busy.push(lease),
                Err(error) => return Err(error),
            }
        }
        Ok(renewal)
    }
}

/// Renews a lease, waiting briefly for an active transaction: when it ends, the lease can be
/// renewed.
fn renew_with_lock_wait(tx: &mut Tx<'_>, lease: &Lease) -> Result<()> {
    tx.execute("SELECT set_config('lock_timeout', $1, true)", &[&RENEWAL_LOCK_TIMEOUT])?;
    change_lease(tx, lease, "expires = clock() + lasts")
}

pub(super) fn release_lease(tx: &mut Tx<'_>, lease: &Lease) -> Result<()> {
    change_lease(tx, lease, "held = 0")
}
