//! Requests to the engine of an environment.

use orrery_model::{RequestId, Timestamp};

use crate::records::{Requests, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{
    ActionKey, EnvironmentKey, NewRequest, ProgressRecord, RequestKey, RequestKind, RequestRecord,
    RequestResult, Result, StoreError, values,
};

/// Key in the payload of a request: the newest action when it was added.
const LATEST_ACTION: &str = "latest_action";
/// Key in the payload of a request: the name of the caller.
const ACTOR: &str = "requested_by";

const COLUMNS: &str = "SELECT id, uuid, environment, kind, payload, created, taken, finished, \
     coalesce(outcome, 'null') FROM request";

fn from_row(row: &dyn Row) -> Result<RequestRecord> {
    let (finished, outcome) = (row.maybe_time(7)?, row.json(8)?);
    let outcome = (!outcome.is_null()).then_some(outcome);
    let (progress, result) = match finished {
        Some(_) => (None, outcome.map(RequestResult::from_json)),
        None => (outcome.and_then(|progress| serde_json::from_value(progress).ok()), None),
    };
    let mut payload = row.json(4)?;
    let mut take = |key| payload.as_object_mut().and_then(|payload| payload.remove(key));
    let (latest_action, actor) = (take(LATEST_ACTION), take(ACTOR));
    Ok(RequestRecord {
        key: RequestKey(row.int(0)?),
        uuid: row.id(1)?,
        environment: EnvironmentKey(row.int(2)?),
        kind: RequestKind::from_stored(row.str(3)?, payload),
        created: row.time(5)?,
        taken: row.maybe_time(6)?,
        finished,
        progress,
        result,
        latest_action: latest_action.and_then(|key| key.as_i64()).map(ActionKey),
        actor: actor.and_then(|actor| actor.as_str().map(str::to_owned)),
    })
}

/// Adds a request, in the transaction of its cause.
pub(crate) fn insert_request(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    request: &NewRequest<'_>,
    now: Timestamp,
) -> Result<RequestRecord> {
    let NewRequest { uuid, kind } = *request;
    let mut payload = kind.payload();
    if let Some(payload) = payload.as_object_mut() {
        let latest = "SELECT coalesce(max(id), 0) FROM action";
        let latest = sql.first(latest, &[], |row| row.int(0))?.unwrap_or(0);
        payload.insert(LATEST_ACTION.to_owned(), latest.into());
    }
    let payload = payload.to_string();
    let id = sql.allocate_id("request")?;
    let insert = "INSERT INTO request (id, uuid, environment, kind, payload, created) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    sql.run(insert, values![id, uuid, environment.0, kind.name(), &payload, now])?;
    record_change(sql, Some(environment), "request", &uuid.to_string(), now)?;
    let record = sql.first(&format!("{COLUMNS} WHERE uuid = ?1"), values![uuid], from_row)?;
    record.ok_or_else(|| StoreError::not_found("request", uuid.to_string()))
}

/// Right of one process to execute a request, until another process claims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestClaim {
    request: RequestKey,
    taken: Timestamp,
}

impl RequestClaim {
    /// Fails if the claim is not the current one, and keeps it current until the transaction ends.
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

    /// Finishes the request of a checked claim.
    pub(crate) fn finish(
        &self,
        sql: &mut dyn Sql,
        result: &RequestResult,
        now: Timestamp,
    ) -> Result<()> {
        let update = "UPDATE request SET finished = ?2, outcome = ?3 WHERE id = ?1";
        sql.run(update, values![self.request.0, now, &result.to_json().to_string()])?;
        let select = format!("{COLUMNS} WHERE id = ?1");
        let ended = sql.first(&select, values![self.request.0], from_row)?;
        ended.map_or(Ok(()), |request| {
            let subject = request.uuid.to_string();
            record_change(sql, Some(request.environment), "request", &subject, now)
        })
    }
}

