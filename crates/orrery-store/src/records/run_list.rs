//! Handler runs of an environment, newest first, under a filter.

use orrery_model::{ChangeKind, OutcomeStatus, Timestamp};

use crate::records::{Actions, Transactions as _};
use crate::resource_loader::parse_id;
use crate::rows::{ACTION_COLUMNS, action_from};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{Action, ActionKey, ActionKind, EnvironmentKey, Result, values};

/// Runs scanned per page, beside those that it returns.
const SCANNED_MAX: usize = 2_000;

/// Filter for runs. All given conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    pub since: Option<Timestamp>,
    /// Runs that changed something, or did not.
    pub changed: Option<bool>,
    /// Any of these; empty for all, including interrupted runs.
    pub outcomes: Vec<OutcomeStatus>,
    pub agent: Option<String>,
}

impl RunQuery {
    fn matches(&self, name: &str, action: &Action) -> Result<bool> {
        let has_changed = action.change.kind != ChangeKind::NoChange;
        let has_outcome = self.outcomes.is_empty()
            || action.outcome.is_some_and(|outcome| self.outcomes.contains(&outcome));
        Ok(action.kind == ActionKind::Deploy
            && has_outcome
            && self.since.is_none_or(|since| action.started >= since)
            && self.changed.is_none_or(|changed| changed == has_changed)
            && match &self.agent {
                Some(agent) => parse_id(name)?.agent() == agent,
                None => true,
            })
    }
}

/// A page of runs.
#[derive(Clone, Debug)]
pub struct RunPage {
    /// Runs with the ids of their resources.
    pub runs: Vec<(String, Action)>,
    /// Cursor of the next page; `None` at the end.
    pub next: Option<ActionKey>,
}

impl Actions<'_> {
    /// Lists handler runs before an action, newest first. A page reads a bounded number of rows: it
    /// may be shorter than requested, or empty, and still have a cursor.
    ///
    /// # Errors
    /// Database errors.
    pub fn list_runs(
        &self,
        environment: EnvironmentKey,
        query: &RunQuery,
        before: Option<ActionKey>,
        limit: usize,
    ) -> Result<RunPage> {
        let select = format!(
            "SELECT {ACTION_COLUMNS}, resource.name FROM action \
             JOIN resource ON resource.id = action.resource \
             WHERE action.environment = ?1 AND action.id < ?2 ORDER BY action.id DESC LIMIT ?3"
        );
        let mut before = before.map_or(i64::MAX, |key| key.0);
        let mut page = RunPage { runs: Vec::new(), next: None };
        let mut scanned = 0;
        // Small pages at first: mostly, the newest runs match.
        let mut at_once = limit + 1;
        loop {
            let (mut read, mut oldest) = (0, None);
            let count = i64::try_from(at_once).unwrap_or(i64::MAX);
            let values = values![environment.0, before, count];
            let found = self.query(|sql| {
                sql.all(&select, values, |row| Ok((row.string(9)?, action_from(row)?)))
            })?;
            let mut is_past = false;
            for (name, action) in found {
                read += 1;
                oldest = Some(action.key);
                // Runs are recorded in the order of their ends: an earlier start may follow, but
                // not by more than a run takes.
                is_past = query
                    .since
                    .is_some_and(|since| action.finished.unwrap_or(action.started) < since);
                if is_past {
                    break;
                }
                if !query.matches(&name, &action)? {
                    continue;
                }
                if page.runs.len() == limit {
                    page.next = page.runs.last().map(|(_, last)| last.key);
                    return Ok(page);
                }
                page.runs.push((name, action));
            }
            scanned += read;
            let Some(last) = oldest.filter(|_| read == at_once && !is_past) else {
                return Ok(page);
            };
            if scanned >= SCANNED_MAX + limit {
                page.next = Some(last);
                return Ok(page);
            }
            before = last.0;
            at_once = (at_once * 4).min(SCANNED_MAX);
        }
    }
}
