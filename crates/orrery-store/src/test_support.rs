//! Shortcuts of tests, which bring a store into a state with fewer steps than a server takes.

use orrery_model::{EnvironmentId, Timestamp};
use uuid::Uuid;

use crate::records::{
    Agents, Engine, Environments, OnParameterChanged, ParameterWrite, Parameters, Requests,
    Resources, Secrets, Settings, Transactions as _, create_environment,
};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{
    EnvironmentKey, Lease, NewChange, NewParameter, ParameterEffect, ParameterSource, ResourceKey,
    Result, StoreError, values,
};

/// A created environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentInfo {
    pub key: EnvironmentKey,
    pub uuid: EnvironmentId,
    pub project: String,
    pub name: String,
}

impl Environments<'_> {
    /// Creates an environment, and its project if it does not exist.
    ///
    /// # Errors
    /// `EnvironmentExists`.
    pub fn create(&self, project: &str, name: &str) -> Result<EnvironmentInfo> {
        let uuid = EnvironmentId::new(Uuid::new_v4());
        let (project, name) = (project.to_owned(), name.to_owned());
        if !self.transact(|sql| create_environment(sql, &project, &name, uuid))? {
            return Err(StoreError::EnvironmentExists { project, name });
        }
        Ok(EnvironmentInfo { key: self.get(uuid)?.key, uuid, project, name })
    }
}

impl Agents<'_> {
    /// Pauses or resumes an agent, which need not exist yet; `None` stands for every agent.
    ///
    /// # Errors
    /// Database errors.
    pub fn set_paused(
        &self,
        environment: EnvironmentKey,
        agent: Option<&str>,
        paused: bool,
    ) -> Result<()> {
        self.transact(|sql| {
            match agent {
                Some(name) => sql.run(
                    "INSERT INTO agent (environment, name, paused) VALUES (?1, ?2, ?3) \
                     ON CONFLICT (environment, name) DO UPDATE SET paused = excluded.paused",
                    values![environment.0, name, paused],
                )?,
                None => sql.run(
                    "UPDATE agent SET paused = ?2 WHERE environment = ?1",
                    values![environment.0, paused],
                )?,
            };
            let subject = agent.unwrap_or("*");
            let environment = Some(environment);
            sql.record_change(&NewChange { environment, kind: "agent", subject, at: None })
        })
    }
}

impl Parameters<'_> {
    /// Sets a value, whatever it was before. The consequence is committed with it or not at all.
    ///
    /// # Errors
    /// `NoResource` if there is no such resource.
    pub fn put(
        &self,
        environment: EnvironmentKey,
        new: &NewParameter<'_>,
        now: Timestamp,
        then: OnParameterChanged<'_>,
    ) -> Result<ParameterWrite> {
        self.put_if(environment, new, None, now, then)
    }

    /// Deletes a parameter or a fact, whatever its value is.
    ///
    /// # Errors
    /// `NotFound`; `NoResource` if there is no such resource.
    pub fn delete(
        &self,
        environment: EnvironmentKey,
        name: &str,
        resource: Option<&str>,
        now: Timestamp,
        then: OnParameterChanged<'_>,
    ) -> Result<()> {
        self.delete_if(environment, (name, resource), None, now, then)
    }

    /// Sets a parameter without consequences and metadata.
    ///
    /// # Errors
    /// Database errors.
    pub fn set(
        &self,
        environment: EnvironmentKey,
        name: &str,
        value: &str,
        source: ParameterSource,
        now: Timestamp,
    ) -> Result<ParameterEffect> {
        let metadata = Some(&serde_json::Map::new());
        let new = NewParameter { name, value, resource: None, source, expires: false, metadata };
        Ok(self.put(environment, &new, now, OnParameterChanged::Nothing)?.effect)
    }
}

impl Engine<'_> {
    /// Deletes actions that finished before `before`, under a lease. Returns their number.
    ///
    /// # Errors
    /// `StaleEpoch` if the lease is not the current one.
    pub fn expire_actions(&self, lease: &Lease, before: Timestamp) -> Result<u64> {
        self.transact_locked(|sql| {
            sql.check_lease(lease)?;
            let environment = lease.environment.0;
            let select = "SELECT id FROM action WHERE environment = ?1 \
                 AND coalesce(finished, started) >= ?2 ORDER BY id LIMIT 1";
            let first_kept = sql.first(select, values![environment, before], |row| row.int(0))?;
            let delete = "DELETE FROM action WHERE environment = ?1 AND id < ?2";
            sql.run(delete, values![environment, first_kept.unwrap_or(i64::MAX)])
        })
    }
}

impl Requests<'_> {
    /// Environments with requests that no engine has accepted.
    ///
    /// # Errors
    /// Database errors.
    pub fn environments(&self) -> Result<Vec<EnvironmentKey>> {
        let select = "SELECT DISTINCT environment FROM request WHERE finished IS NULL";
        self.query(|sql| sql.all(select, &[], |row| Ok(EnvironmentKey(row.int(0)?))))
    }
}

impl Resources<'_> {
    /// Resources of the newest version that require one, by id. There is no index: the database
    /// scans requirements until `limit` are found.
    ///
    /// # Errors
    /// `NoResource` if it does not exist.
    pub fn dependents(
        &self,
        environment: EnvironmentKey,
        id: &str,
        limit: usize,
    ) -> Result<Vec<ResourceKey>> {
        let found = self.dependents_after(environment, id, "", limit)?;
        Ok(found.into_iter().map(|(key, _)| key).collect())
    }
}

impl Secrets<'_> {
    /// Stores a sealed value, replacing an older one. Returns its revision. `is_known` tells
    /// whether the caller has the key of a sealed value: two processes that start with an empty
    /// vault must not seal with different keys.
    ///
    /// # Errors
    /// `OtherKey` if a remaining value was sealed with an unknown key; database errors.
    pub fn put(
        &self,
        environment: Option<EnvironmentKey>,
        name: &str,
        sealed: &[u8],
        is_known: &dyn Fn(&[u8]) -> bool,
        now: Timestamp,
    ) -> Result<i64> {
        self.put_if(environment, (name, None), sealed, is_known, now)
    }
}

impl Settings<'_> {
    /// Sets a value, or restores the default.
    ///
    /// # Errors
    /// `Protected` if users cannot change it.
    pub fn change(
        &self,
        environment: EnvironmentKey,
        name: &str,
        value: Option<&serde_json::Value>,
        now: Timestamp,
    ) -> Result<()> {
        self.change_if(environment, name, value, None, now)
    }
}
