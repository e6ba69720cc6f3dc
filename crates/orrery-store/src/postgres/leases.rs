//! Leases: who may act for an environment, and until when. Times are those of the database.

use std::collections::BTreeSet;

use super::PostgresStore;
use super::transaction::Tx;
use crate::codes::unsigned;
use crate::sql::RowExt as _;
use crate::{EnvironmentKey, Holder, Lease, LeaseRequest, Renewal, Result, StoreError};

/// How long a lease lasts, in microseconds, whose holder did not say: that it is gone, nobody here would ever know.
const LASTS_AT_MOST: i64 = 60_000_000;

/// How long the renewal of a lease waits for what is being written under it.
const RENEWAL_PATIENCE: &str = "500ms";

/// One statement, so that of two who come at once only one gets it. Times are those of the database: whose clock is wrong neither
/// steals nor keeps.
pub(super) fn acquire_lease(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    request: &LeaseRequest,
) -> Result<Lease> {
    let LeaseRequest { holder, now, expires } = request;
    let lasts = expires.map_or(LASTS_AT_MOST, |expires| expires.0.saturating_sub(now.0));
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
    // It may have been given back between the two statements: whoever asks again gets it.
    let holder = lease_holder(tx, environment)?.unwrap_or_else(|| holder.clone());
    Err(StoreError::Leased { holder })
}

/// Refuses a lease that is not the current one, and keeps it current until the transaction ends: who takes it over waits. A
/// transaction that does nothing for two thirds of what the lease lasts, and two seconds at least, is ended by the database, so that
/// a holder that is frozen in the middle of one keeps the environment no longer than its lease.
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

/// Changes a lease if it is the current one. One statement, because two that check first would wait for each other.
fn change_lease(tx: &mut Tx<'_>, lease: &Lease, change: &str) -> Result<()> {
    let epoch = i64::try_from(lease.epoch).unwrap_or(i64::MAX);
    let sql =
        format!("UPDATE lease SET {change} WHERE environment = $1 AND epoch = $2 AND held = 1");
    if tx.execute(&sql, &[&lease.environment.0, &epoch])? == 0 {
        check_lease(tx, lease)?;
    }
    Ok(())
}

/// The rows of leases that are the current ones.
const MINE: &str = "FROM lease \
     JOIN unnest($1::bigint[], $2::bigint[]) AS wanted (environment, epoch) \
     ON wanted.environment = lease.environment AND wanted.epoch = lease.epoch \
     WHERE lease.held = 1";

/// For as long again as they lasted from the beginning. Those that something is being written under are passed over: while one
/// statement waits for them, it would keep all others that it has renewed locked.
fn renew_idle(tx: &mut Tx<'_>, leases: &[Lease]) -> Result<BTreeSet<(i64, i64)>> {
    let sql = format!(
        "WITH mine AS (SELECT lease.environment {MINE} \
         ORDER BY lease.environment FOR NO KEY UPDATE OF lease SKIP LOCKED) \
         UPDATE lease SET expires = clock() + lease.lasts FROM mine \
         WHERE lease.environment = mine.environment RETURNING lease.environment, lease.epoch"
    );
    find(tx, &sql, leases)
}

/// Which of them nobody has taken or given back.
fn current(tx: &mut Tx<'_>, leases: &[Lease]) -> Result<BTreeSet<(i64, i64)>> {
    find(tx, &format!("SELECT lease.environment, lease.epoch {MINE}"), leases)
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
    pub(super) fn renew(&self, leases: &[Lease]) -> Result<Renewal> {
        let mut renewal = Renewal::default();
        let renewed = self.write_through(self.renewals(), |tx| renew_idle(tx, leases))?;
        let mut left: Vec<Lease> = leases.to_vec();
        left.retain(|lease| !renewed.contains(&numbers(lease)));
        if left.is_empty() {
            return Ok(renewal);
        }
        let current = self.read_once_through(self.renewals(), |tx| current(tx, &left))?;
        for lease in left {
            if !current.contains(&numbers(&lease)) {
                renewal.lost.push(lease);
                continue;
            }
            match self.write_through(self.renewals(), |tx| renew_patiently(tx, &lease)) {
                Ok(()) => {}
                Err(StoreError::StaleEpoch { .. }) => renewal.lost.push(lease),
                Err(StoreError::Contended { .. }) => renewal.busy.push(lease),
                Err(error) => return Err(error),
            }
        }
        Ok(renewal)
    }
}

/// Waits a little for who writes under it: the end of a write is the moment at which it can be renewed.
fn renew_patiently(tx: &mut Tx<'_>, lease: &Lease) -> Result<()> {
    tx.execute("SELECT set_config('lock_timeout', $1, true)", &[&RENEWAL_PATIENCE])?;
    change_lease(tx, lease, "expires = clock() + lasts")
}

pub(super) fn release_lease(tx: &mut Tx<'_>, lease: &Lease) -> Result<()> {
    change_lease(tx, lease, "held = 0")
}

pub(super) fn lease_holder(tx: &mut Tx<'_>, environment: EnvironmentKey) -> Result<Option<Holder>> {
    let sql = "SELECT pid, host, command, since FROM lease WHERE environment = $1 AND held = 1";
    let Some(row) = tx.first(sql, &[&environment.0])? else { return Ok(None) };
    Ok(Some(Holder {
        pid: unsigned(row.int(0)?)?,
        host: row.string(1)?,
        command: row.string(2)?,
        since: row.time(3)?,
    }))
}
