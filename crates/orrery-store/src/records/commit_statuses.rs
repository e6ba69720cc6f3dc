//! Commit states to be reported to the forge that hosts a repository: the newest state of each
//! commit, until it is delivered.

use orrery_model::{CompileId, Timestamp};

use crate::records::{CommitStatuses, Transactions as _};
use crate::sql::{Row, RowExt as _, SqlExt as _};
use crate::{EnvironmentKey, Result, values};

/// A commit state that is not reported yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitStatusRecord {
    pub environment: EnvironmentKey,
    pub commit: String,
    /// `pending`, `success` or `failure`.
    pub state: String,
    pub description: String,
    /// The compile behind the state.
    pub compile: CompileId,
    /// Time of the state; a newer state replaces it.
    pub changed: Timestamp,
    pub due: Timestamp,
    /// Failed attempts to report it.
    pub failures: u32,
}

/// A commit state to be reported.
#[derive(Clone, Copy, Debug)]
pub struct NewCommitStatus<'a> {
    pub commit: &'a str,
    pub state: &'a str,
    pub description: &'a str,
    pub compile: CompileId,
}

const COLUMNS: &str = "SELECT environment, commit_hash, state, description, compile, changed, due, \
     failures FROM commit_status";

fn from_row(row: &dyn Row) -> Result<CommitStatusRecord> {
    Ok(CommitStatusRecord {
        environment: EnvironmentKey(row.int(0)?),
        commit: row.string(1)?,
        state: row.string(2)?,
        description: row.string(3)?,
        compile: row.id(4)?,
        changed: row.time(5)?,
        due: row.time(6)?,
        failures: u32::try_from(row.int(7)?).unwrap_or(u32::MAX),
    })
}

impl CommitStatuses<'_> {
    /// Stores a commit state, replacing an older one that is not reported yet.
    ///
    /// # Errors
    /// Database errors.
    pub fn put(
        &self,
        environment: EnvironmentKey,
        new: &NewCommitStatus<'_>,
        now: Timestamp,
    ) -> Result<()> {
        let insert = "INSERT INTO commit_status \
             (environment, commit_hash, state, description, compile, changed, due) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6) ON CONFLICT (environment, commit_hash) DO UPDATE \
             SET state = excluded.state, description = excluded.description, \
             compile = excluded.compile, changed = excluded.changed, due = excluded.due, failures = 0";
        let NewCommitStatus { commit, state, description, compile } = *new;
        let values = values![environment.0, commit, state, description, compile, now];
        self.transact(|sql| sql.run(insert, values).map(drop))
    }

    /// States that are due, the longest overdue first.
    ///
    /// # Errors
    /// Database errors.
    pub fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<CommitStatusRecord>> {
        let select = format!("{COLUMNS} WHERE due <= ?1 ORDER BY due LIMIT ?2");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(|sql| sql.all(&select, values![now, limit], from_row))
    }

    /// Unreported states of an environment.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(&self, environment: EnvironmentKey) -> Result<Vec<CommitStatusRecord>> {
        let select = format!("{COLUMNS} WHERE environment = ?1 ORDER BY changed, commit_hash");
        self.query(|sql| sql.all(&select, values![environment.0], from_row))
    }

    /// Claims a state until `due`, in order to report it. False if another process claimed it
    /// first.
    ///
    /// # Errors
    /// Database errors.
    pub fn claim(&self, status: &CommitStatusRecord, due: Timestamp) -> Result<bool> {
        let update = "UPDATE commit_status SET due = ?5 WHERE environment = ?1 AND commit_hash = ?2 \
             AND changed = ?3 AND due = ?4";
        let values = values![status.environment.0, &status.commit, status.changed, status.due, due];
        self.transact(|sql| Ok(sql.run(update, values)? > 0))
    }

    /// Deletes a state that was reported, or cannot be, unless a newer one replaced it.
    ///
    /// # Errors
    /// Database errors.
    pub fn delete(&self, status: &CommitStatusRecord) -> Result<()> {
        let delete = "DELETE FROM commit_status WHERE environment = ?1 AND commit_hash = ?2 \
             AND changed = ?3";
        let values = values![status.environment.0, &status.commit, status.changed];
        self.transact(|sql| sql.run(delete, values).map(drop))
    }

    /// Records a failed report; it is retried when due.
    ///
    /// # Errors
    /// Database errors.
    pub fn postpone(&self, status: &CommitStatusRecord, due: Timestamp) -> Result<()> {
        let update = "UPDATE commit_status SET failures = failures + 1, due = ?4 \
             WHERE environment = ?1 AND commit_hash = ?2 AND changed = ?3";
        let values = values![status.environment.0, &status.commit, status.changed, due];
        self.transact(|sql| sql.run(update, values).map(drop))
    }
}
