//! Networks from which accounts have logged in.

use std::time::Duration;

use orrery_model::{AccountId, Timestamp};

use crate::records::accounts::{Identity, identity};
use crate::records::{Accounts, Transactions as _};
use crate::sql::{RowExt as _, Sql, SqlExt as _};
use crate::{Result, values};

/// Networks per account; beyond it, the least recently used are deleted.
const NETWORKS_MAX: i64 = 64;
/// Time for which a network stays familiar after the last login from it.
const RETENTION: Duration = Duration::from_secs(90 * 24 * 3600);

/// Records a login of an account from a network. Only entries of the same account are displaced.
pub(super) fn record_network(
    sql: &mut dyn Sql,
    account: AccountId,
    network: &str,
    now: Timestamp,
) -> Result<()> {
    let upsert = "INSERT INTO familiar (account, network, seen) VALUES (?1, ?2, ?3) \
         ON CONFLICT (account, network) DO UPDATE SET seen = excluded.seen";
    sql.run(upsert, values![account, network, now])?;
    let delete = "DELETE FROM familiar WHERE account = ?1 AND (seen < ?2 OR network NOT IN \
         (SELECT network FROM familiar WHERE account = ?1 ORDER BY seen DESC, network LIMIT ?3))";
    sql.run(delete, values![account, now - RETENTION, NETWORKS_MAX]).map(drop)
}

/// Deletes the networks of an account.
pub(super) fn delete_networks(sql: &mut dyn Sql, account: AccountId) -> Result<()> {
    sql.run("DELETE FROM familiar WHERE account = ?1", values![account]).map(drop)
}

impl Accounts<'_> {
    /// The account of that name with its roles, and true if it has logged in from the network
    /// before.
    ///
    /// # Errors
    /// Database errors.
    pub fn identity_at(
        &self,
        name: &str,
        network: &str,
        now: Timestamp,
    ) -> Result<(Option<Identity>, bool)> {
        self.query(|sql| {
            let select = "SELECT id FROM account WHERE name = ?1";
            let Some(id) = sql.first(select, values![name], |row| row.id(0))? else {
                return Ok((None, false));
            };
            let seen = "SELECT 1 FROM familiar WHERE account = ?1 AND network = ?2 AND seen >= ?3";
            let seen = sql.first(seen, values![id, network, now - RETENTION], |row| row.int(0))?;
            Ok((Some(identity(sql, id)?), seen.is_some()))
        })
    }

    /// Deletes networks without a recent login. Returns their number.
    ///
    /// # Errors
    /// Database errors.
    pub fn expire_networks(&self, now: Timestamp) -> Result<u64> {
        self.transact(|sql| {
            sql.run("DELETE FROM familiar WHERE seen < ?1", values![now - RETENTION])
        })
    }
}
