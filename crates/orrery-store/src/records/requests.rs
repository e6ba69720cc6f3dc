//! What somebody asked an environment's engine to do once.

use orrery_model::Timestamp;

use crate::records::{Records, note};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{ActionKey, EnvironmentKey, Result, StoreError, values};

/// Where the payload of a request keeps the newest action of the time when it was added.
const LATEST_ACTION: &str = "latest_action";

/// A request within one store; a later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey(pub i64);

#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    pub key: RequestKey,
    pub uuid: [u8; 16],
    pub environment: EnvironmentKey,
    /// `deploy`, `repair`, `dry_run`, `facts`, …
    pub kind: String,
    pub payload: serde_json::Value,
    pub created: Timestamp,
    /// When the engine took it in.
    pub taken: Option<Timestamp>,
    pub finished: Option<Timestamp>,
    /// What it came to; before that, how far it is, if there is something to say.
    pub outcome: Option<serde_json::Value>,
    /// The newest action when it was asked for: whatever it brings about has a greater key.
    pub latest_action: Option<ActionKey>,
}

/// Something to be asked for.
#[derive(Clone, Copy, Debug)]
pub struct NewRequest<'a> {
    pub uuid: [u8; 16],
    pub kind: &'a str,
    pub payload: &'a serde_json::Value,
}

const COLUMNS: &str = "SELECT id, uuid, environment, kind, payload, created, taken, finished, \
     coalesce(outcome, 'null') FROM request";

fn from_row(row: &dyn Row) -> Result<RequestRecord> {
    let outcome = row.json(8)?;
    let mut payload = row.json(4)?;
    let latest_action = payload.as_object_mut().and_then(|payload| payload.remove(LATEST_ACTION));
    Ok(RequestRecord {
        key: RequestKey(row.int(0)?),
        uuid: row.id(1)?,
        environment: EnvironmentKey(row.int(2)?),
        kind: row.string(3)?,
        payload,
        created: row.time(5)?,
        taken: row.maybe_time(6)?,
        finished: row.maybe_time(7)?,
        outcome: (!outcome.is_null()).then_some(outcome),
        latest_action: latest_action.and_then(|key| key.as_i64()).map(ActionKey),
    })
}

/// Asks for something, in the transaction of what makes it necessary.
pub(crate) fn insert_request(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    uuid: &[u8; 16],
    kind: &str,
    payload: &serde_json::Value,
    now: Timestamp,
) -> Result<RequestRecord> {
    let mut payload = payload.clone();
    if let Some(payload) = payload.as_object_mut() {
        let latest = "SELECT coalesce(max(id), 0) FROM action";
        let latest = sql.first(latest, &[], |row| row.int(0))?.unwrap_or(0);
        payload.insert(LATEST_ACTION.to_owned(), latest.into());
    }
    let payload = payload.to_string();
    let id = sql.new_number("request")?;
    let insert = "INSERT INTO request (id, uuid, environment, kind, payload, created) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    sql.run(insert, values![id, uuid, environment.0, kind, &payload, now])?;
    note(sql, Some(environment), "request", &crate::uuid_text(uuid), now)?;
    let made = sql.first(&format!("{COLUMNS} WHERE uuid = ?1"), values![uuid], from_row)?;
    made.ok_or_else(|| StoreError::not_found("request", crate::uuid_text(uuid)))
}

/// The right of one process to carry out a request, until another process claims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    request: RequestKey,
    taken: Timestamp,
}

impl Claim {
    /// Refuses a claim that is not the current one, and keeps it current until the transaction ends.
    pub(crate) fn check(&self, sql: &mut dyn Sql) -> Result<()> {
        let lock = "UPDATE request SET taken = taken \
             WHERE id = ?1 AND taken = ?2 AND finished IS NULL";
        if sql.run(lock, values![self.request.0, self.taken])? > 0 {
            return Ok(());
        }
        let select = "SELECT taken FROM request WHERE id = ?1";
        let current = sql.first(select, values![self.request.0], |row| row.maybe_time(0))?;
        let number = |at: Timestamp| u64::try_from(at.0).unwrap_or(0);
        let current = current.flatten().map_or(0, number);
        Err(StoreError::StaleEpoch { held: number(self.taken), current })
    }

    /// Ends the request of a claim that was checked.
    pub(crate) fn finish(
        &self,
        sql: &mut dyn Sql,
        outcome: &serde_json::Value,
        now: Timestamp,
    ) -> Result<()> {
        let update = "UPDATE request SET finished = ?2, outcome = ?3 WHERE id = ?1";
        sql.run(update, values![self.request.0, now, &outcome.to_string()])?;
        let select = format!("{COLUMNS} WHERE id = ?1");
        let ended = sql.first(&select, values![self.request.0], from_row)?;
        ended.map_or(Ok(()), |request| {
            let subject = crate::uuid_text(&request.uuid);
            note(sql, Some(request.environment), "request", &subject, now)
        })
    }
}

