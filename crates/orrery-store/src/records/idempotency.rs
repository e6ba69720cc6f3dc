//! Answers to requests that clients may repeat: who sends the same request with the same key gets the same answer.

use orrery_model::Timestamp;

use crate::records::Records;
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{Result, values};

/// An answer that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    pub status: u16,
    /// As JSON: pairs of names and values.
    pub headers: String,
    pub body: Vec<u8>,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// It is new, and belongs to the caller now.
    First,
    /// The request was answered before.
    Answered(KeptAnswer),
    /// The same request is being worked on.
    UnderWay,
    /// The key was used for another request.
    Other,
}

impl Records<'_> {
    /// Takes a key for a request, unless it is taken. One that was taken before `abandoned` and never answered counts as
    /// free: who had it is gone.
    ///
    /// # Errors
    /// Those of the database.
    pub fn begin_repeatable(
        &self,
        actor: &str,
        key: &str,
        request: &[u8],
        abandoned: Timestamp,
        now: Timestamp,
    ) -> Result<Repetition> {
        self.change(|sql| {
            let free = "DELETE FROM idempotency \
                 WHERE actor = ?1 AND key = ?2 AND status IS NULL AND at < ?3";
            sql.run(free, values![actor, key, abandoned])?;
            let take = "INSERT INTO idempotency (actor, key, request, at) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT DO NOTHING";
            if sql.run(take, values![actor, key, request, now])? == 1 {
                return Ok(Repetition::First);
            }
            let select = "SELECT request, status, headers, body FROM idempotency \
                 WHERE actor = ?1 AND key = ?2";
            let found = sql.first(select, values![actor, key], |row| {
                if row.blob(0)? != Some(request) {
                    return Ok(Repetition::Other);
                }
                let Some(status) = row.integer(1)? else { return Ok(Repetition::UnderWay) };
                Ok(Repetition::Answered(KeptAnswer {
                    status: u16::try_from(status).unwrap_or(500),
                    headers: row.maybe_string(2)?.unwrap_or_default(),
                    body: row.blob(3)?.unwrap_or_default().to_owned(),
                }))
            })?;
            // Gone between the two statements: the next attempt takes it.
            Ok(found.unwrap_or(Repetition::UnderWay))
        })
    }

    /// Keeps the answer to a request, or frees its key if there is none to be repeated.
    ///
    /// # Errors
    /// Those of the database.
    pub fn end_repeatable(
        &self,
        actor: &str,
        key: &str,
        answer: Option<&KeptAnswer>,
    ) -> Result<()> {
        self.change(|sql| {
            match answer {
                Some(KeptAnswer { status, headers, body }) => {
                    let update = "UPDATE idempotency SET status = ?3, headers = ?4, body = ?5 \
                         WHERE actor = ?1 AND key = ?2";
                    let status = i64::from(*status);
                    sql.run(update, values![actor, key, status, headers, &body[..]])?
                }
                None => sql.run(
                    "DELETE FROM idempotency WHERE actor = ?1 AND key = ?2",
                    values![actor, key],
                )?,
            };
            Ok(())
        })
    }

    /// Forgets keys that were taken before `before`.
    ///
    /// # Errors
    /// Those of the database.
    pub fn forget_repeatable(&self, before: Timestamp) -> Result<u64> {
        self.change(|sql| sql.run("DELETE FROM idempotency WHERE at < ?1", values![before]))
    }
}
