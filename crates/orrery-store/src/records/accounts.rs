//! Accounts, their roles, and the sessions of logged-in users.

use orrery_model::{AccountId, EnvironmentId, ProjectId, Timestamp};

use crate::records::familiar_networks::{delete_networks, record_network};
use crate::records::{Accounts, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{Result, StoreError, values};

/// An account that can log in, or that an external issuer authenticates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRecord {
    pub uuid: AccountId,
    pub name: String,
    /// The hash of the password in PHC format; `None` if an external issuer authenticates the
    /// account.
    pub password: Option<String>,
    /// External issuer of an account without a password.
    pub issuer: Option<String>,
    /// Administrator: all rights everywhere.
    pub admin: bool,
    pub disabled: bool,
    pub created: Timestamp,
    /// Grows with each change.
    pub revision: i64,
}

/// An account to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewAccount<'a> {
    pub uuid: AccountId,
    pub name: &'a str,
    pub password: Option<&'a str>,
    pub issuer: Option<&'a str>,
    pub admin: bool,
}

/// Scope of a role or a token. A project and an environment with the same id are different scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoleScope {
    Everywhere,
    Project(ProjectId),
    Environment(EnvironmentId),
}

impl RoleScope {
    /// One byte for the kind of scope, and its id.
    pub(crate) fn to_bytes(self) -> [u8; 17] {
        let (kind, id) = match self {
            RoleScope::Everywhere => (0, [0; 16]),
            RoleScope::Project(id) => (1, id.into_bytes()),
            RoleScope::Environment(id) => (2, id.into_bytes()),
        };
        let mut bytes = [0; 17];
        bytes[0] = kind;
        bytes[1..].copy_from_slice(&id);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let id = || bytes.get(1..).and_then(|id| <[u8; 16]>::try_from(id).ok());
        match (bytes.first(), id()) {
            (Some(0), Some(_)) => Ok(RoleScope::Everywhere),
            (Some(1), Some(id)) => Ok(RoleScope::Project(ProjectId::from_bytes(id))),
            (Some(2), Some(id)) => Ok(RoleScope::Environment(EnvironmentId::from_bytes(id))),
            _ => Err(StoreError::Unreadable("the scope of a role".to_owned())),
        }
    }
}

/// One role of one account in one scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRecord {
    pub account: AccountId,
    pub account_name: String,
    pub scope: RoleScope,
    pub role: String,
}

/// An account with its roles, from one snapshot of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub account: AccountRecord,
    pub roles: Vec<(RoleScope, String)>,
}

/// A login session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    pub account: AccountId,
    pub created: Timestamp,
    pub expires: Timestamp,
}

const COLUMNS: &str = "SELECT account.id, account.name, account.password, account.issuer, \
     account.admin, account.disabled, account.created, account.revision FROM account";

fn from_row(row: &dyn Row) -> Result<AccountRecord> {
    Ok(AccountRecord {
        uuid: row.id(0)?,
        name: row.string(1)?,
        password: row.maybe_string(2)?,
        issuer: row.maybe_string(3)?,
        admin: row.flag(4)?,
        disabled: row.flag(5)?,
        created: row.time(6)?,
        revision: row.int(7)?,
    })
}

pub(super) fn find(sql: &mut dyn Sql, uuid: AccountId) -> Result<AccountRecord> {
    let found = sql.first(&format!("{COLUMNS} WHERE id = ?1"), values![uuid], from_row)?;
    found.ok_or_else(|| StoreError::not_found("user", uuid.to_string()))
}

/// The account and its roles.
pub(super) fn identity(sql: &mut dyn Sql, uuid: AccountId) -> Result<Identity> {
    let account = find(sql, uuid)?;
    let select = "SELECT scope, role FROM role_assignment WHERE account = ?1";
    let roles = sql.all(select, values![uuid], |row| {
        Ok((RoleScope::from_bytes(row.blob(0)?.unwrap_or_default())?, row.string(1)?))
    })?;
    Ok(Identity { account, roles })
}

fn insert(sql: &mut dyn Sql, new: &NewAccount<'_>, now: Timestamp) -> Result<AccountRecord> {
    let insert = "INSERT INTO account (id, name, password, issuer, admin, created) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
    let NewAccount { uuid, name, password, issuer, admin } = *new;
    if sql.run(insert, values![uuid, name, password, issuer, admin, now])? == 0 {
        return Err(StoreError::exists("user", name));
    }
    record_change(sql, None, "user", &uuid.to_string(), now)?;
    find(sql, uuid)
}

