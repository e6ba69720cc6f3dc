//! Secrets, sealed by somebody who has the key: this crate never sees what is inside.

use orrery_model::Timestamp;

use crate::records::{Records, note};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, StoreError, values};

/// A sealed value by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRecord {
    /// `None` for one that every environment may use.
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

fn number(environment: Option<EnvironmentKey>) -> i64 {
    environment.map_or(0, |key| key.0)
}

/// The revision of what is kept; zero if nothing is.
fn revision(sql: &mut dyn Sql, environment: Option<EnvironmentKey>, name: &str) -> Result<i64> {
    let select = "SELECT revision FROM secret WHERE environment = ?1 AND name = ?2";
    let found = sql.first(select, values![number(environment), name], |row| row.int(0))?;
    Ok(found.unwrap_or(0))
}

impl Records<'_> {
    /// Keeps a sealed value in the place of an older one. The answer is its revision. `is_known` says of a sealed value whether
    /// its key is one of who asks: two who have not seen each other's first secret must not seal with different keys.
    ///
    /// # Errors
    /// `OtherKey` if a value that is not replaced was sealed with a key that is not known; those of the database.
    pub fn put_secret(
        &self,
        environment: Option<EnvironmentKey>,
        name: &str,
        sealed: &[u8],
        is_known: &dyn Fn(&[u8]) -> bool,
        now: Timestamp,
    ) -> Result<i64> {
        self.put_secret_if(environment, (name, None), sealed, is_known, now)
    }

    /// As `put_secret`; with a revision, only if what is there still has it: zero if nothing is there.
    ///
    /// # Errors
    /// `Outdated` if somebody was faster; those of `put_secret`.
    pub fn put_secret_if(
        &self,
        environment: Option<EnvironmentKey>,
        (name, expected): (&str, Option<i64>),
        sealed: &[u8],
        is_known: &dyn Fn(&[u8]) -> bool,
        now: Timestamp,
    ) -> Result<i64> {
        self.change(|sql| {
            sql.claim("secrets")?;
            StoreError::check_revision("secret", expected, revision(sql, environment, name)?)?;
            let others = "SELECT sealed FROM secret WHERE environment <> ?1 OR name <> ?2";
            let foreign = sql.all(others, values![number(environment), name], |row| {
                Ok(!is_known(row.blob(0)?.unwrap_or_default()))
            })?;
            if foreign.contains(&true) {
                return Err(StoreError::OtherKey);
            }
            let insert = "INSERT INTO secret (environment, name, sealed, updated) \
                 VALUES (?1, ?2, ?3, ?4) ON CONFLICT (environment, name) DO UPDATE \
                 SET sealed = excluded.sealed, updated = excluded.updated, \
                 revision = secret.revision + 1 RETURNING revision";
            let values = values![number(environment), name, sealed, now];
            let revision = sql.first(insert, values, |row| row.int(0))?;
            note(sql, environment, "secret", name, now)?;
            revision.ok_or_else(|| StoreError::not_found("secret", name))
        })
    }

    /// Keeps a sealed value that belongs to the installation itself, unless there is one: the answer is the one that is kept. No
    /// environment can use it, and no list shows it.
    ///
    /// # Errors
    /// `OtherKey` if a value was sealed with a key that is not known; those of the database.
    pub fn keep_own_secret(
        &self,
        name: &str,
        sealed: &[u8],
        is_known: &dyn Fn(&[u8]) -> bool,
        now: Timestamp,
    ) -> Result<SecretRecord> {
        self.change(|sql| {
            sql.claim("secrets")?;
            let all = "SELECT sealed FROM secret";
            let foreign =
                sql.all(all, &[], |row| Ok(!is_known(row.blob(0)?.unwrap_or_default())))?;
            if foreign.contains(&true) {
                return Err(StoreError::OtherKey);
            }
            let insert = "INSERT INTO secret (environment, name, sealed, updated) \
                 VALUES (?1, ?2, ?3, ?4) ON CONFLICT (environment, name) DO NOTHING";
            sql.run(insert, values![EnvironmentKey::NONE.0, name, sealed, now])?;
            let select = format!("{COLUMNS} WHERE environment = ?1 AND name = ?2");
            let kept = sql.first(&select, values![EnvironmentKey::NONE.0, name], from_row)?;
            kept.ok_or_else(|| StoreError::not_found("secret", name))
        })
    }

    /// Secrets of one environment, or those for all, by name.
    ///
    /// # Errors
    /// Those of the database.
    pub fn secrets(&self, environment: Option<EnvironmentKey>) -> Result<Vec<SecretRecord>> {
        let select = format!("{COLUMNS} WHERE environment = ?1 ORDER BY name");
        self.look(|sql| sql.all(&select, values![number(environment)], from_row))
    }

    /// All secrets of all environments, for whoever changes the key.
    ///
    /// # Errors
    /// Those of the database.
    pub fn all_secrets(&self) -> Result<Vec<SecretRecord>> {
        let select = format!("{COLUMNS} ORDER BY environment, name");
        self.look(|sql| sql.all(&select, &[], from_row))
    }

    /// # Errors
    /// `NotFound` if there is none.
    pub fn secret(&self, environment: Option<EnvironmentKey>, name: &str) -> Result<SecretRecord> {
        let select = format!("{COLUMNS} WHERE environment = ?1 AND name = ?2");
        let values = values![number(environment), name];
        let found = self.look(|sql| sql.first(&select, values, from_row))?;
        found.ok_or_else(|| StoreError::not_found("secret", name))
    }

    /// Puts the same values, sealed anew, in the place of the old ones: those that somebody changed meanwhile stay. The
    /// answer is how many were replaced.
    ///
    /// # Errors
    /// Those of the database.
    pub fn reseal_secrets(&self, resealed: &[SecretRecord]) -> Result<u64> {
        self.change(|sql| {
            let mut replaced = 0;
            for record in resealed {
                let update = "UPDATE secret SET sealed = ?3 \
                     WHERE environment = ?1 AND name = ?2 AND revision = ?4";
                let sealed = record.sealed.as_slice();
                let environment = number(record.environment);
                let values = values![environment, &record.name, sealed, record.revision];
                replaced += sql.run(update, values)?;
            }
            Ok(replaced)
        })
    }

    /// # Errors
    /// `NotFound` if there is none.
    pub fn delete_secret(
        &self,
        environment: Option<EnvironmentKey>,
        name: &str,
        now: Timestamp,
    ) -> Result<()> {
        self.delete_secret_if(environment, name, None, now)
    }

    /// As `delete_secret`; with `expected`, only if it still has that revision.
    ///
    /// # Errors
    /// `Outdated` if somebody was faster; `NotFound` if there is none.
    pub fn delete_secret_if(
        &self,
        environment: Option<EnvironmentKey>,
        name: &str,
        expected: Option<i64>,
        now: Timestamp,
    ) -> Result<()> {
        self.change(|sql| {
            sql.claim("secrets")?;
            let current = revision(sql, environment, name)?;
            if current == 0 {
                return Err(StoreError::not_found("secret", name));
            }
            StoreError::check_revision("secret", expected, current)?;
            let delete = "DELETE FROM secret WHERE environment = ?1 AND name = ?2";
            if sql.run(delete, values![number(environment), name])? == 0 {
                return Err(StoreError::not_found("secret", name));
            }
            note(sql, environment, "secret", name, now)
        })
    }
}
