//! Branches that environments follow. A row has the last seen state of a branch and the time of its
//! next poll; the process that advances that time does the poll.

use orrery_model::{EnvironmentId, Timestamp};

use crate::records::notifications::{NewNotification, insert_notification};
use crate::records::{
    Branches, NewCompileRecord, Transactions as _, enqueue_automatic_compile, record_change,
};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, values};

/// State of the branch that an environment follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchState {
    pub environment: EnvironmentKey,
    /// A digest of the repository and the branch.
    pub source: String,
    /// The newest commit for which a compile was requested; empty if none.
    pub seen: String,
    /// The commit of the last successful exporting compile; empty if none.
    pub compiled: String,
    /// Time of the last successful poll.
    pub checked: Option<Timestamp>,
    pub due: Timestamp,
    /// Failed polls since then.
    pub failures: u32,
    /// Error of the last poll; empty if it succeeded.
    pub error: String,
    /// Consecutive compiles that could not fetch the commit.
    pub unfetched: u32,
}

/// A branch that an environment is to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFollowedBranch {
    pub environment: EnvironmentKey,
    pub source: String,
    /// Time of the first poll.
    pub due: Timestamp,
}

/// A failed poll of a branch.
#[derive(Clone, Copy, Debug)]
pub struct BranchFailure<'a> {
    pub error: &'a str,
    pub due: Timestamp,
    /// Notification created in the same transaction.
    pub notice: Option<NewNotification<'a>>,
}

const COLUMNS: &str = "SELECT environment, source, seen, compiled, checked, due, failures, error, \
     unfetched FROM followed";

fn count(row: &dyn Row, column: usize) -> Result<u32> {
    Ok(u32::try_from(row.int(column)?).unwrap_or(u32::MAX))
}

fn from_row(row: &dyn Row) -> Result<BranchState> {
    Ok(BranchState {
        environment: EnvironmentKey(row.int(0)?),
        source: row.string(1)?,
        seen: row.string(2)?,
        compiled: row.string(3)?,
        checked: row.maybe_time(4)?,
        due: row.time(5)?,
        failures: count(row, 6)?,
        error: row.string(7)?,
        unfetched: count(row, 8)?,
    })
}

fn record_environment_change(sql: &mut dyn Sql, key: EnvironmentKey, now: Timestamp) -> Result<()> {
    let select = "SELECT uuid FROM environment WHERE id = ?1";
    let uuid: Option<EnvironmentId> = sql.first(select, values![key.0], |row| row.id(0))?;
    record_change(
        sql,
        Some(key),
        "environment",
        &uuid.map_or_else(String::new, |id| id.to_string()),
        now,
    )
}

