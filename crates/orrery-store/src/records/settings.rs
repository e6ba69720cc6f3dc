//! Stored settings of environments: JSON texts by name, and their protection.

use std::collections::BTreeMap;

use orrery_model::Timestamp;

use crate::records::{Settings, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, StoreError, values};

/// A setting that was set.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingRecord {
    pub name: String,
    pub value: serde_json::Value,
    /// Protector of the setting, which users then cannot change.
    pub protected_by: Option<String>,
}

/// Revision of a setting that is not set.
const UNSET: i64 = 0;

impl SettingRecord {
    /// Revision derived from the content; differs from that of an unset setting.
    pub fn revision(&self) -> i64 {
        revision_of(&self.value.to_string(), self.protected_by.as_deref())
    }
}

/// FNV-1a: collision resistance is not needed.
fn revision_of(value: &str, protected_by: Option<&str>) -> i64 {
    let protector = protected_by.map_or(&[][..], str::as_bytes);
    let bytes = value.bytes().chain([0, u8::from(protected_by.is_some())]);
    let hash = bytes.chain(protector.iter().copied()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    i64::try_from(hash >> 1).unwrap_or(i64::MAX).max(UNSET + 1)
}

fn from_row(row: &dyn Row) -> Result<SettingRecord> {
    Ok(SettingRecord {
        name: row.string(0)?,
        value: row.json(1)?,
        protected_by: row.maybe_string(2)?,
    })
}

const SELECT: &str =
    "SELECT name, value, protected_by FROM setting WHERE environment = ?1 ORDER BY name";
const SELECT_ONE: &str =
    "SELECT name, value, protected_by FROM setting WHERE environment = ?1 AND name = ?2";
const SET: &str = "INSERT INTO setting (environment, name, value, protected_by) \
     VALUES (?1, ?2, ?3, ?4) ON CONFLICT (environment, name) \
     DO UPDATE SET value = excluded.value, protected_by = excluded.protected_by";

/// Sets values without protection, in the transaction of their cause.
pub(super) fn set_values(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    settings: &[(&str, serde_json::Value)],
) -> Result<()> {
    for (name, value) in settings {
        sql.run(SET, values![environment.0, *name, &value.to_string(), None::<&str>])?;
    }
    Ok(())
}

impl Settings<'_> {
    /// All settings of an environment that are set, by name.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(&self, environment: EnvironmentKey) -> Result<Vec<SettingRecord>> {
        self.query(|sql| sql.all(SELECT, values![environment.0], from_row))
    }

    /// Sets a value, or restores the default; with `expected`, only if the setting still has that
    /// revision: zero if it is not set.
    ///
    /// # Errors
    /// `Outdated` after a concurrent change; `Protected` if users cannot change it.
    pub fn change_if(
        &self,
        environment: EnvironmentKey,
        name: &str,
        value: Option<&serde_json::Value>,
        expected: Option<i64>,
        now: Timestamp,
    ) -> Result<()> {
        let text = value.map(serde_json::Value::to_string);
        self.transact(|sql| {
            let key = values![environment.0, name];
            let old = sql.first(SELECT_ONE, key, from_row)?;
            let revision = old.as_ref().map_or(UNSET, SettingRecord::revision);
            StoreError::check_revision("setting", expected, revision)?;
            if let Some(by) = old.and_then(|old| old.protected_by) {
                return Err(StoreError::Protected { name: name.to_owned(), by });
            }
            match &text {
                Some(text) => sql.run(SET, values![environment.0, name, text, None::<&str>])?,
                None => sql.run("DELETE FROM setting WHERE environment = ?1 AND name = ?2", key)?,
            };
            record_change(sql, Some(environment), "setting", name, now)
        })
    }

    /// Sets values and protects them from changes by users. Settings that the same protector does
    /// not name any more keep their value and lose the protection.
    ///
    /// # Errors
    /// Database errors.
    pub fn protect(
        &self,
        environment: EnvironmentKey,
        settings: &[(&str, serde_json::Value)],
        protected_by: &str,
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| {
            let lift = "UPDATE setting SET protected_by = NULL \
                 WHERE environment = ?1 AND protected_by = ?2";
            sql.run(lift, values![environment.0, protected_by])?;
            for (name, value) in settings {
                let value = value.to_string();
                sql.run(SET, values![environment.0, *name, &value, protected_by])?;
            }
            record_change(sql, Some(environment), "setting", "*", now)
        })
    }

    /// Values of one setting in all environments that have it.
    ///
    /// # Errors
    /// Database errors.
    pub fn of_all_environments(
        &self,
        name: &str,
    ) -> Result<Vec<(EnvironmentKey, serde_json::Value)>> {
        let select = "SELECT environment, value FROM setting WHERE name = ?1";
        self.query(|sql| {
            sql.all(select, values![name], |row| Ok((EnvironmentKey(row.int(0)?), row.json(1)?)))
        })
    }
}

impl Settings<'_> {
    /// Values of the settings that are not at their defaults.
    ///
    /// # Errors
    /// Database errors.
    pub fn values(
        &self,
        environment: EnvironmentKey,
    ) -> Result<BTreeMap<String, serde_json::Value>> {
        let settings = self.list(environment)?;
        Ok(settings.into_iter().map(|setting| (setting.name, setting.value)).collect())
    }
}
