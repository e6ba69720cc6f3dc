//! Stored responses of idempotent requests: a repeated request with the same key gets the same
//! response.

use orrery_model::Timestamp;

use crate::idempotency::IdempotentRequest;
use crate::records::{Idempotency, Transactions as _};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{Result, values};

/// A response that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    /// As JSON: pairs of names and values.
    pub headers: String,
    pub body: Vec<u8>,
}

/// State of an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// New, and assigned to the caller.
    First,
    /// The request has a response.
    Answered(StoredResponse),
    /// The same request is in progress.
    InProgress,
    /// The request had an effect, and its response is lost. It began at this time.
    Acted(Timestamp),
    /// The key was used for another request.
    Other,
}

/// A change of the request is committed.
const ACTED: i64 = 1;
/// A change is committed, and there will be no response.
const INTERRUPTED: i64 = 2;

/// SQL for a start-up at which no request can be in progress: requests without an effect may be
/// retried at once.
pub(crate) const INTERRUPT_ALL_SQL: &str = "DELETE FROM idempotency WHERE status IS NULL AND acted = 0; \
     UPDATE idempotency SET acted = 2 WHERE status IS NULL";

impl Idempotency<'_> {
    /// Takes a key for an attempt to execute a request, unless it is taken. A key that was taken
    /// before `abandoned`, without a response and without an effect, counts as free: its process is
    /// gone.
    ///
    /// # Errors
    /// Database errors.
    pub fn begin(
        &self,
        attempt: &IdempotentRequest,
        request: &[u8],
        abandoned: Timestamp,
    ) -> Result<KeyState> {
        let IdempotentRequest { actor, key, at, .. } = attempt;
        self.transact(|sql| {
            let free = "DELETE FROM idempotency \
                 WHERE actor = ?1 AND key = ?2 AND status IS NULL AND acted = 0 AND at < ?3";
            sql.run(free, values![actor, key, abandoned])?;
            let take = "INSERT INTO idempotency (actor, key, request, at) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT DO NOTHING";
            if sql.run(take, values![actor, key, request, *at])? == 1 {
                return Ok(KeyState::First);
            }
            let select = "SELECT request, status, headers, body, acted, at FROM idempotency \
                 WHERE actor = ?1 AND key = ?2";
            let found = sql.first(select, values![actor, key], |row| {
                if row.blob(0)? != Some(request) {
                    return Ok(KeyState::Other);
                }
                if let Some(status) = row.integer(1)? {
                    return Ok(KeyState::Answered(StoredResponse {
                        status: u16::try_from(status).unwrap_or(500),
                        headers: row.maybe_string(2)?.unwrap_or_default(),
                        body: row.blob(3)?.unwrap_or_default().to_owned(),
                    }));
                }
                let began = row.time(5)?;
                Ok(match row.int(4)? {
                    ACTED if began < abandoned => KeyState::Acted(began),
                    INTERRUPTED => KeyState::Acted(began),
                    _ => KeyState::InProgress,
                })
            })?;
            // Deleted between the two statements: the next attempt takes it.
            Ok(found.unwrap_or(KeyState::InProgress))
        })
    }

    /// Stores the response of a request. Without a response to be repeated, the key becomes free,
    /// unless the request had an effect.
    ///
    /// # Errors
    /// Database errors.
    pub fn finish(
        &self,
        attempt: &IdempotentRequest,
        answer: Option<&StoredResponse>,
    ) -> Result<()> {
        let IdempotentRequest { actor, key, at, .. } = attempt;
        self.transact(|sql| {
            if let Some(StoredResponse { status, headers, body }) = answer {
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

    /// Deletes keys that were taken before `before`.
    ///
    /// # Errors
    /// Database errors.
    pub fn expire(&self, before: Timestamp) -> Result<u64> {
        self.transact(|sql| sql.run("DELETE FROM idempotency WHERE at < ?1", values![before]))
    }
}
