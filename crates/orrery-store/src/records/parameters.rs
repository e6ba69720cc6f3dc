//! Parameters and facts: lists, reads and writes through the API.

use orrery_model::{RequestId, Timestamp};
use serde_json::{Map, Value};

use crate::encoding::Code as _;
use crate::records::compiles::{NewCompileRecord, enqueue_automatic_compile};
use crate::records::requests::insert_request;
use crate::records::{Parameters, Transactions as _, record_change};
use crate::rows::{PARAMETER_COLUMNS, parameter_from};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{
    EnvironmentKey, Lease, NewRequest, ParameterEffect, ParameterSource, RequestKind, Result,
    Selection, StoreError, StoredParameter, values,
};

/// A value to be set.
#[derive(Clone, Copy, Debug)]
pub struct NewParameter<'a> {
    pub name: &'a str,
    pub value: &'a str,
    /// The resource of a fact; `None` for a parameter.
    pub resource: Option<&'a str>,
    pub source: ParameterSource,
    /// Only for facts.
    pub expires: bool,
    /// Metadata given by the writer; `None` leaves it unchanged.
    pub metadata: Option<&'a Map<String, Value>>,
}

/// Filter for parameters or facts. All given conditions must hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParameterFilter<'a> {
    pub name: Option<&'a str>,
    /// Facts of one resource.
    pub resource: Option<&'a str>,
    pub expires: Option<bool>,
}

/// Position of a fact in lists: its resource's number, and its name.
type FactCursor = (i64, String);

/// Resources of one environment with expired facts.
pub type StaleFacts = (EnvironmentKey, Vec<String>);

fn resource_number(sql: &mut dyn Sql, environment: EnvironmentKey, id: &str) -> Result<i64> {
    let select = "SELECT id FROM resource WHERE environment = ?1 AND name = ?2";
    let found = sql.first(select, values![environment.0, id], |row| row.int(0))?;
    found.ok_or_else(|| StoreError::NoResource(id.to_owned()))
}

fn number_of(sql: &mut dyn Sql, environment: EnvironmentKey, id: Option<&str>) -> Result<i64> {
    id.map_or(Ok(0), |id| resource_number(sql, environment, id))
}

fn fact_from(row: &dyn Row) -> Result<(FactCursor, StoredParameter)> {
    let id = row.string(6)?;
    let fact = parameter_from(row, Some(&id))?;
    Ok(((row.int(7)?, fact.name.clone()), fact))
}

/// Consequence of a changed value, in the transaction that changes it.
#[derive(Clone, Copy, Debug)]
pub enum OnParameterChanged<'a> {
    Nothing,
    /// Requests a compile if the value was unknown to an earlier one, unless automatic compiles are
    /// off. With `if_changed`, also if the value differs from before.
    EnqueueCompile {
        compile: NewCompileRecord<'a>,
        if_changed: bool,
    },
}

impl OnParameterChanged<'_> {
    /// True if a compile was requested.
    fn apply(
        self,
        sql: &mut dyn Sql,
        environment: EnvironmentKey,
        effect: ParameterEffect,
        now: Timestamp,
    ) -> Result<bool> {
        match self {
            OnParameterChanged::EnqueueCompile { compile, if_changed }
                if effect.resolved > 0 || (if_changed && effect.changed > 0) =>
            {
                enqueue_automatic_compile(sql, environment, &compile, now)
            }
            _ => Ok(false),
        }
    }
}

/// Result of setting a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterWrite {
    pub effect: ParameterEffect,
    pub has_requested_compile: bool,
}

