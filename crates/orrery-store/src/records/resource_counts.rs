//! Counts of resources. The database groups them by all that a status depends on; which status that is, the model says.

use orrery_model::{AttributeHash, Blocked, OutcomeStatus, ResourceState, Status, Timestamp};
use rustc_hash::FxHashMap;

use crate::codes::{Code as _, REMOVAL};
use crate::records::Records;
use crate::records::released::{LEFT_BEHIND, is_ahead, is_removing};
use crate::sql::{Row, RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, Result, values};

/// How many resources of an agent have a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusCount {
    pub agent: String,
    pub status: Status,
    pub count: u64,
    /// Of those, how many are parked: given up until somebody asks for them.
    pub parked: u64,
    /// Of those, how many the newest version removes.
    pub removals: u64,
    /// The oldest of their last runs: since then each was looked at.
    pub oldest_run: Option<Timestamp>,
}

/// What a group adds to its agent and status.
#[derive(Default)]
struct Sum {
    count: u64,
    parked: u64,
    removals: u64,
    oldest_run: Option<Timestamp>,
}

/// One group: all that matters for the status, as columns 1 to 7. Those that no engine has seen are what their version says, and so
/// are all if no engine has seen the version.
fn statement(position: &str) -> String {
    let bracket = format!("{position}(resource.name, '[')");
    let (ahead, removing) = (is_ahead("?1"), is_removing("?1"));
    format!(
        "SELECT substr(resource.name, {bracket} + 1, {position}(resource.name, ',') - {bracket} - 1), \
         CASE WHEN running.resource IS NULL THEN 0 ELSE 1 END, \
         CASE WHEN release.is_ahead = 1 AND resource.head IS NULL THEN 0 \
         WHEN release.is_ahead = 0 AND state.resource IS NOT NULL AND state.intent IS NULL THEN 0 \
         ELSE 1 END, \
         coalesce(CASE WHEN release.is_ahead = 1 THEN revision.flags & 1 END, state.undefined, \
         revision.flags & 1), \
         coalesce(state.blocked, revision.flags & 1), \
         state.last_run_compliant, state.last_outcome, \
         CASE WHEN state.last_deployed = \
         CASE WHEN release.is_ahead = 1 THEN revision.hash ELSE state.intent END \
         THEN 1 ELSE 0 END, count(*), CAST(sum(coalesce(state.parked, 0)) AS BIGINT), \
         min(state.last_run_at), \
         CAST(sum(CASE WHEN release.is_removing = 1 AND (revision.flags & {REMOVAL}) <> 0 \
         THEN 1 ELSE 0 END) AS BIGINT) \
         FROM (SELECT {ahead} AS is_ahead, {removing} AS is_removing) AS release \
         CROSS JOIN resource \
         LEFT JOIN state ON state.resource = resource.id \
         LEFT JOIN running ON running.resource = resource.id \
         LEFT JOIN revision \
         ON revision.id = CASE WHEN release.is_ahead = 1 OR release.is_removing = 1 \
         OR state.resource IS NULL THEN resource.head END \
         WHERE resource.environment = ?1 \
         AND (resource.head IS NOT NULL OR {LEFT_BEHIND}) \
         GROUP BY 1, 2, 3, 4, 5, 6, 7, 8"
    )
}

/// A state that has the status of all in a group.
fn state_of(row: &dyn Row) -> Result<ResourceState> {
    // Which hash it is does not matter, only whether there is one and which are the same.
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

impl Records<'_> {
    /// Resources by agent and status. It reads all of them: ask seldom.
    ///
    /// # Errors
    /// Those of the database.
    pub fn count_resources(&self, environment: EnvironmentKey) -> Result<Vec<StatusCount>> {
        let mut counts: FxHashMap<(String, Status), Sum> = FxHashMap::default();
        self.look(|sql| {
            let statement = statement(sql.position());
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