impl Records<'_> {
    /// Claims an open request, as it was when it was read: `None` if another process has claimed or finished it since. Whatever the
    /// holder of an earlier claim writes from now on is refused.
    ///
    /// # Errors
    /// Those of the database.
    pub fn claim_request(&self, request: &RequestRecord, now: Timestamp) -> Result<Option<Claim>> {
        // Each claim has another time than the one before it.
        let taken = request.taken.map_or(now, |before| Timestamp(now.0.max(before.0 + 1)));
        let changed = self.change(|sql| match request.taken {
            None => {
                let update = "UPDATE request SET taken = ?2 \
                     WHERE id = ?1 AND taken IS NULL AND finished IS NULL";
                sql.run(update, values![request.key.0, taken])
            }
            Some(before) => {
                let update = "UPDATE request SET taken = ?2 \
                     WHERE id = ?1 AND taken = ?3 AND finished IS NULL";
                sql.run(update, values![request.key.0, taken, before])
            }
        })?;
        Ok((changed > 0).then_some(Claim { request: request.key, taken }))
    }

    /// Asks for something. Whoever owns the environment finds it, also after a restart.
    ///
    /// # Errors
    /// Those of the database.
    pub fn add_request(
        &self,
        environment: EnvironmentKey,
        uuid: [u8; 16],
        kind: &str,
        payload: &serde_json::Value,
        now: Timestamp,
    ) -> Result<RequestRecord> {
        self.change(|sql| insert_request(sql, environment, &uuid, kind, payload, now))
    }

    /// Requests that are not finished, oldest first.
    ///
    /// # Errors
    /// Those of the database.
    pub fn open_requests(&self, environment: EnvironmentKey) -> Result<Vec<RequestRecord>> {
        let select = format!("{COLUMNS} WHERE environment = ?1 AND finished IS NULL ORDER BY id");
        self.look(|sql| sql.all(&select, values![environment.0], from_row))
    }

    /// Environments that have requests which nobody took.
    ///
    /// # Errors
    /// Those of the database.
    pub fn environments_with_requests(&self) -> Result<Vec<EnvironmentKey>> {
        let select = "SELECT DISTINCT environment FROM request WHERE finished IS NULL";
        self.look(|sql| sql.all(select, &[], |row| Ok(EnvironmentKey(row.int(0)?))))
    }

    /// # Errors
    /// `NotFound` if there is none.
    pub fn request(&self, uuid: &[u8; 16]) -> Result<RequestRecord> {
        let select = format!("{COLUMNS} WHERE uuid = ?1");
        let found = self.look(|sql| sql.first(&select, values![uuid], from_row))?;
        found.ok_or_else(|| StoreError::not_found("request", crate::uuid_text(uuid)))
    }

    /// The latest requests of an environment, latest first, before one.
    ///
    /// # Errors
    /// Those of the database.
    pub fn requests(
        &self,
        environment: EnvironmentKey,
        before: Option<RequestKey>,
        limit: usize,
    ) -> Result<Vec<RequestRecord>> {
        let select =
            format!("{COLUMNS} WHERE environment = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3");
        let before = before.map_or(i64::MAX, |key| key.0);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.look(|sql| sql.all(&select, values![environment.0, before, limit], from_row))
    }

    /// Forgets requests that were finished before `before`.
    ///
    /// # Errors
    /// Those of the database.
    pub fn forget_requests(&self, environment: EnvironmentKey, before: Timestamp) -> Result<u64> {
        let delete = "DELETE FROM request WHERE environment = ?1 AND finished < ?2";
        self.change(|sql| sql.run(delete, values![environment.0, before]))
    }

    /// Notes that a request was taken in: after a restart it is taken in again. Says whether it was for the first time.
    ///
    /// # Errors
    /// Those of the database.
    pub fn take_request(&self, key: RequestKey, now: Timestamp) -> Result<bool> {
        let update = "UPDATE request SET taken = ?2 WHERE id = ?1 AND taken IS NULL";
        self.change(|sql| Ok(sql.run(update, values![key.0, now])? > 0))
    }

    /// Says how far a request is that is not finished.
    ///
    /// # Errors
    /// Those of the database.
    pub fn note_progress(
        &self,
        request: &RequestRecord,
        progress: &serde_json::Value,
        now: Timestamp,
    ) -> Result<()> {
        let progress = progress.to_string();
        self.change(|sql| {
            let update = "UPDATE request SET outcome = ?2 WHERE id = ?1 AND finished IS NULL";
            sql.run(update, values![request.key.0, &progress])?;
            let subject = crate::uuid_text(&request.uuid);
            note(sql, Some(request.environment), "request", &subject, now)
        })
    }

    /// Ends a request.
    ///
    /// # Errors
    /// Those of the database.
    pub fn finish_request(
        &self,
        request: &RequestRecord,
        outcome: &serde_json::Value,
        now: Timestamp,
    ) -> Result<()> {
        let outcome = outcome.to_string();
        self.change(|sql| {
            let update = "UPDATE request SET finished = ?2, outcome = ?3 \
                 WHERE id = ?1 AND finished IS NULL";
            sql.run(update, values![request.key.0, now, &outcome])?;
            let subject = crate::uuid_text(&request.uuid);
            note(sql, Some(request.environment), "request", &subject, now)
        })
    }
}
