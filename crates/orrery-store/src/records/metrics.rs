//! Measurements of environments over time.

use orrery_model::Timestamp;

use crate::records::Records;
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, Result, values};

/// One measurement. A gauge has its value and the count 1; a timer has how often and how long in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRecord {
    pub name: String,
    /// What kind of thing was counted: a status, or empty.
    pub category: String,
    pub at: Timestamp,
    pub count: i64,
    /// In thousandths.
    pub value: i64,
}

impl Records<'_> {
    /// Keeps measurements. One that was made at the same time already is replaced.
    ///
    /// # Errors
    /// Those of the database.
    pub fn add_metrics(&self, environment: EnvironmentKey, metrics: &[MetricRecord]) -> Result<()> {
        self.change(|sql| {
            let insert = "INSERT INTO metric (environment, at, name, category, count, value) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (environment, name, at, category) \
                 DO UPDATE SET count = excluded.count, value = excluded.value";
            for metric in metrics {
                let MetricRecord { name, category, at, count, value } = metric;
                sql.run(insert, values![environment.0, *at, name, category, *count, *value])?;
            }
            Ok(())
        })
    }

    /// Measurements of one name from `from` until before `until`, oldest first.
    ///
    /// # Errors
    /// Those of the database.
    pub fn metrics(
        &self,
        environment: EnvironmentKey,
        name: &str,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<MetricRecord>> {
        let select = "SELECT category, at, count, value FROM metric \
             WHERE environment = ?1 AND name = ?2 AND at >= ?3 AND at < ?4 ORDER BY at, category";
        self.look(|sql| {
            sql.all(select, values![environment.0, name, from, until], |row| {
                Ok(MetricRecord {
                    name: name.to_owned(),
                    category: row.string(0)?,
                    at: row.time(1)?,
                    count: row.int(2)?,
                    value: row.int(3)?,
                })
            })
        })
    }

    /// Forgets measurements that were made before `before`.
    ///
    /// # Errors
    /// Those of the database.
    pub fn forget_metrics(&self, environment: EnvironmentKey, before: Timestamp) -> Result<u64> {
        let delete = "DELETE FROM metric WHERE environment = ?1 AND at < ?2";
        self.change(|sql| sql.run(delete, values![environment.0, before]))
    }

    /// Compiles that ended between two moments: how many, how long they took, and how long they had waited, in microseconds.
    ///
    /// # Errors
    /// Those of the database.
    pub fn compile_times(
        &self,
        environment: EnvironmentKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<(i64, i64, i64)> {
        let select = "SELECT count(*), CAST(coalesce(sum(completed - started), 0) AS BIGINT), \
             CAST(coalesce(sum(started - requested), 0) AS BIGINT) FROM compile \
             WHERE environment = ?1 AND started IS NOT NULL AND completed >= ?2 AND completed < ?3";
        let found = self.look(|sql| {
            sql.first(select, values![environment.0, from, until], |row| {
                Ok((row.int(0)?, row.int(1)?, row.int(2)?))
            })
        })?;
        Ok(found.unwrap_or_default())
    }

    /// Takes a turn at something that one process of an installation does from time to time: true for the first that names a
    /// moment after all that were named before.
    ///
    /// # Errors
    /// Those of the database.
    pub fn take_turn(&self, what: &str, at: Timestamp) -> Result<bool> {
        // As text of equal length, which is in the order of the numbers.
        let (name, value) = (format!("turn: {what}"), format!("{:020}", at.0));
        self.change(|sql| {
            let insert = "INSERT INTO meta (name, value) VALUES (?1, ?2) \
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value \
                 WHERE meta.value < excluded.value";
            Ok(sql.run(insert, values![&name, &value])? > 0)
        })
    }

    /// Forgets the logs of actions that finished before `before`, a part at a time. Answers how many.
    ///
    /// # Errors
    /// Those of the database.
    pub fn forget_logs(&self, environment: EnvironmentKey, before: Timestamp) -> Result<u64> {
        const AT_ONCE: i64 = 5_000;
        // Actions are kept in the order in which they ended, give or take a batch: the search ends at the first that stays.
        let first = "SELECT id FROM action WHERE coalesce(finished, started) >= ?1 \
             ORDER BY id LIMIT 1";
        let first = self.look(|sql| sql.first(first, values![before], |row| row.int(0)))?;
        let delete = "DELETE FROM action WHERE id IN (SELECT id FROM action WHERE id < ?2 \
             AND environment = ?1 ORDER BY id LIMIT ?3)";
        let mut all = 0;
        loop {
            let values = values![environment.0, first.unwrap_or(i64::MAX), AT_ONCE];
            let deleted = self.change(|sql| sql.run(delete, values))?;
            all += deleted;
            if i64::try_from(deleted).unwrap_or(i64::MAX) < AT_ONCE {
                return Ok(all);
            }
        }
    }
}
