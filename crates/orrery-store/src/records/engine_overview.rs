//! Engines of all environments: leases, versions and open requests.

use orrery_model::{Timestamp, VersionNumber};

use crate::encoding::{unsigned, version_number_from};
use crate::records::{Engine, Transactions as _};
use crate::sql::{Row, RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, Holder, Result, values};

/// Engine of one environment, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOverview {
    pub environment: EnvironmentKey,
    /// Current lease; `None` if no process runs the engine.
    pub lease: Option<LeaseRecord>,
    /// Version that the engine has accepted.
    pub processed: Option<VersionNumber>,
    /// Newest released version.
    pub released: Option<VersionNumber>,
    /// Number of unfinished requests.
    pub open_requests: u64,
    /// Time of the oldest unfinished request.
    pub oldest_request: Option<Timestamp>,
}

/// A lease that has not expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    pub epoch: u64,
    pub holder: Holder,
    pub expires: Option<Timestamp>,
}

fn from_row(row: &dyn Row) -> Result<EngineOverview> {
    let lease = match row.integer(1)? {
        None => None,
        Some(epoch) => Some(LeaseRecord {
            epoch: unsigned(epoch)?,
            holder: Holder {
                pid: unsigned(row.int(2)?)?,
                host: row.string(3)?,
                command: row.string(4)?,
                since: row.time(5)?,
            },
            expires: row.maybe_time(6)?,
        }),
    };
    Ok(EngineOverview {
        environment: EnvironmentKey(row.int(0)?),
        lease,
        processed: row.integer(7)?.map(version_number_from).transpose()?,
        released: row.integer(8)?.map(version_number_from).transpose()?,
        open_requests: unsigned(row.int(9)?)?,
        oldest_request: row.maybe_time(10)?,
    })
}

impl Engine<'_> {
    /// Engines of all environments.
    ///
    /// # Errors
    /// Database errors.
    pub fn overview(&self) -> Result<Vec<EngineOverview>> {
        self.query(|sql| {
            let clock = sql.now_expression();
            let select = format!(
                "SELECT e.id, l.epoch, l.pid, l.host, l.command, l.since, l.expires, \
                 s.processed_version, v.newest, coalesce(r.open, 0), r.oldest \
                 FROM environment e \
                 LEFT JOIN lease l ON l.environment = e.id AND l.held = 1 \
                 AND (l.expires IS NULL OR l.expires > {clock}) \
                 LEFT JOIN scheduler s ON s.environment = e.id \
                 LEFT JOIN (SELECT environment, max(number) AS newest FROM version \
                 WHERE released = 1 GROUP BY environment) v ON v.environment = e.id \
                 LEFT JOIN (SELECT environment, count(*) AS open, min(created) AS oldest \
                 FROM request WHERE finished IS NULL GROUP BY environment) r \
                 ON r.environment = e.id ORDER BY e.id"
            );
            sql.all(&select, values![], from_row)
        })
    }
}
