//! Actions of an environment, across resources.

use orrery_model::{ChangeKind, OutcomeStatus, Timestamp};
use rustc_hash::FxHashMap;

use crate::encoding::Code as _;
use crate::records::{Actions, Transactions as _};
use crate::rows::{ACTION_COLUMNS, action_from};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{Action, ActionKey, ActionKind, EnvironmentKey, Result, values};

/// Resources by kind of change. Each counts once, however often it was run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    pub created: u64,
    pub updated: u64,
    pub purged: u64,
}

/// Selection of runs that are worth a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunSelection {
    /// Runs that changed something or failed.
    All,
    /// Runs that changed something and succeeded.
    Changed,
    /// Runs that failed or were skipped.
    Bad,
}

/// Accumulated result of the runs of one resource.
#[derive(Default)]
struct FoldedRuns {
    change: ChangeKind,
    is_deployed: bool,
}

impl FoldedRuns {
    /// Adds a later run. A resource that was created and then updated counts as created.
    fn add(&mut self, change: ChangeKind, outcome: Option<OutcomeStatus>) {
        let strength = |change| match change {
            ChangeKind::NoChange => 0,
            ChangeKind::Updated => 1,
            ChangeKind::Purged => 2,
            ChangeKind::Created => 3,
        };
        self.is_deployed = outcome == Some(OutcomeStatus::Deployed);
        if self.is_deployed && strength(change) > strength(self.change) {
            self.change = change;
        }
    }
}

impl Actions<'_> {
    /// Latest actions before one, latest first, with the ids of their resources.
    ///
    /// # Errors
    /// Database errors.
    pub fn recent(
        &self,
        environment: EnvironmentKey,
        before: Option<ActionKey>,
        limit: usize,
    ) -> Result<Vec<(String, Action)>> {
        let select = format!(
            "SELECT {ACTION_COLUMNS}, resource.name FROM action \
             JOIN resource ON resource.id = action.resource \
             WHERE action.environment = ?1 AND action.id < ?2 ORDER BY action.id DESC LIMIT ?3"
        );
        let before = before.map_or(i64::MAX, |key| key.0);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(|sql| {
            sql.all(&select, values![environment.0, before, limit], |row| {
                Ok((row.string(9)?, action_from(row)?))
            })
        })
    }

    /// Eventful handler runs after an action, oldest first, with the ids of their resources. The
    /// cost depends on the number of later actions, not on the size of the store.
    ///
    /// # Errors
    /// Database errors.
    pub fn eventful_runs(
        &self,
        environment: EnvironmentKey,
        after: ActionKey,
        which: RunSelection,
        limit: usize,
    ) -> Result<Vec<(String, Action)>> {
        let which = match which {
            RunSelection::All => {
                "(action.change <> ?4 OR action.outcome IS NULL OR action.outcome <> ?5)"
            }
            RunSelection::Changed => "action.change <> ?4 AND action.outcome = ?5",
            // Every parameter has to occur in the statement.
            RunSelection::Bad => {
                "(action.outcome IS NULL OR action.outcome <> ?5) AND action.change >= ?4"
            }
        };
        let select = format!(
            "SELECT {ACTION_COLUMNS}, resource.name FROM action \
             JOIN resource ON resource.id = action.resource \
             WHERE action.environment = ?1 AND action.id > ?2 AND action.kind = ?3 AND {which} \
             ORDER BY action.id LIMIT ?6"
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (deploy, same) = (ActionKind::Deploy.code(), ChangeKind::NoChange.code());
        let deployed = OutcomeStatus::Deployed.code();
        let values = values![environment.0, after.0, deploy, same, deployed, limit];
        self.query(|sql| sql.all(&select, values, |row| Ok((row.string(9)?, action_from(row)?))))
    }

    /// Counts the selected resources that runs after an action changed. A resource whose last run
    /// failed does not count.
    ///
    /// # Errors
    /// Database errors.
    pub fn count_changes(
        &self,
        environment: EnvironmentKey,
        after: ActionKey,
        is_meant: &dyn Fn(&str) -> bool,
    ) -> Result<ChangeCounts> {
        let select = "SELECT action.resource, action.change, action.outcome, resource.name \
             FROM action JOIN resource ON resource.id = action.resource \
             WHERE action.environment = ?1 AND action.id > ?2 AND action.kind = ?3 \
             ORDER BY action.id";
        let mut runs: FxHashMap<i64, FoldedRuns> = FxHashMap::default();
        self.query(|sql| {
            runs.clear();
            let values = values![environment.0, after.0, ActionKind::Deploy.code()];
            sql.visit(select, values, &mut |row| {
                if is_meant(row.str(3)?) {
                    let outcome = row.integer(2)?.map(OutcomeStatus::from_code).transpose()?;
                    let change = ChangeKind::from_code(row.int(1)?)?;
                    runs.entry(row.int(0)?).or_default().add(change, outcome);
                }
                Ok(())
            })
        })?;
        let mut counts = ChangeCounts::default();
        for run in runs.values().filter(|run| run.is_deployed) {
            match run.change {
                ChangeKind::NoChange => {}
                ChangeKind::Created => counts.created += 1,
                ChangeKind::Updated => counts.updated += 1,
                ChangeKind::Purged => counts.purged += 1,
            }
        }
        Ok(counts)
    }

    /// Deletes actions that finished before `before`, in batches. Returns their number.
    ///
    /// # Errors
    /// Database errors.
    pub fn expire_logs(&self, environment: EnvironmentKey, before: Timestamp) -> Result<u64> {
        const BATCH: i64 = 5_000;
        // Actions are stored in the order in which they ended, except within a batch: the search
        // ends at the first that stays.
        let first = "SELECT id FROM action WHERE coalesce(finished, started) >= ?1 \
             ORDER BY id LIMIT 1";
        let first = self.query(|sql| sql.first(first, values![before], |row| row.int(0)))?;
        let delete = "DELETE FROM action WHERE id IN (SELECT id FROM action WHERE id < ?2 \
             AND environment = ?1 ORDER BY id LIMIT ?3)";
        let mut all = 0;
        loop {
            let values = values![environment.0, first.unwrap_or(i64::MAX), BATCH];
            let deleted = self.transact(|sql| sql.run(delete, values))?;
            all += deleted;
            if i64::try_from(deleted).unwrap_or(i64::MAX) < BATCH {
                return Ok(all);
            }
        }
    }
}

impl Actions<'_> {
    /// Latest actions on a resource before `before`, latest first.
    ///
    /// # Errors
    /// Database errors.
    pub fn of_resource(
        &self,
        environment: EnvironmentKey,
        id: &str,
        before: Option<ActionKey>,
        limit: usize,
    ) -> Result<Vec<Action>> {
        let select = format!(
            "SELECT {ACTION_COLUMNS} FROM action WHERE action.resource = \
                 (SELECT id FROM resource WHERE environment = ?1 AND name = ?2) \
             AND action.id < ?3 ORDER BY action.id DESC LIMIT ?4"
        );
        let before = before.map_or(i64::MAX, |key| key.0);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values = values![environment.0, id, before, limit];
        self.query(|sql| sql.all(&select, values, |row| action_from(row)))
    }
}
