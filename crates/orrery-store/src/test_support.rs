//! Shortcuts of tests, which bring a store into a state with fewer steps than a server takes.

use orrery_model::{EnvironmentId, Timestamp};
use uuid::Uuid;

use crate::records::{
    Agents, Engine, Environments, OnParameterChanged, Parameters, Transactions as _,
    create_environment,
};
use crate::sql::{RowExt as _, SqlExt as _};
use crate::{
    EnvironmentKey, Lease, NewChange, NewParameter, ParameterEffect, ParameterSource, Result,
    StoreError, values,
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