impl Branches<'_> {
    /// All followed branches.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(&self) -> Result<Vec<BranchState>> {
        self.query(|sql| sql.all(&format!("{COLUMNS} ORDER BY environment"), &[], from_row))
    }

    /// The branch that an environment follows, if any.
    ///
    /// # Errors
    /// Database errors.
    pub fn get(&self, environment: EnvironmentKey) -> Result<Option<BranchState>> {
        let select = format!("{COLUMNS} WHERE environment = ?1");
        self.query(|sql| sql.first(&select, values![environment.0], from_row))
    }

    /// Branches that are due, the longest overdue first.
    ///
    /// # Errors
    /// Database errors.
    pub fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<BranchState>> {
        let select = format!("{COLUMNS} WHERE due <= ?1 ORDER BY due LIMIT ?2");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(|sql| sql.all(&select, values![now, limit], from_row))
    }

    /// Starts to follow a branch. Discards the state of another repository or branch; keeps the
    /// state of this one.
    ///
    /// # Errors
    /// Database errors.
    pub fn follow(&self, branch: &NewFollowedBranch) -> Result<()> {
        let NewFollowedBranch { environment, source, due } = branch;
        self.transact(|sql| {
            let delete = "DELETE FROM followed WHERE environment = ?1 AND source <> ?2";
            sql.run(delete, values![environment.0, source])?;
            let insert = "INSERT INTO followed (environment, source, due) VALUES (?1, ?2, ?3) \
                 ON CONFLICT DO NOTHING";
            sql.run(insert, values![environment.0, source, *due]).map(drop)
        })
    }

    /// Stops following a branch.
    ///
    /// # Errors
    /// Database errors.
    pub fn unfollow(&self, environment: EnvironmentKey) -> Result<()> {
        let delete = "DELETE FROM followed WHERE environment = ?1";
        self.transact(|sql| sql.run(delete, values![environment.0]).map(drop))
    }

    /// Claims a poll: advances the due time of a branch if it is still the given one. False if
    /// another process claimed it first.
    ///
    /// # Errors
    /// Database errors.
    pub fn claim(&self, branch: &BranchState, due: Timestamp) -> Result<bool> {
        let update =
            "UPDATE followed SET due = ?4 WHERE environment = ?1 AND source = ?2 AND due = ?3";
        let values = values![branch.environment.0, &branch.source, branch.due, due];
        self.transact(|sql| Ok(sql.run(update, values)? > 0))
    }

    /// Makes a branch due now, so that the next poller reads it.
    ///
    /// # Errors
    /// Database errors.
    pub fn make_due(&self, environment: EnvironmentKey, now: Timestamp) -> Result<()> {
        let update = "UPDATE followed SET due = ?2 WHERE environment = ?1 AND due > ?2";
        self.transact(|sql| sql.run(update, values![environment.0, now]).map(drop))
    }

    /// Records the head commit of a branch, and requests a compile of a new commit in the same
    /// transaction. Returns true if it did.
    ///
    /// # Errors
    /// Database errors.
    pub fn record_head(
        &self,
        branch: &BranchState,
        commit: &str,
        compile: &NewCompileRecord<'_>,
        (now, due): (Timestamp, Timestamp),
    ) -> Result<bool> {
        let key = branch.environment;
        self.transact(|sql| {
            let select = format!("{COLUMNS} WHERE environment = ?1 AND source = ?2");
            let current = sql.first(&select, values![key.0, &branch.source], from_row)?;
            let Some(current) = current else { return Ok(false) };
            let update = "UPDATE followed SET checked = ?2, due = ?3, failures = 0, error = '', \
                 seen = ?4 WHERE environment = ?1";
            let is_new = current.seen != commit;
            let requested = is_new && enqueue_automatic_compile(sql, key, compile, now)?;
            let seen = if requested { commit } else { &current.seen };
            sql.run(update, values![key.0, now, due, seen])?;
            if current.failures > 0 {
                record_environment_change(sql, key, now)?;
            }
            Ok(requested)
        })
    }

    /// Records a failed poll.
    ///
    /// # Errors
    /// Database errors.
    pub fn record_failure(
        &self,
        branch: &BranchState,
        failure: &BranchFailure<'_>,
        now: Timestamp,
    ) -> Result<()> {
        let key = branch.environment;
        self.transact(|sql| {
            let update = "UPDATE followed SET failures = failures + 1, error = ?3, due = ?4 \
                 WHERE environment = ?1 AND source = ?2";
            let values = values![key.0, &branch.source, failure.error, failure.due];
            if sql.run(update, values)? == 0 {
                return Ok(());
            }
            if branch.error != failure.error {
                record_environment_change(sql, key, now)?;
            }
            match &failure.notice {
                Some(notice) => insert_notification(sql, key, notice, now),
                None => Ok(()),
            }
        })
    }

    /// Records the sources of a compile: `fetched`, the head of the branch at the fetch;
    /// `compiled`, the commit of a successful compile.
    ///
    /// # Errors
    /// Database errors.
    pub fn record_compiled_commit(
        &self,
        environment: EnvironmentKey,
        fetched: Option<&str>,
        compiled: Option<&str>,
    ) -> Result<()> {
        let update = "UPDATE followed SET seen = coalesce(?2, seen), \
             unfetched = CASE WHEN ?2 IS NULL THEN unfetched ELSE 0 END, \
             compiled = coalesce(?3, compiled) WHERE environment = ?1";
        self.transact(|sql| sql.run(update, values![environment.0, fetched, compiled]).map(drop))
    }

    /// Records that a compile could not fetch: the commit is requested again, not before `due`.
    ///
    /// # Errors
    /// Database errors.
    pub fn record_fetch_failure(&self, environment: EnvironmentKey, due: Timestamp) -> Result<()> {
        let update = "UPDATE followed SET seen = '', unfetched = unfetched + 1, due = ?2 \
             WHERE environment = ?1";
        self.transact(|sql| sql.run(update, values![environment.0, due]).map(drop))
    }
}
