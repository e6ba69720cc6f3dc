//! Meta values of an installation: few and small, by name.

use orrery_model::Timestamp;

use crate::records::{Meta, Transactions as _};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{Result, values};

impl Meta<'_> {
    /// The value of a name.
    ///
    /// # Errors
    /// Database errors.
    pub fn get(&self, name: &str) -> Result<Option<String>> {
        let select = "SELECT value FROM meta WHERE name = ?1";
        self.query(|sql| sql.first(select, values![name], |row| row.string(0)))
    }

    /// Stores a value unless there is one, and returns the stored one.
    ///
    /// # Errors
    /// Database errors.
    pub fn put_if_absent(&self, name: &str, value: &str) -> Result<String> {
        let insert = "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
        self.transact(|sql| sql.run(insert, values![name, value]).map(drop))?;
        Ok(self.get(name)?.unwrap_or_else(|| value.to_owned()))
    }

    /// Stores a value, replacing an older one.
    ///
    /// # Errors
    /// Database errors.
    pub fn put(&self, name: &str, value: &str) -> Result<()> {
        let insert = "INSERT INTO meta (name, value) VALUES (?1, ?2) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.transact(|sql| sql.run(insert, values![name, value]).map(drop))
    }

    /// Claims a turn of a periodic task that one process of an installation does: true for the
    /// first caller with a moment later than all claimed before.
    ///
    /// # Errors
    /// Database errors.
    pub fn claim_turn(&self, task: &str, at: Timestamp) -> Result<bool> {
        // Fixed-width text, so that the order of texts is the order of numbers.
        let (name, value) = (format!("turn: {task}"), format!("{:020}", at.0));
        self.transact(|sql| {
            let insert = "INSERT INTO meta (name, value) VALUES (?1, ?2) \
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value \
                 WHERE meta.value < excluded.value";
            Ok(sql.run(insert, values![&name, &value])? > 0)
        })
    }
}
