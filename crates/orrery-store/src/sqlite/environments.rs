//! Environments, their settings and their agents.

use std::collections::BTreeMap;

use orrery_model::{EnvironmentId, ProjectId};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::{record_change, text_from};
use crate::{AgentState, EnvironmentInfo, EnvironmentKey, Result, StoreError};

/// The environment of embedded mode.
const DEFAULT: &str = "default";

pub(super) fn find_default(tx: &Connection) -> Result<Option<EnvironmentKey>> {
    let sql = "SELECT environment.id FROM environment JOIN project \
         ON project.id = environment.project WHERE project.name = ?1 AND environment.name = ?1";
    Ok(tx.query_row(sql, [DEFAULT], |row| row.get(0).map(EnvironmentKey)).optional()?)
}

pub(super) fn create_default(tx: &Connection) -> Result<EnvironmentKey> {
    match find_default(tx)? {
        Some(key) => Ok(key),
        None => Ok(create_environment(tx, DEFAULT, DEFAULT)?.key),
    }
}

pub(super) fn create_environment(
    tx: &Connection,
    project: &str,
    name: &str,
) -> Result<EnvironmentInfo> {
    let sql = "INSERT INTO project (uuid, name) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
    tx.execute(sql, params![ProjectId::new(Uuid::new_v4()).into_bytes(), project])?;
    let sql = "SELECT id FROM project WHERE name = ?1";
    let project_id: i64 = tx.query_row(sql, [project], |row| row.get(0))?;
    let uuid = EnvironmentId::new(Uuid::new_v4());
    let key = super::allocate_id(tx, "environment")?;
    let sql = "INSERT INTO environment (id, uuid, project, name) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT (project, name) DO NOTHING";
    if tx.execute(sql, params![key, uuid.into_bytes(), project_id, name])? == 0 {
        let (project, name) = (project.to_owned(), name.to_owned());
        return Err(StoreError::EnvironmentExists { project, name });
    }
    Ok(EnvironmentInfo {
        key: EnvironmentKey(key),
        uuid,
        project: project.to_owned(),
        name: name.to_owned(),
    })
}

pub(super) fn settings(
    tx: &Connection,
    environment: EnvironmentKey,
) -> Result<BTreeMap<String, serde_json::Value>> {
    let mut statement =
        tx.prepare_cached("SELECT name, value FROM setting WHERE environment = ?1")?;
    let mut rows = statement.query([environment.0])?;
    let mut settings = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let value = serde_json::from_str(text_from(row.get_ref(1)?)?)
            .map_err(|error| StoreError::Unreadable(format!("the setting {name}: {error}")))?;
        settings.insert(name, value);
    }
    Ok(settings)
}

pub(super) fn set_setting(
    tx: &Connection,
    environment: EnvironmentKey,
    name: &str,
    value: Option<&serde_json::Value>,
) -> Result<()> {
    match value {
        Some(value) => tx.execute(
            "INSERT OR REPLACE INTO setting (environment, name, value) VALUES (?1, ?2, ?3)",
            params![environment.0, name, value.to_string()],
        )?,
        None => tx.execute(
            "DELETE FROM setting WHERE environment = ?1 AND name = ?2",
            params![environment.0, name],
        )?,
    };
    record_change(tx, environment, "setting", name)
}

pub(super) fn agents(tx: &Connection, environment: EnvironmentKey) -> Result<Vec<AgentState>> {
    let mut statement = tx.prepare_cached(
        "SELECT name, paused FROM agent WHERE environment = ?1 ORDER BY environment, name",
    )?;
    let agents = statement.query_map([environment.0], |row| {
        Ok(AgentState { name: row.get(0)?, paused: row.get(1)? })
    })?;
    Ok(agents.collect::<rusqlite::Result<_>>()?)
}

/// Pauses or resumes agents. An agent may be paused before a version uses it.
pub(super) fn set_paused(
    tx: &Connection,
    environment: EnvironmentKey,
    agent: Option<&str>,
    paused: bool,
) -> Result<()> {
    match agent {
        Some(name) => tx.execute(
            "INSERT INTO agent (environment, name, paused) VALUES (?1, ?2, ?3) \
             ON CONFLICT (environment, name) DO UPDATE SET paused = excluded.paused",
            params![environment.0, name, paused],
        )?,
        None => tx.execute(
            "UPDATE agent SET paused = ?2 WHERE environment = ?1",
            params![environment.0, paused],
        )?,
    };
    record_change(tx, environment, "agent", agent.unwrap_or("*"))
}
