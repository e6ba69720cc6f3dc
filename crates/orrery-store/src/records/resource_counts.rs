//! Counts of resources. The database groups them by everything that a status depends on; the model
//! determines the status.

use orrery_model::{AttributeHash, Blocked, OutcomeStatus, ResourceState, Status, Timestamp};
use rustc_hash::FxHashMap;

use crate::encoding::{Code as _, REMOVAL};
use crate::records::pending_release::{MAY_EXIST_SQL, has_pending_release_sql, is_removing_sql};
use crate::records::{Resources, Transactions as _};
use crate::sql::{Row, RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, Result, values};

/// Number of resources of an agent with a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusCount {
    pub agent: String,
    pub status: Status,
    pub count: u64,
    /// Parked ones among them: not retried without a decision of an operator.
    pub parked: u64,
    /// Removals by the newest version among them.
    pub removals: u64,
    /// Oldest of their last runs.
    pub oldest_run: Option<Timestamp>,
}

/// Contribution of a group to its agent and status.
#[derive(Default)]
struct Sum {
    count: u64,
    parked: u64,
    removals: u64,
    oldest_run: Option<Timestamp>,
}

/// Statement that returns one row per group, with everything that determines the status as columns
/// 1 to 7. For resources that no engine has processed, the version determines it; so for all, if no
/// engine has processed the version.
fn counts_sql(position: &str) -> String {
    let bracket = format!("{position}(resource.name, '[')");
    let (ahead, removing) = (has_pending_release_sql("?1"), is_removing_sql("?1"));
    format!(
        "SELECT substr(resource.name, {bracket} + 1, {position}(resource.name, ',') - {bracket} - 1), \
         CASE WHEN running.resource IS NULL THEN 0 ELSE 1 END, \
         CASE WHEN release.has_pending_release = 1 AND resource.head IS NULL THEN 0 \
         WHEN release.has_pending_release = 0 AND state.resource IS NOT NULL AND state.intent IS NULL THEN 0 \
         ELSE 1 END, \
         coalesce(CASE WHEN release.has_pending_release = 1 THEN revision.flags & 1 END, state.undefined, \
         revision.flags & 1), \
         coalesce(state.blocked, revision.flags & 1), \
         state.last_run_compliant, state.last_outcome, \
         CASE WHEN state.last_deployed = \
         CASE WHEN release.has_pending_release = 1 THEN revision.hash ELSE state.intent END \
         THEN 1 ELSE 0 END, count(*), CAST(sum(coalesce(state.parked, 0)) AS BIGINT), \
         min(state.last_run_at), \
         CAST(sum(CASE WHEN release.is_removing = 1 AND (revision.flags & {REMOVAL}) <> 0 \
         THEN 1 ELSE 0 END) AS BIGINT) \
         FROM (SELECT {ahead} AS has_pending_release, {removing} AS is_removing) AS release \
         CROSS JOIN resource \
         LEFT JOIN state ON state.resource = resource.id \
         LEFT JOIN running ON running.resource = resource.id \
         LEFT JOIN revision \
         ON revision.id = CASE WHEN release.has_pending_release = 1 OR release.is_removing = 1 \
         OR state.resource IS NULL THEN resource.head END \
         WHERE resource.environment = ?1 \
         AND (resource.head IS NOT NULL OR {MAY_EXIST_SQL}) \
         GROUP BY 1, 2, 3, 4, 5, 6, 7, 8"
    )
}

/// A state with the status of all resources in a group.
fn state_of(row: &dyn Row) -> Result<ResourceState> {
    // The value of a hash does not matter, only presence and equality.
    let hash = AttributeHash([0; 16]);
    let mut state = ResourceState::new(hash, row.flag(3)?);
    state.deploying = row.flag(1)?;
    state.intent = row.flag(2)?.then_some(hash);
    state.blocked = Blocked::from_code(row.int(4)?)?;
    state.last_run_compliant = row.integer(5)?.map(|compliant| compliant != 0);
    state.last_outcome = row.integer(6)?.map(OutcomeStatus::from_code).transpose()?;
    state.last_deployed = row.flag(7)?.then_some(hash);
    Ok(state)
}

impl Resources<'_> {
    /// Counts resources by agent and status. Reads all of them: expensive.
    ///
    /// # Errors
    /// Database errors.
    pub fn count(&self, environment: EnvironmentKey) -> Result<Vec<StatusCount>> {
        let mut counts: FxHashMap<(String, Status), Sum> = FxHashMap::default();
        self.query(|sql| {
            let statement = counts_sql(sql.position_function());
            let groups = sql.all(&statement, values![environment.0], |row| {
                let number =
                    |column| -> Result<u64> { Ok(u64::try_from(row.int(column)?).unwrap_or(0)) };
                let sum = Sum {
                    count: number(8)?,
                    parked: number(9)?,
                    removals: number(11)?,
                    oldest_run: row.maybe_time(10)?,
                };
                Ok((row.string(0)?, state_of(row)?.status(), sum))
            })?;
            counts.clear();
            for (agent, status, group) in groups {
                let sum = counts.entry((agent, status)).or_default();
                sum.count += group.count;
                sum.parked += group.parked;
                sum.removals += group.removals;
                let runs = [sum.oldest_run, group.oldest_run];
                sum.oldest_run = runs.into_iter().flatten().min();
            }
            Ok(())
        })?;
        let mut found: Vec<StatusCount> = counts
            .into_iter()
            .map(|((agent, status), Sum { count, parked, removals, oldest_run })| StatusCount {
                agent,
                status,
                count,
                parked,
                removals,
                oldest_run,
            })
            .collect();
        found.sort_unstable_by(|a, b| (&a.agent, a.status).cmp(&(&b.agent, b.status)));
        Ok(found)
    }
}
