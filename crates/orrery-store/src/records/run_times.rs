//! Number and run time of handler runs, for metrics.

use orrery_model::{OutcomeStatus, Timestamp};

use crate::encoding::Code as _;
use crate::records::{Actions, Transactions as _};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{ActionKey, ActionKind, EnvironmentKey, Result, values};

/// Runs of one environment with one outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTimes {
    pub environment: EnvironmentKey,
    pub outcome: OutcomeStatus,
    /// Number of runs.
    pub count: i64,
    /// Total run time in microseconds.
    pub took: i64,
    /// Of the runs, those that changed something.
    pub changed: i64,
}

impl Actions<'_> {
    /// The newest action of all environments.
    ///
    /// # Errors
    /// Database errors.
    pub fn newest(&self) -> Result<ActionKey> {
        let select = "SELECT coalesce(max(id), 0) FROM action";
        let found = self.query(|sql| sql.first(select, &[], |row| row.int(0)))?;
        Ok(ActionKey(found.unwrap_or(0)))
    }

    /// Sums the runs of all environments that ended between two moments, by outcome. Reads the
    /// actions after `after` only.
    ///
    /// # Errors
    /// Database errors.
    pub fn run_times(
        &self,
        after: ActionKey,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<RunTimes>> {
        let select = "SELECT environment, outcome, count(*), \
             CAST(sum(finished - started) AS BIGINT), \
             CAST(sum(CASE WHEN change <> 0 THEN 1 ELSE 0 END) AS BIGINT) FROM action \
             WHERE id > ?1 AND kind = ?2 AND outcome IS NOT NULL \
             AND finished >= ?3 AND finished < ?4 \
             GROUP BY environment, outcome ORDER BY environment, outcome";
        self.query(|sql| {
            sql.all(select, values![after.0, ActionKind::Deploy.code(), from, until], |row| {
                Ok(RunTimes {
                    environment: EnvironmentKey(row.int(0)?),
                    outcome: OutcomeStatus::from_code(row.int(1)?)?,
                    count: row.int(2)?,
                    took: row.int(3)?,
                    changed: row.int(4)?,
                })
            })
        })
    }
}