impl Requests<'_> {
    /// Claims an open request in the state in which it was read: `None` if another process has
    /// claimed or finished it since. Writes under an earlier claim are refused from now on.
    ///
    /// # Errors
    /// Database errors.
    pub fn claim(&self, request: &RequestRecord, now: Timestamp) -> Result<Option<RequestClaim>> {
        // Each claim has a different time than the one before it.
        let taken = request.taken.map_or(now, |before| Timestamp(now.0.max(before.0 + 1)));
        let changed = self.transact(|sql| match request.taken {
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
        Ok((changed > 0).then_some(RequestClaim { request: request.key, taken }))
    }

    /// Adds a request. The owner of the environment finds it, also after a restart.
    ///
    /// # Errors
    /// Database errors.
    pub fn add(
        &self,
        environment: EnvironmentKey,
        request: &NewRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestRecord> {
        self.transact(|sql| insert_request(sql, environment, request, now))
    }

    /// Unfinished requests, oldest first.
    ///
    /// # Errors
    /// Database errors.
    pub fn open(&self, environment: EnvironmentKey) -> Result<Vec<RequestRecord>> {
        let select = format!("{COLUMNS} WHERE environment = ?1 AND finished IS NULL ORDER BY id");
        self.query(|sql| sql.all(&select, values![environment.0], from_row))
    }

    /// Unfinished dry runs, oldest first.
    ///
    /// # Errors
    /// Database errors.
    pub fn open_dry_runs(&self, environment: EnvironmentKey) -> Result<Vec<RequestRecord>> {
        self.open_of_kind(environment, RequestKind::DRY_RUN)
    }

    /// Unfinished requests to clear the environment, oldest first.
    ///
    /// # Errors
    /// Database errors.
    pub fn open_clears(&self, environment: EnvironmentKey) -> Result<Vec<RequestRecord>> {
        self.open_of_kind(environment, RequestKind::CLEAR)
    }

    /// Reads no others: thousands of machines that joined before the first version wait with a
    /// repair each.
    fn open_of_kind(&self, environment: EnvironmentKey, kind: &str) -> Result<Vec<RequestRecord>> {
        let select = format!(
            "{COLUMNS} WHERE environment = ?1 AND finished IS NULL AND kind = ?2 ORDER BY id"
        );
        self.query(|sql| sql.all(&select, values![environment.0, kind], from_row))
    }

    /// The request with an id.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn get(&self, uuid: RequestId) -> Result<RequestRecord> {
        let select = format!("{COLUMNS} WHERE uuid = ?1");
        let found = self.query(|sql| sql.first(&select, values![uuid], from_row))?;
        found.ok_or_else(|| StoreError::not_found("request", uuid.to_string()))
    }

    /// Latest requests of an environment before one, latest first.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
        &self,
        environment: EnvironmentKey,
        before: Option<RequestKey>,
        limit: usize,
    ) -> Result<Vec<RequestRecord>> {
        let select =
            format!("{COLUMNS} WHERE environment = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3");
        let before = before.map_or(i64::MAX, |key| key.0);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(|sql| sql.all(&select, values![environment.0, before, limit], from_row))
    }

    /// Latest requests of all environments before one, latest first. With `open`, only unfinished
    /// ones.
    ///
    /// # Errors
    /// Database errors.
    pub fn list_everywhere(
        &self,
        open: bool,
        before: Option<RequestKey>,
        limit: usize,
    ) -> Result<Vec<RequestRecord>> {
        let condition = if open { " AND finished IS NULL" } else { "" };
        let select = format!("{COLUMNS} WHERE id < ?1{condition} ORDER BY id DESC LIMIT ?2");
        let before = before.map_or(i64::MAX, |key| key.0);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(|sql| sql.all(&select, values![before, limit], from_row))
    }

    /// Records the caller of a request.
    ///
    /// # Errors
    /// Database errors.
    pub fn record_actor(&self, key: RequestKey, actor: &str) -> Result<()> {
        self.transact(|sql| {
            let select = "SELECT payload FROM request WHERE id = ?1";
            let Some(mut payload) = sql.first(select, values![key.0], |row| row.json(0))? else {
                return Ok(());
            };
            if let Some(payload) = payload.as_object_mut() {
                payload.insert(ACTOR.to_owned(), actor.into());
            }
            let update = "UPDATE request SET payload = ?2 WHERE id = ?1";
            sql.run(update, values![key.0, &payload.to_string()]).map(drop)
        })
    }

    /// Deletes requests that were finished before `before`.
    ///
    /// # Errors
    /// Database errors.
    pub fn expire(&self, environment: EnvironmentKey, before: Timestamp) -> Result<u64> {
        let delete = "DELETE FROM request WHERE environment = ?1 AND finished < ?2";
        self.transact(|sql| sql.run(delete, values![environment.0, before]))
    }

    /// Records that the engine accepted a request: after a restart it is accepted again. Returns
    /// true for the first time.
    ///
    /// # Errors
    /// Database errors.
    pub fn accept(&self, key: RequestKey, now: Timestamp) -> Result<bool> {
        let update = "UPDATE request SET taken = ?2 WHERE id = ?1 AND taken IS NULL";
        self.transact(|sql| Ok(sql.run(update, values![key.0, now])? > 0))
    }

    /// Records the progress of an unfinished request.
    ///
    /// # Errors
    /// Database errors.
    pub fn record_progress(
        &self,
        request: &RequestRecord,
        progress: &ProgressRecord,
        now: Timestamp,
    ) -> Result<()> {
        let progress = crate::request_kind::to_json(progress).to_string();
        self.transact(|sql| {
            let update = "UPDATE request SET outcome = ?2 WHERE id = ?1 AND finished IS NULL";
            sql.run(update, values![request.key.0, &progress])?;
            let subject = request.uuid.to_string();
            record_change(sql, Some(request.environment), "request", &subject, now)
        })
    }

    /// Finishes a request.
    ///
    /// # Errors
    /// Database errors.
    pub fn finish(
        &self,
        request: &RequestRecord,
        result: &RequestResult,
        now: Timestamp,
    ) -> Result<()> {
        let outcome = result.to_json().to_string();
        self.transact(|sql| {
            let update = "UPDATE request SET finished = ?2, outcome = ?3 \
                 WHERE id = ?1 AND finished IS NULL";
            sql.run(update, values![request.key.0, now, &outcome])?;
            let subject = request.uuid.to_string();
            record_change(sql, Some(request.environment), "request", &subject, now)
        })
    }
}