/// Sets a value; `then` runs in the same transaction with its effect.
pub(crate) fn put_then(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    new: &NewParameter<'_>,
    expected: Option<i64>,
    now: Timestamp,
    then: &mut dyn FnMut(&mut dyn Sql, ParameterEffect) -> Result<()>,
) -> Result<ParameterEffect> {
    let number = number_of(sql, environment, new.resource)?;
    let select = "SELECT value, metadata, updated FROM parameter \
         WHERE environment = ?1 AND resource = ?2 AND name = ?3";
    let before = sql.first(select, values![environment.0, number, new.name], |row| {
        Ok(((row.string(0)?, row.string(1)?), row.int(2)?))
    })?;
    let (before, updated) = before.unzip();
    StoreError::check_revision("parameter", expected, updated.unwrap_or(0))?;
    let (before, said) = before.unzip();
    let metadata = match new.metadata {
        Some(given) => Value::from(given.clone()).to_string(),
        None => said.unwrap_or_else(|| "{}".to_owned()),
    };
    let insert = "INSERT INTO parameter \
         (environment, resource, name, value, source, updated, expires, metadata) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (environment, resource, name) \
         DO UPDATE SET value = excluded.value, source = excluded.source, \
         updated = excluded.updated, expires = excluded.expires, \
         metadata = excluded.metadata";
    let values = values![
        environment.0,
        number,
        new.name,
        new.value,
        new.source.code(),
        now,
        new.expires,
        &metadata,
    ];
    sql.run(insert, values)?;
    let resolve = "UPDATE unknown SET resolved = 1 \
         WHERE environment = ?1 AND resource = ?2 AND name = ?3 AND resolved = 0";
    let id = new.resource.unwrap_or("");
    let resolved = sql.run(resolve, values![environment.0, id, new.name])?;
    let effect = ParameterEffect {
        changed: usize::from(before.as_deref() != Some(new.value)),
        resolved: usize::try_from(resolved).unwrap_or(usize::MAX),
    };
    record_change(sql, Some(environment), "parameter", new.name, now)?;
    then(sql, effect)?;
    Ok(effect)
}

fn put(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    new: &NewParameter<'_>,
    expected: Option<i64>,
    now: Timestamp,
    then: OnParameterChanged<'_>,
) -> Result<ParameterWrite> {
    let mut has_requested_compile = false;
    let effect = put_then(sql, environment, new, expected, now, &mut |sql, effect| {
        has_requested_compile = then.apply(sql, environment, effect, now)?;
        Ok(())
    })?;
    Ok(ParameterWrite { effect, has_requested_compile })
}

