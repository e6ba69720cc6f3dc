//! What was done in an environment, whatever the resource.

use orrery_model::{ChangeKind, OutcomeStatus};
use rustc_hash::FxHashMap;

use crate::codes::Code as _;
use crate::records::Records;
use crate::rows::{ACTION_COLUMNS, action_from};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{Action, ActionKey, ActionKind, EnvironmentKey, Result, values};

/// Resources by what was done to them. Each counts once, however often it was run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    pub created: u64,
    pub updated: u64,
    pub purged: u64,
}

/// Runs that are worth a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventfulRuns {
    /// Those that changed something or did not end well.
    All,
    /// Those that changed something and ended well.
    Changed,
    /// Those that did not end well.
    Bad,
}

/// What the runs of one resource came to so far.
#[derive(Default)]
struct Folded {
    change: ChangeKind,
    is_deployed: bool,
}

impl Folded {
    /// Takes in a later run. What was created and then updated was created.
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

impl Records<'_> {
    /// The latest actions with the ids of their resources, latest first, before one.
    ///
    /// # Errors
    /// Those of the database.
    pub fn recent_actions(
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
        self.look(|sql| {
            sql.all(&select, values![environment.0, before, limit], |row| {
                Ok((row.string(9)?, action_from(row)?))
            })
        })
    }

    /// Eventful runs of handlers after an action, oldest first, with the ids of their resources. The cost follows what was
    /// done since, not what is stored.
    ///
    /// # Errors
    /// Those of the database.
    pub fn eventful_runs(
        &self,
        environment: EnvironmentKey,
        after: ActionKey,
        which: EventfulRuns,
        limit: usize,
    ) -> Result<Vec<(String, Action)>> {
        let which = match which {
            EventfulRuns::All => {
                "(action.change <> ?4 OR action.outcome IS NULL OR action.outcome <> ?5)"
            }
            EventfulRuns::Changed => "action.change <> ?4 AND action.outcome = ?5",
            // All parameters have to occur.
            EventfulRuns::Bad => {
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
        self.look(|sql| sql.all(&select, values, |row| Ok((row.string(9)?, action_from(row)?))))
    }

    /// Resources that runs after an action changed, of those that are meant. What failed in the end does not count.
    ///
    /// # Errors
    /// Those of the database.
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
        let mut runs: FxHashMap<i64, Folded> = FxHashMap::default();
        self.look(|sql| {
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
}
