//! Environments, their settings and their agents.

use std::collections::BTreeMap;

use super::transaction::Tx;
use crate::sql::RowExt as _;
use crate::{AgentState, EnvironmentInfo, EnvironmentKey, Result, StoreError};

/// The environment of embedded mode.
const DEFAULT: &str = "default";

pub(super) fn find_default(tx: &mut Tx<'_>) -> Result<Option<EnvironmentKey>> {
    let sql = "SELECT environment.id FROM environment JOIN project \
         ON project.id = environment.project WHERE project.name = $1 AND environment.name = $1";
    Ok(tx.first(sql, &[&DEFAULT])?.map(|row| EnvironmentKey(row.get(0))))
}

/// Creates the default environment; another process may do so at the same time.
pub(super) fn create_default(tx: &mut Tx<'_>) -> Result<EnvironmentKey> {
    match create_environment(tx, DEFAULT, DEFAULT) {
        Ok(environment) => Ok(environment.key),
        Err(StoreError::EnvironmentExists { .. }) => {
            find_default(tx)?.ok_or_else(|| StoreError::NoEnvironment(DEFAULT.to_owned()))
        }
        Err(error) => Err(error),
    }
}

pub(super) fn create_environment(
    tx: &mut Tx<'_>,
    project: &str,
    name: &str,
) -> Result<EnvironmentInfo> {
    let sql = "INSERT INTO project (uuid, name) VALUES (uuid_send(gen_random_uuid()), $1) \
         ON CONFLICT (name) DO NOTHING";
    tx.execute(sql, &[&project])?;
    let sql = "INSERT INTO environment (uuid, project, name) \
         SELECT uuid_send(gen_random_uuid()), project.id, $2 FROM project WHERE project.name = $1 \
         ON CONFLICT (project, name) DO NOTHING RETURNING id, uuid";
    let (project, name) = (project.to_owned(), name.to_owned());
    let Some(row) = tx.first(sql, &[&project, &name])? else {
        return Err(StoreError::EnvironmentExists { project, name });
    };
    Ok(EnvironmentInfo { key: EnvironmentKey(row.int(0)?), uuid: row.id(1)?, project, name })
}

/// Locks out other writers of an environment's versions until the transaction ends, and returns the
/// last version number.
pub(super) fn lock_environment(tx: &mut Tx<'_>, environment: EnvironmentKey) -> Result<i64> {
    let sql = "SELECT last_version FROM environment WHERE id = $1 FOR NO KEY UPDATE";
    let row = tx.first(sql, &[&environment.0])?;
    row.map(|row| row.get(0))
        .ok_or_else(|| StoreError::NoEnvironment(format!("number {}", environment.0)))
}

pub(super) fn settings(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
) -> Result<BTreeMap<String, serde_json::Value>> {
    let rows =
        tx.query("SELECT name, value FROM setting WHERE environment = $1", &[&environment.0])?;
    rows.iter().map(|row| Ok((row.string(0)?, row.json(1)?))).collect()
}

pub(super) fn set_setting(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    name: &str,
    value: Option<&serde_json::Value>,
) -> Result<()> {
    match value {
        Some(value) => tx.execute(
            "INSERT INTO setting (environment, name, value) VALUES ($1, $2, $3) \
             ON CONFLICT (environment, name) DO UPDATE SET value = excluded.value, \
             protected_by = excluded.protected_by",
            &[&environment.0, &name, &value.to_string()],
        )?,
        None => tx.execute(
            "DELETE FROM setting WHERE environment = $1 AND name = $2",
            &[&environment.0, &name],
        )?,
    };
    tx.record_change(environment, "setting", name);
    Ok(())
}

pub(super) fn agents(tx: &mut Tx<'_>, environment: EnvironmentKey) -> Result<Vec<AgentState>> {
    let sql = "SELECT name, paused FROM agent WHERE environment = $1 ORDER BY name";
    let rows = tx.query(sql, &[&environment.0])?;
    rows.iter().map(|row| Ok(AgentState { name: row.string(0)?, paused: row.flag(1)? })).collect()
}

/// Pauses or resumes agents. An agent may be paused before a version uses it.
pub(super) fn set_paused(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    agent: Option<&str>,
    paused: bool,
) -> Result<()> {
    let code = i64::from(paused);
    match agent {
        Some(name) => tx.execute(
            "INSERT INTO agent (environment, name, paused) VALUES ($1, $2, $3) \
             ON CONFLICT (environment, name) DO UPDATE SET paused = excluded.paused",
            &[&environment.0, &name, &code],
        )?,
        None => tx.execute(
            "UPDATE agent SET paused = $2 WHERE environment = $1",
            &[&environment.0, &code],
        )?,
    };
    tx.record_change(environment, "agent", agent.unwrap_or("*"));
    Ok(())
}
