//! Answers to requests that clients may repeat: who sends the same request with the same key gets the same answer.

use orrery_model::Timestamp;

use crate::acting::Attempt;
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
    /// The request had an effect, and nobody knows how it was or would have been answered. It began at this time.
    Acted(Timestamp),
    /// The key was used for another request.
    Other,
}

/// Something that the request does is committed.
const ACTED: i64 = 1;
/// That, and there will be no answer.
const INTERRUPTED: i64 = 2;

/// What is done when it is known that everybody who worked on requests is gone: what had no effect may be tried again at once.
pub(crate) const INTERRUPT_ALL: &str = "DELETE FROM idempotency WHERE status IS NULL AND acted = 0; \
     UPDATE idempotency SET acted = 2 WHERE status IS NULL";

impl Records<'_> {
    /// Takes a key for an attempt to carry out a request, unless it is taken. One that was taken before `abandoned` and never
    /// answered counts as free if it had no effect: who had it is gone.
    ///
    /// # Errors
    /// Those of the database.
    pub fn begin_repeatable(
        &self,
        attempt: &Attempt,
        request: &[u8],
        abandoned: Timestamp,
    ) -> Result<Repetition> {
        let Attempt { actor, key, at, .. } = attempt;
        self.change(|sql| {
            let free = "DELETE FROM idempotency \
                 WHERE actor = ?1 AND key = ?2 AND status IS NULL AND acted = 0 AND at < ?3";
            sql.run(free, values![actor, key, abandoned])?;
            let take = "INSERT INTO idempotency (actor, key, request, at) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT DO NOTHING";
            if sql.run(take, values![actor, key, request, *at])? == 1 {
                return Ok(Repetition::First);
            }
            let select = "SELECT request, status, headers, body, acted, at FROM idempotency \
                 WHERE actor = ?1 AND key = ?2";
            let found = sql.first(select, values![actor, key], |row| {
                if row.blob(0)? != Some(request) {
                    return Ok(Repetition::Other);
                }
                if let Some(status) = row.integer(1)? {
                    return Ok(Repetition::Answered(KeptAnswer {
                        status: u16::try_from(status).unwrap_or(500),
                        headers: row.maybe_string(2)?.unwrap_or_default(),
                        body: row.blob(3)?.unwrap_or_default().to_owned(),
                    }));
                }
                let began = row.time(5)?;
                Ok(match row.int(4)? {
                    ACTED if began < abandoned => Repetition::Acted(began),
                    INTERRUPTED => Repetition::Acted(began),
                    _ => Repetition::UnderWay,
                })
            })?;
            // Gone between the two statements: the next attempt takes it.
            Ok(found.unwrap_or(Repetition::UnderWay))
        })
    }

    /// Keeps the answer to a request. If there is none to be repeated, its key is free again, unless it had an effect.
    ///
    /// # Errors
    /// Those of the database.
    pub fn end_repeatable(&self, attempt: &Attempt, answer: Option<&KeptAnswer>) -> Result<()> {
        let Attempt { actor, key, at, .. } = attempt;
        self.change(|sql| {
            if let Some(KeptAnswer { status, headers, body }) = answer {
                let update = "UPDATE idempotency SET status = ?4, headers = ?5, body = ?6 \
                     WHERE actor = ?1 AND key = ?2 AND at = ?3";
                let status = i64::from(*status);
                sql.run(update, values![actor, key, *at, status, headers, &body[..]])?;
                return Ok(());
            }
            let free = "DELETE FROM idempotency \
                 WHERE actor = ?1 AND key = ?2 AND at = ?3 AND acted = 0";
            sql.run(free, values![actor, key, *at])?;
            let interrupt = "UPDATE idempotency SET acted = ?4 \
                 WHERE actor = ?1 AND key = ?2 AND at = ?3";
            sql.run(interrupt, values![actor, key, *at, INTERRUPTED])?;
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
