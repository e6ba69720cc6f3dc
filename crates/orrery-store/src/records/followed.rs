//! Branches that environments follow. A row says what is known of a branch and when it is looked at next; the process that moves
//! that time forward is the one that looks.

use orrery_model::Timestamp;

use crate::records::notifications::{NewNotification, notify};
use crate::records::{NewCompile, Records, enqueue_consequence, note};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, Result, uuid_text, values};

/// State of the branch that an environment follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    pub environment: EnvironmentKey,
    /// A digest of the repository and the branch.
    pub source: String,
    /// The newest commit that a compile was requested for; empty if none is known.
    pub seen: String,
    /// The commit of the last successful compile that exports; empty if none is known.
    pub compiled: String,
    /// When the branch was last read.
    pub checked: Option<Timestamp>,
    pub due: Timestamp,
    /// Attempts that failed since then.
    pub failures: u32,
    /// Why the last attempt failed; empty if it did not.
    pub error: String,
    /// Compiles in a row that could not fetch the commit.
    pub unfetched: u32,
}

/// A branch that an environment is to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedBranch {
    pub environment: EnvironmentKey,
    pub source: String,
    /// When it is looked at first.
    pub due: Timestamp,
}

/// An attempt to read a branch that failed.
#[derive(Clone, Copy, Debug)]
pub struct FollowedFailure<'a> {
    pub error: &'a str,
    pub due: Timestamp,
    /// Made in the same transaction.
    pub notice: Option<NewNotification<'a>>,
}

const COLUMNS: &str = "SELECT environment, source, seen, compiled, checked, due, failures, error, \
     unfetched FROM followed";

fn count(row: &dyn Row, column: usize) -> Result<u32> {
    Ok(u32::try_from(row.int(column)?).unwrap_or(u32::MAX))
}

