//! Agents: paused or not, and their state after a halt.

use orrery_model::Timestamp;

use crate::records::{Agents, Transactions as _, record_change};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{AgentState, EnvironmentKey, Result, StoreError, values};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRecord {
    pub name: String,
    pub paused: bool,
    /// True if the agent resumes when the halt ends; `Some` only while the environment is halted.
    pub unpause_on_resume: Option<bool>,
}

const COLUMNS: &str = "SELECT name, paused, unpause_on_resume FROM agent WHERE environment = ?1";

fn from_row(row: &dyn Row) -> Result<AgentRecord> {
    Ok(AgentRecord {
        name: row.string(0)?,
        paused: row.flag(1)?,
        unpause_on_resume: row.integer(2)?.map(|flag| flag != 0),
    })
}

fn is_halted(sql: &mut dyn Sql, environment: EnvironmentKey) -> Result<bool> {
    let select = "SELECT halted FROM environment WHERE id = ?1";
    let found = sql.first(select, values![environment.0], |row| row.flag(0))?;
    found.ok_or_else(|| StoreError::not_found("environment", environment.0.to_string()))
}

fn found(touched: u64, agent: Option<&str>) -> Result<()> {
    match agent {
        Some(name) if touched == 0 => Err(StoreError::not_found("agent", name)),
        _ => Ok(()),
    }
}

impl Agents<'_> {
    /// Agents by name, after a name.
    ///
    /// # Errors
    /// Database errors.
    pub fn list(
        &self,
        environment: EnvironmentKey,
        after: &str,
        limit: usize,
    ) -> Result<Vec<AgentRecord>> {
        let select = format!("{COLUMNS} AND name > ?2 ORDER BY name LIMIT ?3");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(|sql| sql.all(&select, values![environment.0, after, limit], from_row))
    }

    /// The agent with a name.
    ///
    /// # Errors
    /// `NotFound` if it does not exist.
    pub fn get(&self, environment: EnvironmentKey, name: &str) -> Result<AgentRecord> {
        let select = format!("{COLUMNS} AND name = ?2");
        let found = self.query(|sql| sql.first(&select, values![environment.0, name], from_row))?;
        found.ok_or_else(|| StoreError::not_found("agent", name))
    }

    /// Pauses or resumes an agent, or all. Idempotent.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` while the environment is halted.
    pub fn pause(
        &self,
        environment: EnvironmentKey,
        agent: Option<&str>,
        paused: bool,
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| {
            if is_halted(sql, environment)? {
                return Err(StoreError::Conflict(
                    "the environment is halted: all agents are paused until it resumes".to_owned(),
                ));
            }
            let update = "UPDATE agent SET paused = ?2 \
                 WHERE environment = ?1 AND (?3 = '' OR name = ?3)";
            let touched = sql.run(update, values![environment.0, paused, agent.unwrap_or("")])?;
            found(touched, agent)?;
            record_change(sql, Some(environment), "agent", agent.unwrap_or("*"), now)
        })
    }

    /// Sets whether an agent, or all, resume when the halt ends.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if the environment is not halted.
    pub fn set_on_resume(
        &self,
        environment: EnvironmentKey,
        agent: Option<&str>,
        unpause: bool,
        now: Timestamp,
    ) -> Result<()> {
        self.transact(|sql| {
            if !is_halted(sql, environment)? {
                return Err(StoreError::Conflict("the environment is not halted".to_owned()));
            }
            let update = "UPDATE agent SET unpause_on_resume = ?2 \
                 WHERE environment = ?1 AND (?3 = '' OR name = ?3)";
            let touched = sql.run(update, values![environment.0, unpause, agent.unwrap_or("")])?;
            found(touched, agent)?;
            record_change(sql, Some(environment), "agent", agent.unwrap_or("*"), now)
        })
    }
}

impl Agents<'_> {
    /// Agents of an environment by name, paused or not.
    ///
    /// # Errors
    /// Database errors.
    pub fn states(&self, environment: EnvironmentKey) -> Result<Vec<AgentState>> {
        let select = format!("{COLUMNS} ORDER BY name");
        self.query(|sql| {
            sql.all(&select, values![environment.0], |row| {
                Ok(AgentState { name: row.string(0)?, paused: row.flag(1)? })
            })
        })
    }
}
