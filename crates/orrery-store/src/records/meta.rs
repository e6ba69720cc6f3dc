//! What an installation remembers about itself: few, small values by name.

use crate::records::Records;
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{Result, values};

impl Records<'_> {
    /// # Errors
    /// Those of the database.
    pub fn remembered(&self, name: &str) -> Result<Option<String>> {
        let select = "SELECT value FROM meta WHERE name = ?1";
        self.look(|sql| sql.first(select, values![name], |row| row.string(0)))
    }

    /// Remembers a value unless there is one, and answers the one that is remembered.
    ///
    /// # Errors
    /// Those of the database.
    pub fn remember_first(&self, name: &str, value: &str) -> Result<String> {
        let insert = "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
        self.change(|sql| sql.run(insert, values![name, value]).map(drop))?;
        Ok(self.remembered(name)?.unwrap_or_else(|| value.to_owned()))
    }

    /// Remembers a value in the place of an older one.
    ///
    /// # Errors
    /// Those of the database.
    pub fn remember(&self, name: &str, value: &str) -> Result<()> {
        let insert = "INSERT INTO meta (name, value) VALUES (?1, ?2) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.change(|sql| sql.run(insert, values![name, value]).map(drop))
    }
}