impl Parameters<'_> {
    /// Parameters by name, after a name.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
        &self,
        environment: EnvironmentKey,
        filter: &ParameterFilter<'_>,
        after: &str,
        limit: usize,
    ) -> Result<Vec<StoredParameter>> {
        let select = format!(
            "SELECT {PARAMETER_COLUMNS} FROM parameter WHERE environment = ?1 AND resource = 0 \
             AND name > ?2 AND (?3 = '' OR name = ?3) ORDER BY name LIMIT ?4"
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values = values![environment.0, after, filter.name.unwrap_or(""), limit];
        self.query(|sql| sql.all(&select, values, |row| parameter_from(row, None)))
    }

    /// Facts by resource and name, after a position.
    ///
    /// # Errors
    /// Database errors.
    pub fn list_facts(
        &self,
        environment: EnvironmentKey,
        filter: &ParameterFilter<'_>,
        after: &FactCursor,
        limit: usize,
    ) -> Result<Vec<(FactCursor, StoredParameter)>> {
        let select = format!(
            "SELECT {PARAMETER_COLUMNS}, resource.name, parameter.resource FROM parameter \
             JOIN resource ON resource.id = parameter.resource \
             WHERE parameter.environment = ?1 AND parameter.resource > 0 \
             AND (parameter.resource > ?2 OR (parameter.resource = ?2 AND parameter.name > ?3)) \
             AND (?4 = '' OR parameter.name = ?4) AND (?5 = 0 OR parameter.resource = ?5) \
             AND (?6 < 0 OR parameter.expires = ?6) \
             ORDER BY parameter.resource, parameter.name LIMIT ?7"
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(|sql| {
            let only = match filter.resource {
                None => 0,
                Some(id) => match resource_number(sql, environment, id) {
                    Ok(number) => number,
                    Err(StoreError::NoResource(_)) => return Ok(Vec::new()),
                    Err(error) => return Err(error),
                },
            };
            let values = values![
                environment.0,
                after.0,
                &after.1,
                filter.name.unwrap_or(""),
                only,
                filter.expires.map_or(-1, i64::from),
                limit,
            ];
            sql.all(&select, values, fact_from)
        })
    }

    /// One parameter, or one fact of a resource.
    ///
    /// # Errors
    /// `NotFound`; `NoResource` if there is no such resource.
    pub fn get(
        &self,
        environment: EnvironmentKey,
        name: &str,
        resource: Option<&str>,
    ) -> Result<StoredParameter> {
        let select = format!(
            "SELECT {PARAMETER_COLUMNS} FROM parameter \
             WHERE environment = ?1 AND resource = ?2 AND name = ?3"
        );
        let found = self.query(|sql| {
            let number = number_of(sql, environment, resource)?;
            let values = values![environment.0, number, name];
            sql.first(&select, values, |row| parameter_from(row, resource))
        })?;
        let kind = if resource.is_some() { "fact" } else { "parameter" };
        found.ok_or_else(|| StoreError::not_found(kind, name))
    }

    /// Sets a value; with `expected`, only if the stored value was set at that time, or if there is
    /// none and `expected` is zero. The consequence is committed with it or not at all.
    ///
    /// # Errors
    /// `Outdated` after a concurrent change; `NoResource` if there is no such resource.
    pub fn put_if(
        &self,
        environment: EnvironmentKey,
        new: &NewParameter<'_>,
        expected: Option<i64>,
        now: Timestamp,
        then: OnParameterChanged<'_>,
    ) -> Result<ParameterWrite> {
        self.transact(|sql| put(sql, environment, new, expected, now, then))
    }

    /// Deletes a parameter or a fact, which counts as a change of its value; with `expected`, only if
    /// the stored value was set at that time.
    ///
    /// # Errors
    /// `Outdated` after a concurrent change; `NotFound`; `NoResource` if there is no such resource.
    pub fn delete_if(
        &self,
        environment: EnvironmentKey,
        (name, resource): (&str, Option<&str>),
        expected: Option<i64>,
        now: Timestamp,
        then: OnParameterChanged<'_>,
    ) -> Result<()> {
        self.transact(|sql| {
            let number = number_of(sql, environment, resource)?;
            let select = "SELECT updated FROM parameter \
                 WHERE environment = ?1 AND resource = ?2 AND name = ?3";
            let key = values![environment.0, number, name];
            if let Some(updated) = sql.first(select, key, |row| row.int(0))? {
                StoreError::check_revision("parameter", expected, updated)?;
            }
            let delete =
                "DELETE FROM parameter WHERE environment = ?1 AND resource = ?2 AND name = ?3";
            if sql.run(delete, values![environment.0, number, name])? == 0 {
                let kind = if resource.is_some() { "fact" } else { "parameter" };
                return Err(StoreError::not_found(kind, name));
            }
            record_change(sql, Some(environment), "parameter", name, now)?;
            let effect = ParameterEffect { changed: 1, resolved: 0 };
            then.apply(sql, environment, effect, now).map(drop)
        })
    }

    /// Requests the facts of a resource, at most once per `pause`: the id of the request is derived
    /// from the resource and the time span. Returns true if a request was added.
    ///
    /// # Errors
    /// `NoResource` if there is no such resource.
    pub fn request_facts(
        &self,
        environment: EnvironmentKey,
        resource: &str,
        pause: std::time::Duration,
        now: Timestamp,
    ) -> Result<bool> {
        let span = i64::try_from(pause.as_micros()).unwrap_or(i64::MAX).max(1);
        let kind = &RequestKind::Facts(Selection::of_ids([resource]));
        self.transact(|sql| {
            let number = resource_number(sql, environment, resource)?;
            sql.lock_name(&format!("facts {number}"))?;
            let span_index = now.0.div_euclid(span);
            let id_of = |span_index: i64| {
                let mut id = [0xfa; 16];
                id[1..8].copy_from_slice(&number.to_be_bytes()[1..]);
                id[8..].copy_from_slice(&span_index.to_be_bytes());
                RequestId::from_bytes(id)
            };
            for span_index in [span_index, span_index - 1] {
                let select = "SELECT created FROM request WHERE uuid = ?1";
                let requested = sql.first(select, values![id_of(span_index)], |row| row.time(0))?;
                if requested.is_some_and(|requested| requested + pause > now) {
                    return Ok(false);
                }
            }
            insert_request(sql, environment, &NewRequest { uuid: id_of(span_index), kind }, now)?;
            Ok(true)
        })
    }

    /// Deployed resources with expiring facts from before `before`, in environments that are not
    /// halted. Unmanaged resources are left out.
    ///
    /// # Errors
    /// Database errors.
    pub fn stale_facts(&self, before: Timestamp) -> Result<Vec<StaleFacts>> {
        let select = "SELECT DISTINCT parameter.environment, resource.name FROM parameter \
             JOIN resource ON resource.id = parameter.resource \
             JOIN state ON state.resource = resource.id \
             JOIN environment ON environment.id = parameter.environment \
             WHERE parameter.resource > 0 AND parameter.expires = 1 AND parameter.updated < ?1 \
             AND state.intent IS NOT NULL AND environment.halted = 0 AND environment.deleting = 0 \
             ORDER BY 1, 2";
        let mut found: Vec<StaleFacts> = Vec::new();
        let rows = self.query(|sql| {
            sql.all(select, values![before], |row| {
                Ok((EnvironmentKey(row.int(0)?), row.string(1)?))
            })
        })?;
        for (environment, id) in rows {
            match found.last_mut() {
                Some((last, ids)) if *last == environment => ids.push(id),
                _ => found.push((environment, vec![id])),
            }
        }
        Ok(found)
    }
}

impl Parameters<'_> {
    /// As `put_if`, for a handler. Stored only if the engine still holds the lease: a process that lost
    /// it must not overwrite newer values of another one.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one; `NoResource` if there is no such resource.
    pub fn put_for_handler(
        &self,
        lease: &Lease,
        new: &NewParameter<'_>,
        now: Timestamp,
        then: OnParameterChanged<'_>,
    ) -> Result<ParameterWrite> {
        self.transact(|sql| {
            sql.check_lease(lease)?;
            put(sql, lease.environment, new, None, now, then)
        })
    }

    /// All parameters of an environment by name.
    ///
    /// # Errors
    /// Database errors.
    pub fn all(&self, environment: EnvironmentKey) -> Result<Vec<StoredParameter>> {
        self.list(environment, &ParameterFilter::default(), "", usize::MAX)
    }

    /// Facts of all resources of an entity in the newest version: id of the resource, name and
    /// value, by id.
    ///
    /// # Errors
    /// Database errors.
    pub fn facts_of_entity(
        &self,
        environment: EnvironmentKey,
        entity: &str,
    ) -> Result<Vec<(String, String, String)>> {
        // Ids begin with the entity and a bracket, which is followed by the backslash.
        let (low, high) = (format!("{entity}["), format!("{entity}\\"));
        let select = "SELECT resource.name, parameter.name, parameter.value FROM resource \
             JOIN parameter ON parameter.environment = resource.environment \
             AND parameter.resource = resource.id \
             WHERE resource.environment = ?1 AND resource.name >= ?2 AND resource.name < ?3 \
             AND resource.head IS NOT NULL ORDER BY resource.name, parameter.name";
        self.query(|sql| {
            sql.all(select, values![environment.0, &low, &high], |row| {
                Ok((row.string(0)?, row.string(1)?, row.string(2)?))
            })
        })
    }

    /// Facts of a resource by name; none if there is no such resource.
    ///
    /// # Errors
    /// Database errors.
    pub fn facts(&self, environment: EnvironmentKey, id: &str) -> Result<Vec<StoredParameter>> {
        let select = format!(
            "SELECT {PARAMETER_COLUMNS} FROM resource JOIN parameter ON parameter.environment = ?1 \
             AND parameter.resource = resource.id \
             WHERE resource.environment = ?1 AND resource.name = ?2 ORDER BY parameter.name"
        );
        self.query(|sql| {
            sql.all(&select, values![environment.0, id], |row| parameter_from(row, Some(id)))
        })
    }
}
