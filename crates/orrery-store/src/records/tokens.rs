//! API tokens for programs. Only their hashes are stored.

use std::time::Duration;

use orrery_model::{AccountId, Timestamp, TokenId};

use crate::records::accounts::{Identity, RoleScope, find as find_account, identity};
use crate::records::{Tokens, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{Result, StoreError, values};

/// An API token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub uuid: TokenId,
    pub name: String,
    /// The account that it acts for, within its further limits.
    pub account: AccountId,
    pub scope: RoleScope,
    /// Limits beyond the scope, as JSON.
    pub grants: serde_json::Value,
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
    pub revoked: Option<Timestamp>,
    /// To the minute.
    pub last_used: Option<Timestamp>,
}

impl TokenRecord {
    /// True if it is neither revoked nor expired.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }
}

const COLUMNS: &str = "SELECT id, name, account, scope, grants, created, expires, revoked, \
     last_used FROM token";

fn from_row(row: &dyn Row) -> Result<TokenRecord> {
    let scope = row.blob(3)?.map_or(Ok(RoleScope::Everywhere), RoleScope::from_bytes)?;
    Ok(TokenRecord {
        uuid: row.id(0)?,
        name: row.string(1)?,
        account: row.id(2)?,
        scope,
        grants: row.json(4)?,
        created: row.time(5)?,
        expires: row.maybe_time(6)?,
        revoked: row.maybe_time(7)?,
        last_used: row.maybe_time(8)?,
    })
}

/// Tokens per account that are neither revoked nor expired.
const ACTIVE_MAX: i64 = 1_000;
/// Retention of revoked and expired tokens.
const ENDED_RETENTION: Duration = Duration::from_secs(90 * 24 * 3600);

/// True if a token exists, is neither revoked nor expired, and its account is not disabled.
pub(super) fn is_active(sql: &mut dyn Sql, uuid: TokenId, now: Timestamp) -> Result<bool> {
    let select = "SELECT 1 FROM token JOIN account ON account.id = token.account \
         WHERE token.id = ?1 AND token.revoked IS NULL \
         AND (token.expires IS NULL OR token.expires > ?2) AND account.disabled = 0";
    Ok(sql.first(select, values![uuid, now], |row| row.int(0))?.is_some())
}

impl Tokens<'_> {
    /// Stores a new token under its hash. Deletes tokens of the account that ended long ago.
    ///
    /// # Errors
    /// `NotFound` for the account; `Conflict` if the account has the maximum number of tokens.
    pub fn create(&self, hash: &[u8; 32], token: &TokenRecord) -> Result<()> {
        let grants = token.grants.to_string();
        let scope = token.scope.to_bytes();
        self.transact(|sql| {
            let owner = find_account(sql, token.account)?;
            sql.lock_name("tokens")?;
            let ended = "DELETE FROM token WHERE account = ?1 AND (revoked < ?2 OR expires < ?2)";
            sql.run(ended, values![token.account, token.created - ENDED_RETENTION])?;
            let live = "SELECT count(*) FROM token WHERE account = ?1 AND revoked IS NULL \
                 AND (expires IS NULL OR expires > ?2)";
            let live = sql.first(live, values![token.account, token.created], |row| row.int(0))?;
            if live.is_some_and(|live| live >= ACTIVE_MAX) {
                return Err(StoreError::Conflict(format!(
                    "user {:?} has {ACTIVE_MAX} tokens, and no user may have more: revoke those that \
                     are not needed",
                    owner.name
                )));
            }
            let insert = "INSERT INTO token (id, hash, name, account, scope, grants, created, \
                 expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
            let TokenRecord { uuid, name, account, created, expires, .. } = token;
            let values = values![uuid, hash, name, account, &scope, &grants, *created, *expires];
            sql.run(insert, values)?;
            record_change(sql, None, "token", &uuid.to_string(), *created)
        })
    }

    /// Tokens of one account or of all, newest first. With `before`, only those created before that
    /// one.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
        &self,
        account: Option<AccountId>,
        before: Option<(Timestamp, TokenId)>,
        limit: usize,
    ) -> Result<Vec<TokenRecord>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (at, id) = before.unwrap_or((Timestamp(i64::MAX), TokenId::from_bytes([0xff; 16])));
        let beyond = "(created < ?1 OR (created = ?1 AND id < ?2))";
        let order = "ORDER BY created DESC, id DESC LIMIT ?3";
        self.query(|sql| match account {
            Some(account) => {
                let select = format!("{COLUMNS} WHERE account = ?4 AND {beyond} {order}");
                sql.all(&select, values![at, id, limit, account], from_row)
            }
            None => {
                let select = format!("{COLUMNS} WHERE {beyond} {order}");
                sql.all(&select, values![at, id, limit], from_row)
            }
        })
    }

    /// The token with an id.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn get(&self, uuid: TokenId) -> Result<TokenRecord> {
        let select = format!("{COLUMNS} WHERE id = ?1");
        let found = self.query(|sql| sql.first(&select, values![uuid], from_row))?;
        found.ok_or_else(|| StoreError::not_found("token", uuid.to_string()))
    }

    /// The token with that hash and its identity, valid or not.
    ///
    /// # Errors
    /// Database errors.
    pub fn with_hash(&self, hash: &[u8; 32]) -> Result<Option<(TokenRecord, Identity)>> {
        self.query(|sql| {
            let select = format!("{COLUMNS} WHERE hash = ?1");
            let Some(token) = sql.first(&select, values![hash], from_row)? else {
                return Ok(None);
            };
            let identity = identity(sql, token.account)?;
            Ok(Some((token, identity)))
        })
    }

    /// Revokes a token, effective from the next request. Idempotent.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn revoke(&self, uuid: TokenId, now: Timestamp) -> Result<()> {
        self.transact(|sql| {
            let update = "UPDATE token SET revoked = coalesce(revoked, ?2) WHERE id = ?1";
            if sql.run(update, values![uuid, now])? == 0 {
                return Err(StoreError::not_found("token", uuid.to_string()));
            }
            record_change(sql, None, "token", &uuid.to_string(), now)
        })
    }

    /// Records that tokens were used.
    ///
    /// # Errors
    /// Database errors.
    pub fn touch(&self, used: &[(TokenId, Timestamp)]) -> Result<()> {
        self.transact(|sql| {
            for (uuid, at) in used {
                let update = "UPDATE token SET last_used = ?2 WHERE id = ?1 \
                     AND (last_used IS NULL OR last_used < ?2)";
                sql.run(update, values![uuid, *at])?;
            }
            Ok(())
        })
    }
}
