//! Networks from which accounts have logged in.

use std::time::Duration;

use orrery_model::Timestamp;

use crate::records::Records;
use crate::records::accounts::{Identity, identity};
use crate::sql::{RowExt as _, Sql, SqlExt as _};
use crate::{Result, values};

/// Networks of one account; of more, those that were seen last are kept.
const NETWORKS_MAX: i64 = 64;
/// How long a network stays familiar after the last login from it.
const KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

/// Notes that an account logged in from a network. Only its own entries make room for it.
pub(super) fn note_network(
    sql: &mut dyn Sql,
    account: &[u8; 16],
    network: &str,
    now: Timestamp,
) -> Result<()> {
    let upsert = "INSERT INTO familiar (account, network, seen) VALUES (?1, ?2, ?3) \
         ON CONFLICT (account, network) DO UPDATE SET seen = excluded.seen";
    sql.run(upsert, values![account, network, now])?;
    let forget = "DELETE FROM familiar WHERE account = ?1 AND (seen < ?2 OR network NOT IN \
         (SELECT network FROM familiar WHERE account = ?1 ORDER BY seen DESC, network LIMIT ?3))";
    sql.run(forget, values![account, now - KEPT, NETWORKS_MAX]).map(drop)
}

/// Forgets the networks of an account.
pub(super) fn forget_networks(sql: &mut dyn Sql, account: &[u8; 16]) -> Result<()> {
    sql.run("DELETE FROM familiar WHERE account = ?1", values![account]).map(drop)
}

impl Records<'_> {
    /// The account of that name with its roles, and whether it has logged in from a network before.
    ///
    /// # Errors
    /// Those of the database.
    pub fn identity_at(
        &self,
        name: &str,
        network: &str,
        now: Timestamp,
    ) -> Result<(Option<Identity>, bool)> {
        self.look(|sql| {
            let select = "SELECT id FROM account WHERE name = ?1";
            let Some(id) = sql.first(select, values![name], |row| row.id(0))? else {
                return Ok((None, false));
            };
            let seen = "SELECT 1 FROM familiar WHERE account = ?1 AND network = ?2 AND seen >= ?3";
            let seen = sql.first(seen, values![&id, network, now - KEPT], |row| row.int(0))?;
            Ok((Some(identity(sql, &id)?), seen.is_some()))
        })
    }

    /// Forgets networks from which accounts have not logged in for long. Answers how many.
    ///
    /// # Errors
    /// Those of the database.
    pub fn forget_familiar(&self, now: Timestamp) -> Result<u64> {
        self.change(|sql| sql.run("DELETE FROM familiar WHERE seen < ?1", values![now - KEPT]))
    }
}