/// Fails if no administrator would remain without this account.
fn check_administrator_remains(sql: &mut dyn Sql, account: &AccountRecord) -> Result<()> {
    if !account.admin || account.disabled {
        return Ok(());
    }
    let others = "SELECT 1 FROM account WHERE admin = 1 AND disabled = 0 AND id <> ?1";
    match sql.first(others, values![account.uuid], |row| row.int(0))? {
        Some(_) => Ok(()),
        None => Err(StoreError::LastAdministrator(account.name.clone())),
    }
}

/// Deletes the grants of a deleted scope: a later project or environment with the same id must not
/// inherit them.
pub(super) fn delete_scope_grants(
    sql: &mut dyn Sql,
    scope: RoleScope,
    now: Timestamp,
) -> Result<()> {
    let scope = scope.to_bytes();
    sql.run("DELETE FROM role_assignment WHERE scope = ?1", values![&scope])?;
    let revoke = "UPDATE token SET revoked = ?2 WHERE scope = ?1 AND revoked IS NULL";
    sql.run(revoke, values![&scope, now]).map(drop)
}

impl Accounts<'_> {
    /// True if there is no account at all: the installation is new.
    ///
    /// # Errors
    /// Database errors.
    pub fn is_empty(&self) -> Result<bool> {
        let select = "SELECT 1 FROM account LIMIT 1";
        Ok(self.query(|sql| sql.first(select, &[], |row| row.int(0)))?.is_none())
    }

    /// Creates an account.
    ///
    /// # Errors
    /// `Exists` if the name is taken.
    pub fn create(&self, new: &NewAccount<'_>, now: Timestamp) -> Result<AccountRecord> {
        self.transact(|sql| insert(sql, new, now))
    }

    /// Creates the first account; `None` if there is an account already. With `ticket`, the value
    /// stored under that meta name must equal the given one, and is deleted.
    ///
    /// # Errors
    /// Database errors.
    pub fn create_first(
        &self,
        new: &NewAccount<'_>,
        ticket: Option<(&str, &str)>,
        now: Timestamp,
    ) -> Result<Option<AccountRecord>> {
        self.transact(|sql| {
            sql.lock_name("first account")?;
            if sql.first("SELECT 1 FROM account LIMIT 1", &[], |row| row.int(0))?.is_some() {
                return Ok(None);
            }
            if let Some((name, value)) = ticket {
                let take = "DELETE FROM meta WHERE name = ?1 AND value = ?2";
                if sql.run(take, values![name, value])? == 0 {
                    return Ok(None);
                }
            }
            insert(sql, new, now).map(Some)
        })
    }

    /// True if only administrators can change something: every account with write access is an
    /// administrator, and every valid token with write access belongs to an administrator and has
    /// no further limits. Disabled accounts count, because their changes are still deployed.
    ///
    /// # Errors
    /// Database errors.
    pub fn has_only_administrators(&self, now: Timestamp) -> Result<bool> {
        let account = "SELECT 1 FROM account WHERE admin = 0 AND EXISTS \
             (SELECT 1 FROM role_assignment r WHERE r.account = account.id AND r.role <> 'viewer') LIMIT 1";
        let everywhere = RoleScope::Everywhere.to_bytes();
        // Grants are an object with the role by its name.
        let token = r#"SELECT 1 FROM token WHERE revoked IS NULL AND (expires IS NULL OR expires > ?1)
             AND (scope <> ?2 OR grants NOT LIKE '%"role":"admin"%')
             AND grants NOT LIKE '%"role":"viewer"%' LIMIT 1"#;
        self.query(|sql| {
            let others = sql.first(account, values![], |_| Ok(()))?.is_some()
                || sql.first(token, values![now, &everywhere], |_| Ok(()))?.is_some();
            Ok(!others)
        })
    }

    /// Accounts by name, after a name.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(&self, after: &str, limit: usize) -> Result<Vec<AccountRecord>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let select = format!("{COLUMNS} WHERE name > ?1 ORDER BY name LIMIT ?2");
        self.query(|sql| sql.all(&select, values![after, limit], from_row))
    }

    /// The account with an id.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn get(&self, uuid: AccountId) -> Result<AccountRecord> {
        self.query(|sql| find(sql, uuid))
    }

    /// The account with a name.
    ///
    /// # Errors
    /// Database errors.
    pub fn named(&self, name: &str) -> Result<Option<AccountRecord>> {
        let select = format!("{COLUMNS} WHERE name = ?1");
        self.query(|sql| sql.first(&select, values![name], from_row))
    }

    /// The account of that name with its roles.
    ///
    /// # Errors
    /// Database errors.
    pub fn identity_named(&self, name: &str) -> Result<Option<Identity>> {
        self.query(|sql| {
            let select = "SELECT id FROM account WHERE name = ?1";
            match sql.first(select, values![name], |row| row.id(0))? {
                Some(id) => identity(sql, id).map(Some),
                None => Ok(None),
            }
        })
    }

    /// Changes the given fields. A disabled account loses its sessions.
    ///
    /// # Errors
    /// `NotFound`; `Outdated` after a concurrent change; `LastAdministrator` if no administrator
    /// would remain.
    pub fn update(
        &self,
        uuid: AccountId,
        expected: Option<i64>,
        admin: Option<bool>,
        disabled: Option<bool>,
        now: Timestamp,
    ) -> Result<AccountRecord> {
        self.transact(|sql| {
            sql.lock_name("administrators")?;
            let old = find(sql, uuid)?;
            StoreError::check_revision("user", expected, old.revision)?;
            if admin == Some(false) || disabled == Some(true) {
                check_administrator_remains(sql, &old)?;
            }
            let admin = admin.unwrap_or(old.admin);
            let disabled = disabled.unwrap_or(old.disabled);
            let update = "UPDATE account SET admin = ?2, disabled = ?3, revision = revision + 1 \
                 WHERE id = ?1";
            sql.run(update, values![uuid, admin, disabled])?;
            if disabled {
                sql.run("DELETE FROM session WHERE account = ?1", values![uuid])?;
            }
            record_change(sql, None, "user", &uuid.to_string(), now)?;
            find(sql, uuid)
        })
    }

    /// Sets another password and ends the account's sessions, except the one with the hash `keep`.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_password(
        &self,
        uuid: AccountId,
        password: &str,
        keep: Option<&[u8; 32]>,
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| {
            let update = "UPDATE account SET password = ?2, revision = revision + 1 \
                 WHERE id = ?1 AND issuer IS NULL";
            if sql.run(update, values![uuid, password])? == 0 {
                return Err(StoreError::not_found("user with a password", uuid.to_string()));
            }
            let kept_session: &[u8] = keep.map_or(&[], |hash| hash);
            let end = "DELETE FROM session WHERE account = ?1 AND hash <> ?2";
            sql.run(end, values![uuid, kept_session])?;
            if keep.is_none() {
                // Set by an administrator: the networks of the owner's logins are no longer
                // trusted.
                delete_networks(sql, uuid)?;
            }
            record_change(sql, None, "user", &uuid.to_string(), now)
        })
    }

    /// Deletes an account with its roles, sessions and tokens. With `expected`, only if it still
    /// has that revision. Returns the deleted account.
    ///
    /// # Errors
    /// `NotFound`; `Outdated` after a concurrent change; `LastAdministrator` if no administrator
    /// would remain.
    pub fn delete(
        &self,
        uuid: AccountId,
        expected: Option<i64>,
        now: Timestamp,
    ) -> Result<AccountRecord> {
        self.transact(|sql| {
            sql.lock_name("administrators")?;
            let old = find(sql, uuid)?;
            StoreError::check_revision("user", expected, old.revision)?;
            check_administrator_remains(sql, &old)?;
            for table in ["role_assignment", "session", "token", "familiar"] {
                sql.run(&format!("DELETE FROM {table} WHERE account = ?1"), values![uuid])?;
            }
            sql.run("DELETE FROM account WHERE id = ?1", values![uuid])?;
            record_change(sql, None, "user", &uuid.to_string(), now)?;
            Ok(old)
        })
    }

    /// Assigns a role. Idempotent.
    ///
    /// # Errors
    /// `NotFound` for the account.
    pub fn assign_role(
        &self,
        account: AccountId,
        scope: RoleScope,
        role: &str,
        now: Timestamp,
    ) -> Result<()> {
        let bytes = scope.to_bytes();
        self.transact(|sql| {
            find(sql, account)?;
            let insert = "INSERT INTO role_assignment (account, scope, role) \
                 VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
            sql.run(insert, values![account, &bytes, role])?;
            record_change(sql, None, "user", &account.to_string(), now)
        })
    }

    /// Revokes a role, effective from the next request.
    ///
    /// # Errors
    /// `NotFound` if the account does not have it in this scope.
    pub fn revoke_role(
        &self,
        account: AccountId,
        scope: RoleScope,
        role: &str,
        now: Timestamp,
    ) -> Result<()> {
        let bytes = scope.to_bytes();
        self.transact(|sql| {
            let delete =
                "DELETE FROM role_assignment WHERE account = ?1 AND scope = ?2 AND role = ?3";
            if sql.run(delete, values![account, &bytes, role])? == 0 {
                return Err(StoreError::not_found("role", role));
            }
            record_change(sql, None, "user", &account.to_string(), now)
        })
    }

    /// Roles in one scope, or all.
    ///
    /// # Errors
    /// Database errors.
    pub fn role_assignments(&self, scope: Option<RoleScope>) -> Result<Vec<RoleRecord>> {
        let select = "SELECT account.id, account.name, role_assignment.scope, role_assignment.role \
             FROM role_assignment JOIN account ON account.id = role_assignment.account";
        let order = "ORDER BY account.name, role_assignment.scope, role_assignment.role";
        let make = |row: &dyn Row| {
            Ok(RoleRecord {
                account: row.id(0)?,
                account_name: row.string(1)?,
                scope: RoleScope::from_bytes(row.blob(2)?.unwrap_or_default())?,
                role: row.string(3)?,
            })
        };
        self.query(|sql| match scope.map(RoleScope::to_bytes) {
            Some(scope) => {
                let select = format!("{select} WHERE role_assignment.scope = ?1 {order}");
                sql.all(&select, values![&scope], make)
            }
            None => sql.all(&format!("{select} {order}"), &[], make),
        })
    }

    /// Starts a session and deletes expired ones. With `network`, records that the account logs in
    /// from there.
    ///
    /// # Errors
    /// `NotFound` if the account was deleted or disabled meanwhile.
    pub fn create_session(
        &self,
        hash: &[u8; 32],
        session: &SessionRecord,
        network: Option<&str>,
    ) -> Result<()> {
        self.transact(|sql| {
            if find(sql, session.account)?.disabled {
                let name = session.account.to_string();
                return Err(StoreError::not_found("enabled user", name));
            }
            sql.run("DELETE FROM session WHERE expires <= ?1", values![session.created])?;
            let insert = "INSERT INTO session (hash, account, created, expires) \
                 VALUES (?1, ?2, ?3, ?4)";
            let SessionRecord { account, created, expires } = session;
            sql.run(insert, values![hash, account, *created, *expires])?;
            match network {
                Some(network) => record_network(sql, *account, network, *created),
                None => Ok(()),
            }
        })
    }

    /// Session and identity for a token hash, unless the session has ended.
    ///
    /// # Errors
    /// Database errors.
    pub fn session(
        &self,
        hash: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<(SessionRecord, Identity)>> {
        self.query(|sql| {
            let select = "SELECT account, created, expires FROM session \
                 WHERE hash = ?1 AND expires > ?2";
            let make = |row: &dyn Row| {
                let (account, created) = (row.id(0)?, row.time(1)?);
                Ok(SessionRecord { account, created, expires: row.time(2)? })
            };
            let Some(session) = sql.first(select, values![hash, now], make)? else {
                return Ok(None);
            };
            Ok(Some((session, identity(sql, session.account)?)))
        })
    }

    /// Replaces an old session by a new one.
    ///
    /// # Errors
    /// `NotFound` if the old one has ended.
    pub fn renew_session(
        &self,
        old: &[u8; 32],
        new: &[u8; 32],
        expires: Timestamp,
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| {
            let update = "UPDATE session SET hash = ?2, expires = ?3 \
                 WHERE hash = ?1 AND expires > ?4";
            match sql.run(update, values![old, new, expires, now])? {
                0 => Err(StoreError::not_found("session", "that is still open")),
                _ => Ok(()),
            }
        })
    }

    /// Ends a session. Idempotent.
    ///
    /// # Errors
    /// Database errors.
    pub fn end_session(&self, hash: &[u8; 32]) -> Result<()> {
        self.transact(|sql| sql.run("DELETE FROM session WHERE hash = ?1", values![hash]).map(drop))
    }
}
