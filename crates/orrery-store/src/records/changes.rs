//! The change feed: hints that something is worth reading again, in one order for all.

use orrery_model::Timestamp;

use crate::records::Records;
use crate::sql::{RowExt as _, Sql, SqlExt as _, Value};
use crate::{EnvironmentKey, Result, values};

/// A place in the feed; a later change has a greater one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeSeq(pub i64);

/// A hint that something changed. It says where to look and never what it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeNote {
    pub seq: ChangeSeq,
    /// `None` for what belongs to no environment.
    pub environment: Option<EnvironmentKey>,
    /// What kind of thing: `version`, `resources`, `agent`, `compile`, …
    pub kind: String,
    /// Which one; its form depends on the kind.
    pub subject: String,
    pub at: Timestamp,
}

/// So many are kept; whoever is further behind starts over.
const KEPT: i64 = 20_000;
const TIDY_EVERY: i64 = 1_000;

/// Adds a change to the feed, in the transaction that makes it.
pub(crate) fn note(
    sql: &mut dyn Sql,
    environment: Option<EnvironmentKey>,
    kind: &str,
    subject: &str,
    at: Timestamp,
) -> Result<()> {
    let environment = environment.map_or(0, |key| key.0);
    let insert =
        "INSERT INTO change (environment, kind, subject, at) VALUES (?1, ?2, ?3, ?4) RETURNING id";
    let id = sql.first(insert, values![environment, kind, subject, at], |row| row.int(0))?;
    if let Some(id) = id
        && id % TIDY_EVERY == 0
    {
        sql.run("DELETE FROM change WHERE id < ?1", values![id - KEPT])?;
    }
    Ok(())
}

impl Records<'_> {
    /// The newest place in the feed, from which a reader that wants only news can start.
    ///
    /// # Errors
    /// Those of the database.
    pub fn latest_change(&self) -> Result<ChangeSeq> {
        let select = "SELECT max(id) FROM change";
        let found = self.look(|sql| sql.first(select, &[], |row| row.integer(0)))?;
        Ok(ChangeSeq(found.flatten().unwrap_or(0)))
    }

    /// The oldest place that is still there: who stopped before it has missed something.
    ///
    /// # Errors
    /// Those of the database.
    pub fn oldest_change(&self) -> Result<ChangeSeq> {
        let select = "SELECT min(id) FROM change";
        let found = self.look(|sql| sql.first(select, &[], |row| row.integer(0)))?;
        Ok(ChangeSeq(found.flatten().unwrap_or(0)))
    }

    /// Changes after a place, oldest first.
    ///
    /// # Errors
    /// Those of the database.
    pub fn changes(
        &self,
        after: ChangeSeq,
        environment: Option<EnvironmentKey>,
        limit: usize,
    ) -> Result<Vec<ChangeNote>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (select, values): (_, &[Value<'_>]) = match environment {
            Some(key) => (
                "SELECT id, environment, kind, subject, at FROM change \
                 WHERE id > ?1 AND environment = ?3 ORDER BY id LIMIT ?2",
                values![after.0, limit, key.0],
            ),
            None => (
                "SELECT id, environment, kind, subject, at FROM change \
                 WHERE id > ?1 ORDER BY id LIMIT ?2",
                values![after.0, limit],
            ),
        };
        self.look(|sql| {
            sql.all(select, values, |row| {
                let environment = row.int(1)?;
                Ok(ChangeNote {
                    seq: ChangeSeq(row.int(0)?),
                    environment: (environment != 0).then_some(EnvironmentKey(environment)),
                    kind: row.string(2)?,
                    subject: row.string(3)?,
                    at: row.time(4)?,
                })
            })
        })
    }
}
