//! The change feed: hints that something should be read again, in one order for all receivers.

use std::collections::BTreeSet;

use orrery_model::{Timestamp, VersionNumber};

use crate::records::{Changes, Transactions as _};
use crate::sql::{RowExt as _, Sql, SqlExt as _, SqlValue};
use crate::{EnvironmentKey, NewChange, ResourceKey, Result, values};

/// Sequence number in the feed; a later change has a greater one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeSeq(pub i64);

/// A hint that something changed. It names the object and never its new state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRecord {
    pub seq: ChangeSeq,
    /// `None` for changes that belong to no environment.
    pub environment: Option<EnvironmentKey>,
    /// Kind of object: `version`, `resources`, `agent`, `compile`, …
    pub kind: String,
    /// Object of that kind; its form depends on the kind.
    pub subject: String,
    pub at: Timestamp,
}

/// Subject of a change of versions: their numbers.
pub(crate) fn versions_subject(numbers: &[VersionNumber]) -> String {
    let numbers: Vec<String> = numbers.iter().map(VersionNumber::to_string).collect();
    numbers.join(",")
}

/// Number of changes in the feed; a receiver that is further behind starts over.
pub(crate) const CHANGES_MAX: i64 = 20_000;
pub(crate) const TRIM_INTERVAL: i64 = 1_000;
/// Number of resources that a change names one by one; if there are more, its subject is `*`.
const NAMED_RESOURCES_MAX: usize = 100;

/// Subject of a change of resources: their keys, or `*`.
pub(crate) fn resources_subject(keys: impl ExactSizeIterator<Item = ResourceKey>) -> String {
    if keys.len() > NAMED_RESOURCES_MAX {
        return "*".to_owned();
    }
    let keys: Vec<String> = keys.map(|key| key.0.to_string()).collect();
    keys.join(",")
}

/// Adds a change to the feed, in the transaction that makes it.
pub(crate) fn record_change(
    sql: &mut dyn Sql,
    environment: Option<EnvironmentKey>,
    kind: &str,
    subject: &str,
    at: Timestamp,
) -> Result<()> {
    sql.record_change(&NewChange { environment, kind, subject, at: Some(at) })
}

impl Changes<'_> {
    /// Newest sequence number, from which a receiver that needs only later changes starts.
    ///
    /// # Errors
    /// Database errors.
    pub fn latest(&self) -> Result<ChangeSeq> {
        self.backend().settled_change().map(ChangeSeq)
    }

    /// Sequence number from which on the feed is complete: a receiver that stopped before it may
    /// have missed changes.
    ///
    /// A rolled-back transaction and a crash of the database leave gaps, so the first stored change
    /// may have a greater number. Trimming deletes nothing among the newest `CHANGES_MAX` numbers,
    /// so a number that is missing there never belonged to a change. Both values come from one
    /// statement: the newest number is not older than the snapshot, so it covers every deletion
    /// that the snapshot shows.
    ///
    /// # Errors
    /// Database errors.
    pub fn oldest(&self) -> Result<ChangeSeq> {
        let found = self.query(|sql| {
            let select = format!("SELECT min(id), {} FROM change", sql.newest_change());
            sql.first(&select, &[], |row| Ok((row.integer(0)?, row.int(1)?)))
        })?;
        let Some((Some(first), newest)) = found else { return Ok(ChangeSeq(0)) };
        Ok(ChangeSeq(first.min((newest - CHANGES_MAX).max(0))))
    }

    /// Environments with changes after a sequence number.
    ///
    /// # Errors
    /// Database errors.
    pub fn environments(&self, after: ChangeSeq) -> Result<BTreeSet<EnvironmentKey>> {
        let select = "SELECT DISTINCT environment FROM change WHERE id > ?1 AND environment <> 0";
        let found = self.query(|sql| {
            sql.all(select, values![after.0], |row| Ok(EnvironmentKey(row.int(0)?)))
        })?;
        Ok(found.into_iter().collect())
    }

    /// Changes after a sequence number, oldest first. A receiver that continues after the last one
    /// it got misses none, including those being written meanwhile.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
        &self,
        after: ChangeSeq,
        environment: Option<EnvironmentKey>,
        limit: usize,
    ) -> Result<Vec<ChangeRecord>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let settled = self.backend().settled_change()?;
        let (select, values): (_, &[SqlValue<'_>]) = match environment {
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
        self.query(|sql| {
            sql.all(select, values, |row| {
                let environment = row.int(1)?;
                Ok(ChangeRecord {
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
