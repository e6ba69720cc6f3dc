//! The change feed: hints that something is worth reading again, in one order for all.

use std::collections::BTreeSet;

use orrery_model::{Timestamp, VersionNumber};

use crate::records::Records;
use crate::sql::{RowExt as _, Sql, SqlExt as _, Value};
use crate::{EnvironmentKey, ResourceKey, Result, values};

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

/// A hint that is to be added to the feed.
#[derive(Clone, Copy, Debug)]
pub struct NewNote<'a> {
    pub environment: Option<EnvironmentKey>,
    pub kind: &'a str,
    pub subject: &'a str,
    /// `None` for the time that the database has.
    pub at: Option<Timestamp>,
}

/// The subject of a note on versions: their numbers.
pub(crate) fn subject_of_versions(numbers: &[VersionNumber]) -> String {
    let numbers: Vec<String> = numbers.iter().map(VersionNumber::to_string).collect();
    numbers.join(",")
}

/// So many are kept; whoever is further behind starts over.
pub(crate) const KEPT_CHANGES: i64 = 20_000;
pub(crate) const TIDY_EVERY: i64 = 1_000;
/// A note names so many resources one by one; if there are more, it says only that there are some.
const NAMED_RESOURCES: usize = 100;

/// The subject of a note on resources: their keys, or `*`.
pub(crate) fn subject_of(keys: impl ExactSizeIterator<Item = ResourceKey>) -> String {
    if keys.len() > NAMED_RESOURCES {
        return "*".to_owned();
    }
    let keys: Vec<String> = keys.map(|key| key.0.to_string()).collect();
    keys.join(",")
}

/// Adds a change to the feed, in the transaction that makes it.
pub(crate) fn note(
    sql: &mut dyn Sql,
    environment: Option<EnvironmentKey>,
    kind: &str,
    subject: &str,
    at: Timestamp,
) -> Result<()> {
    sql.note(&NewNote { environment, kind, subject, at: Some(at) })
}

impl Records<'_> {
    /// The newest place in the feed, from which a reader that wants only news can start.
    ///
    /// # Errors
    /// Those of the database.
    pub fn latest_change(&self) -> Result<ChangeSeq> {
        self.database.settled_change().map(ChangeSeq)
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

    /// Environments in which something changed after a place.
    ///
    /// # Errors
    /// Those of the database.
    pub fn changed_environments(&self, after: ChangeSeq) -> Result<BTreeSet<EnvironmentKey>> {
        let select = "SELECT DISTINCT environment FROM change WHERE id > ?1 AND environment <> 0";
        let found = self
            .look(|sql| sql.all(select, values![after.0], |row| Ok(EnvironmentKey(row.int(0)?))))?;
        Ok(found.into_iter().collect())
    }

    /// Changes after a place, oldest first. Who goes on after the last one that it got misses none, also of those that are
    /// being written meanwhile.
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
        let settled = self.database.settled_change()?;
        let (select, values): (_, &[Value<'_>]) = match environment {
            Some(key) => (
                "SELECT id, environment, kind, subject, at FROM change \
                 WHERE id > ?1 AND id <= ?3 AND environment = ?4 ORDER BY id LIMIT ?2",
                values![after.0, limit, settled, key.0],
            ),
            None => (
                "SELECT id, environment, kind, subject, at FROM change \
                 WHERE id > ?1 AND id <= ?3 ORDER BY id LIMIT ?2",
                values![after.0, limit, settled],
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
