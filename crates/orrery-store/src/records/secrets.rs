//! Secrets, sealed by the caller: this crate never sees their content.

use orrery_model::Timestamp;

use crate::records::{Secrets, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, StoreError, values};

/// A sealed value by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRecord {
    /// `None` for a secret that every environment may use.
    pub environment: Option<EnvironmentKey>,
    pub name: String,
    pub sealed: Vec<u8>,
    pub updated: Timestamp,
    /// Grows with each change.
    pub revision: i64,
}

const COLUMNS: &str = "SELECT environment, name, sealed, updated, revision FROM secret";

fn from_row(row: &dyn Row) -> Result<SecretRecord> {
    let environment = row.int(0)?;
    Ok(SecretRecord {
        environment: (environment != 0).then_some(EnvironmentKey(environment)),
        name: row.string(1)?,
        sealed: row.blob(2)?.unwrap_or_default().to_vec(),
        updated: row.time(3)?,
        revision: row.int(4)?,
    })
}

fn environment_number(environment: Option<EnvironmentKey>) -> i64 {
    environment.map_or(0, |key| key.0)
}

/// Revision of the stored value; zero if there is none.
fn revision(sql: &mut dyn Sql, environment: Option<EnvironmentKey>, name: &str) -> Result<i64> {
    let select = "SELECT revision FROM secret WHERE environment = ?1 AND name = ?2";
    let found =
        sql.first(select, values![environment_number(environment), name], |row| row.int(0))?;
    Ok(found.unwrap_or(0))
}

impl Secrets<'_> {
    /// Stores a sealed value, replacing an older one; with a revision, only if the stored value still
    /// has it: zero if there is none. Returns the new revision. `is_known` tells whether the caller
    /// has the key of a sealed value: two processes that start with an empty vault must not seal with
    /// different keys.
    ///
    /// # Errors
    /// `Outdated` after a concurrent change; `OtherKey` if a remaining value was sealed with an unknown
    /// key; database errors.
    pub fn put_if(
        &self,
        environment: Option<EnvironmentKey>,
        (name, expected): (&str, Option<i64>),
        sealed: &[u8],
        is_known: &dyn Fn(&[u8]) -> bool,
        now: Timestamp,
    ) -> Result<i64> {
        self.transact(|sql| {
            sql.lock_name("secrets")?;
            StoreError::check_revision("secret", expected, revision(sql, environment, name)?)?;
            let others = "SELECT sealed FROM secret WHERE environment <> ?1 OR name <> ?2";
            let foreign =
                sql.all(others, values![environment_number(environment), name], |row| {
                    Ok(!is_known(row.blob(0)?.unwrap_or_default()))
                })?;
            if foreign.contains(&true) {
                return Err(StoreError::OtherKey);
            }
            let insert = "INSERT INTO secret (environment, name, sealed, updated) \
                 VALUES (?1, ?2, ?3, ?4) ON CONFLICT (environment, name) DO UPDATE \
                 SET sealed = excluded.sealed, updated = excluded.updated, \
                 revision = secret.revision + 1 RETURNING revision";
            let values = values![environment_number(environment), name, sealed, now];
            let revision = sql.first(insert, values, |row| row.int(0))?;
            record_change(sql, environment, "secret", name, now)?;
            revision.ok_or_else(|| StoreError::not_found("secret", name))
        })
    }

    /// Stores a sealed value of the installation itself, unless there is one, and returns the
    /// stored one. No environment can use it, and no list shows it.
    ///
    /// # Errors
    /// `OtherKey` if a value was sealed with an unknown key; database errors.
    pub fn put_own_if_absent(
        &self,
        name: &str,
        sealed: &[u8],
        is_known: &dyn Fn(&[u8]) -> bool,
        now: Timestamp,
    ) -> Result<SecretRecord> {
        self.transact(|sql| {
            sql.lock_name("secrets")?;
            let all = "SELECT sealed FROM secret";
            let foreign =
                sql.all(all, &[], |row| Ok(!is_known(row.blob(0)?.unwrap_or_default())))?;
            if foreign.contains(&true) {
                return Err(StoreError::OtherKey);
            }
            let insert = "INSERT INTO secret (environment, name, sealed, updated) \
                 VALUES (?1, ?2, ?3, ?4) ON CONFLICT (environment, name) DO NOTHING";
            sql.run(insert, values![EnvironmentKey::INSTALLATION.0, name, sealed, now])?;
            let select = format!("{COLUMNS} WHERE environment = ?1 AND name = ?2");
            let stored =
                sql.first(&select, values![EnvironmentKey::INSTALLATION.0, name], from_row)?;
            stored.ok_or_else(|| StoreError::not_found("secret", name))
        })
    }

    /// Secrets of one environment, or those for all, by name.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(&self, environment: Option<EnvironmentKey>) -> Result<Vec<SecretRecord>> {
        let select = format!("{COLUMNS} WHERE environment = ?1 ORDER BY name");
        self.query(|sql| sql.all(&select, values![environment_number(environment)], from_row))
    }

    /// All secrets of all environments, for a change of the key.
    ///
    /// # Errors
    /// Database errors.
    pub fn all(&self) -> Result<Vec<SecretRecord>> {
        let select = format!("{COLUMNS} ORDER BY environment, name");
        self.query(|sql| sql.all(&select, &[], from_row))
    }

    /// One secret.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn get(&self, environment: Option<EnvironmentKey>, name: &str) -> Result<SecretRecord> {
        let select = format!("{COLUMNS} WHERE environment = ?1 AND name = ?2");
        let values = values![environment_number(environment), name];
        let found = self.query(|sql| sql.first(&select, values, from_row))?;
        found.ok_or_else(|| StoreError::not_found("secret", name))
    }

    /// Replaces values by the same values sealed anew, except those that were changed meanwhile.
    /// Returns the number of replaced ones.
    ///
    /// # Errors
    /// Database errors.
    pub fn reseal(&self, resealed: &[SecretRecord]) -> Result<u64> {
        self.transact(|sql| {
            let mut replaced = 0;
            for record in resealed {
                let update = "UPDATE secret SET sealed = ?3 \
                     WHERE environment = ?1 AND name = ?2 AND revision = ?4";
                let sealed = record.sealed.as_slice();
                let environment = environment_number(record.environment);
                let values = values![environment, &record.name, sealed, record.revision];
                replaced += sql.run(update, values)?;
            }
            Ok(replaced)
        })
    }

    /// Deletes a secret.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn delete(
        &self,
        environment: Option<EnvironmentKey>,
        name: &str,
        now: Timestamp,
    ) -> Result<()> {
        self.delete_if(environment, name, None, now)
    }

    /// As `delete`; with `expected`, only if it still has that revision.
    ///
    /// # Errors
    /// `Outdated` after a concurrent change; `NotFound` if it does not exist.
    pub fn delete_if(
        &self,
        environment: Option<EnvironmentKey>,
        name: &str,
        expected: Option<i64>,
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| {
            sql.lock_name("secrets")?;
            let current = revision(sql, environment, name)?;
            if current == 0 {
                return Err(StoreError::not_found("secret", name));
            }
            StoreError::check_revision("secret", expected, current)?;
            let delete = "DELETE FROM secret WHERE environment = ?1 AND name = ?2";
            if sql.run(delete, values![environment_number(environment), name])? == 0 {
                return Err(StoreError::not_found("secret", name));
            }
            record_change(sql, environment, "secret", name, now)
        })
    }
}
