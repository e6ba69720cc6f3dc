//! Measurements of environments over time.

use orrery_model::Timestamp;

use crate::records::{Metrics, Transactions as _};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, Result, values};

/// One measurement. A gauge has its value and the count 1; a timer has the number of events and
/// their total time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRecord {
    pub name: String,
    /// Status that was counted, or empty.
    pub category: String,
    pub at: Timestamp,
    pub count: i64,
    /// In thousandths.
    pub value: i64,
}

impl Metrics<'_> {
    /// Stores measurements, replacing those of the same time.
    ///
    /// # Errors
    /// Database errors.
    pub fn add(&self, environment: EnvironmentKey, metrics: &[MetricRecord]) -> Result<()> {
        self.transact(|sql| {
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
    /// Database errors.
    pub fn list(
        &self,
        environment: EnvironmentKey,
        name: &str,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<MetricRecord>> {
        let select = "SELECT category, at, count, value FROM metric \
             WHERE environment = ?1 AND name = ?2 AND at >= ?3 AND at < ?4 ORDER BY at, category";
        self.query(|sql| {
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

    /// Deletes measurements from before `before`.
    ///
    /// # Errors
    /// Database errors.
    pub fn expire(&self, environment: EnvironmentKey, before: Timestamp) -> Result<u64> {
        let delete = "DELETE FROM metric WHERE environment = ?1 AND at < ?2";
        self.transact(|sql| sql.run(delete, values![environment.0, before]))
    }

    /// Compiles that ended between two moments: their number, total run time, and total waiting
    /// time, in microseconds.
    ///
    /// # Errors
    /// Database errors.
    pub fn compile_times(
        &self,
        environment: EnvironmentKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<(i64, i64, i64)> {
        let select = "SELECT count(*), CAST(coalesce(sum(completed - started), 0) AS BIGINT), \
             CAST(coalesce(sum(started - requested), 0) AS BIGINT) FROM compile \
             WHERE environment = ?1 AND started IS NOT NULL AND completed >= ?2 AND completed < ?3";
        let found = self.query(|sql| {
            sql.first(select, values![environment.0, from, until], |row| {
                Ok((row.int(0)?, row.int(1)?, row.int(2)?))
            })
        })?;
        Ok(found.unwrap_or_default())
    }
}