fn from_row(row: &dyn Row) -> Result<Followed> {
    Ok(Followed {
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

fn note_environment(sql: &mut dyn Sql, key: EnvironmentKey, now: Timestamp) -> Result<()> {
    let select = "SELECT uuid FROM environment WHERE id = ?1";
    let uuid: Option<[u8; 16]> = sql.first(select, values![key.0], |row| row.id(0))?;
    note(sql, Some(key), "environment", &uuid.map_or_else(String::new, |id| uuid_text(&id)), now)
}

impl Records<'_> {
    /// All branches that are followed.
    ///
    /// # Errors
    /// Those of the database.
    pub fn all_followed(&self) -> Result<Vec<Followed>> {
        self.look(|sql| sql.all(&format!("{COLUMNS} ORDER BY environment"), &[], from_row))
    }

    /// The branch that an environment follows, if one is known.
    ///
    /// # Errors
    /// Those of the database.
    pub fn followed(&self, environment: EnvironmentKey) -> Result<Option<Followed>> {
        let select = format!("{COLUMNS} WHERE environment = ?1");
        self.look(|sql| sql.first(&select, values![environment.0], from_row))
    }

    /// Branches that are due, the longest first.
    ///
    /// # Errors
    /// Those of the database.
    pub fn due_followed(&self, now: Timestamp, limit: usize) -> Result<Vec<Followed>> {
        let select = format!("{COLUMNS} WHERE due <= ?1 ORDER BY due LIMIT ?2");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.look(|sql| sql.all(&select, values![now, limit], from_row))
    }

    /// Begins to follow a branch. What is known of another repository or branch is forgotten; what is known of this one stays.
    ///
    /// # Errors
    /// Those of the database.
    pub fn follow(&self, branch: &FollowedBranch) -> Result<()> {
        let FollowedBranch { environment, source, due } = branch;
        self.change(|sql| {
            let delete = "DELETE FROM followed WHERE environment = ?1 AND source <> ?2";
            sql.run(delete, values![environment.0, source])?;
            let insert = "INSERT INTO followed (environment, source, due) VALUES (?1, ?2, ?3) \
                 ON CONFLICT DO NOTHING";
            sql.run(insert, values![environment.0, source, *due]).map(drop)
        })
    }

    /// Ends to follow a branch.
    ///
    /// # Errors
    /// Those of the database.
    pub fn unfollow(&self, environment: EnvironmentKey) -> Result<()> {
        let delete = "DELETE FROM followed WHERE environment = ?1";
        self.change(|sql| sql.run(delete, values![environment.0]).map(drop))
    }

    /// Takes the right to look at a branch: moves the time at which it is due, if that is still the one that is known. False if
    /// another process was faster.
    ///
    /// # Errors
    /// Those of the database.
    pub fn claim_followed(&self, known: &Followed, due: Timestamp) -> Result<bool> {
        let update =
            "UPDATE followed SET due = ?4 WHERE environment = ?1 AND source = ?2 AND due = ?3";
        let values = values![known.environment.0, &known.source, known.due, due];
        self.change(|sql| Ok(sql.run(update, values)? > 0))
    }

    /// Makes a branch due now, so that the next process that looks for work reads it.
    ///
    /// # Errors
    /// Those of the database.
    pub fn hasten_followed(&self, environment: EnvironmentKey, now: Timestamp) -> Result<()> {
        let update = "UPDATE followed SET due = ?2 WHERE environment = ?1 AND due > ?2";
        self.change(|sql| sql.run(update, values![environment.0, now]).map(drop))
    }

    /// Notes the commit that a branch was found at. A commit that no compile was requested for gets one, in the same transaction.
    /// Answers whether it did.
    ///
    /// # Errors
    /// Those of the database.
    pub fn found_commit(
        &self,
        known: &Followed,
        commit: &str,
        compile: &NewCompile<'_>,
        (now, due): (Timestamp, Timestamp),
    ) -> Result<bool> {
        let key = known.environment;
        self.change(|sql| {
            let select = format!("{COLUMNS} WHERE environment = ?1 AND source = ?2");
            let current = sql.first(&select, values![key.0, &known.source], from_row)?;
            let Some(current) = current else { return Ok(false) };
            let update = "UPDATE followed SET checked = ?2, due = ?3, failures = 0, error = '', \
                 seen = ?4 WHERE environment = ?1";
            let is_new = current.seen != commit;
            let requested = is_new && enqueue_consequence(sql, key, compile, now)?;
            let seen = if requested { commit } else { &current.seen };
            sql.run(update, values![key.0, now, due, seen])?;
            if current.failures > 0 {
                note_environment(sql, key, now)?;
            }
            Ok(requested)
        })
    }

    /// Notes that a branch could not be read.
    ///
    /// # Errors
    /// Those of the database.
    pub fn lost_branch(
        &self,
        known: &Followed,
        failure: &FollowedFailure<'_>,
        now: Timestamp,
    ) -> Result<()> {
        let key = known.environment;
        self.change(|sql| {
            let update = "UPDATE followed SET failures = failures + 1, error = ?3, due = ?4 \
                 WHERE environment = ?1 AND source = ?2";
            let values = values![key.0, &known.source, failure.error, failure.due];
            if sql.run(update, values)? == 0 {
                return Ok(());
            }
            if known.error != failure.error {
                note_environment(sql, key, now)?;
            }
            match &failure.notice {
                Some(notice) => notify(sql, key, notice, now),
                None => Ok(()),
            }
        })
    }

    /// Notes what a compile did with the sources of an environment: `fetched`, the commit that the branch had when it was fetched;
    /// `compiled`, the commit that was compiled successfully.
    ///
    /// # Errors
    /// Those of the database.
    pub fn note_sources(
        &self,
        environment: EnvironmentKey,
        fetched: Option<&str>,
        compiled: Option<&str>,
    ) -> Result<()> {
        let update = "UPDATE followed SET seen = coalesce(?2, seen), \
             unfetched = CASE WHEN ?2 IS NULL THEN unfetched ELSE 0 END, \
             compiled = coalesce(?3, compiled) WHERE environment = ?1";
        self.change(|sql| sql.run(update, values![environment.0, fetched, compiled]).map(drop))
    }

    /// Notes that a compile could not fetch: the commit is asked for again, not before `due`.
    ///
    /// # Errors
    /// Those of the database.
    pub fn note_unfetched(&self, environment: EnvironmentKey, due: Timestamp) -> Result<()> {
        let update = "UPDATE followed SET seen = '', unfetched = unfetched + 1, due = ?2 \
             WHERE environment = ?1";
        self.change(|sql| sql.run(update, values![environment.0, due]).map(drop))
    }
}
