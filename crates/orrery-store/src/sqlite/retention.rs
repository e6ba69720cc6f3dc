//! Deletion of versions. A deleted version takes along the revisions that no other version has.

use orrery_model::VersionNumber;
use rusqlite::{Connection, params};

use super::read::{ResourceReader, find_version, versions};
use super::record_change;
use super::release::newest_released;
use crate::records::versions_subject;
use crate::version_delta::digest;
use crate::{EnvironmentKey, Result, StoreError};

fn is_in_use(tx: &Connection, environment: EnvironmentKey, number: VersionNumber) -> Result<bool> {
    let processed = super::engine::processed_version(tx, environment)?;
    Ok(processed == Some(number) || newest_released(tx, environment)? == Some(number))
}

pub(super) fn delete_version(
    tx: &Connection,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<()> {
    let (_, step) = find_version(tx, environment, number)?;
    if is_in_use(tx, environment, number)? {
        return Err(StoreError::VersionInUse(number));
    }
    remove_version(tx, environment, number, step)?;
    delete_unreferenced(tx, environment)?;
    record_change(tx, environment, "version", &number.to_string())
}

pub(super) fn retain_versions(
    tx: &Connection,
    environment: EnvironmentKey,
    keep: usize,
) -> Result<Vec<VersionNumber>> {
    let mut deleted = Vec::new();
    let all = versions(tx, environment)?;
    let surplus = all.len().saturating_sub(keep);
    for version in all {
        if deleted.len() == surplus {
            break;
        }
        if is_in_use(tx, environment, version.number)? {
            continue;
        }
        let (_, step) = find_version(tx, environment, version.number)?;
        remove_version(tx, environment, version.number, step)?;
        deleted.push(version.number);
    }
    if !deleted.is_empty() {
        delete_unreferenced(tx, environment)?;
        record_change(tx, environment, "version", &versions_subject(&deleted))?;
    }
    Ok(deleted)
}

/// Deletes a version. Its revisions are valid over a range of steps, so those that only this
/// version has lie between its neighbours.
fn remove_version(
    tx: &Connection,
    environment: EnvironmentKey,
    number: VersionNumber,
    step: i64,
) -> Result<()> {
    let key = params![environment.0, number.0];
    tx.execute("DELETE FROM version WHERE environment = ?1 AND number = ?2", key)?;
    tx.execute("DELETE FROM unknown WHERE environment = ?1 AND version = ?2", key)?;
    let neighbour = |sql: &str| -> Result<Option<i64>> {
        Ok(tx.query_row(sql, params![environment.0, step], |row| row.get(0))?)
    };
    let before = neighbour("SELECT max(step) FROM version WHERE environment = ?1 AND step < ?2")?
        .unwrap_or(0);
    let after = neighbour("SELECT min(step) FROM version WHERE environment = ?1 AND step > ?2")?;
    match after {
        Some(after) => delete_revisions(
            tx,
            "SELECT ended.revision, ended.resource FROM ended \
             CROSS JOIN revision ON revision.id = ended.revision WHERE ended.environment = ?1 \
             AND ended.until > ?2 AND ended.until <= ?3 AND revision.since > ?4",
            &[environment.0, step, after, before],
        ),
        None => undo_newest(tx, environment, before),
    }
}

/// Deletes the newest version: its additions and changes are deleted, and the revisions that it
/// replaced become the newest again.
fn undo_newest(tx: &Connection, environment: EnvironmentKey, before: i64) -> Result<()> {
    delete_revisions(
        tx,
        "SELECT revision.id, revision.resource FROM step CROSS JOIN revision \
         ON revision.id >= step.first_revision AND revision.id < step.end_revision \
         WHERE step.environment = ?1 AND step.id > ?2",
        &[environment.0, before],
    )?;
    let mut reopened: Vec<(i64, i64)> = Vec::new();
    {
        let mut statement = tx.prepare_cached(
            "SELECT revision, resource FROM ended WHERE environment = ?1 AND until > ?2",
        )?;
        let mut rows = statement.query([environment.0, before])?;
        while let Some(row) = rows.next()? {
            reopened.push((row.get(0)?, row.get(1)?));
        }
    }
    let mut reader = ResourceReader::new(tx, environment)?;
    tx.execute("DELETE FROM ended WHERE environment = ?1 AND until > ?2", [environment.0, before])?;
    let mut point = tx.prepare_cached(
        "UPDATE resource SET head = ?2, digest = ?3, \
         resource_set = (SELECT resource_set FROM revision WHERE id = ?2) WHERE id = ?1",
    )?;
    for (revision, key) in reopened {
        let id = reader.id(key)?;
        let resource = reader.resource(&id, key, revision)?;
        point.execute(params![key, revision, &digest(&resource)[..]])?;
    }
    Ok(())
}

/// Deletes the revisions that a query selects.
fn delete_revisions(tx: &Connection, sql: &str, parameters: &[i64]) -> Result<()> {
    let mut victims: Vec<(i64, i64)> = Vec::new();
    {
        let mut statement = tx.prepare_cached(sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(parameters))?;
        while let Some(row) = rows.next()? {
            victims.push((row.get(0)?, row.get(1)?));
        }
    }
    let mut delete = tx.prepare_cached("DELETE FROM revision WHERE id = ?1")?;
    let mut delete_ended =
        tx.prepare_cached("DELETE FROM ended WHERE resource = ?1 AND revision = ?2")?;
    let mut leave = tx.prepare_cached(
        "UPDATE resource SET head = NULL, digest = NULL, resource_set = 0 \
         WHERE id = ?1 AND head = ?2",
    )?;
    for (revision, key) in &victims {
        delete.execute([*revision])?;
        delete_ended.execute([*key, *revision])?;
        leave.execute([*key, *revision])?;
    }
    Ok(())
}

/// Deletes resources without a version, except running ones. Their log stays until its own
/// retention ends.
fn delete_orphaned_resources(tx: &Connection, environment: EnvironmentKey) -> Result<()> {
    let mut unused: Vec<i64> = Vec::new();
    {
        let mut statement = tx.prepare_cached(
            "SELECT id FROM resource INDEXED BY resource_absent \
             WHERE environment = ?1 AND head IS NULL \
             AND NOT EXISTS (SELECT 1 FROM ended WHERE ended.resource = resource.id) \
             AND NOT EXISTS (SELECT 1 FROM running WHERE running.resource = resource.id)",
        )?;
        let mut rows = statement.query([environment.0])?;
        while let Some(row) = rows.next()? {
            unused.push(row.get(0)?);
        }
    }
    let mut facts =
        tx.prepare_cached("DELETE FROM parameter WHERE environment = ?1 AND resource = ?2")?;
    let mut state = tx.prepare_cached("DELETE FROM state WHERE resource = ?1")?;
    let mut effect = tx.prepare_cached("DELETE FROM begun WHERE resource = ?1")?;
    let mut resource = tx.prepare_cached("DELETE FROM resource WHERE id = ?1")?;
    for key in unused {
        facts.execute([environment.0, key])?;
        state.execute([key])?;
        effect.execute([key])?;
        resource.execute([key])?;
    }
    Ok(())
}

/// Deletes resources without a version, steps without revisions, and unused types and agents.
fn delete_unreferenced(tx: &Connection, environment: EnvironmentKey) -> Result<()> {
    delete_orphaned_resources(tx, environment)?;
    tx.execute(
        "DELETE FROM step WHERE environment = ?1 \
         AND id NOT IN (SELECT step FROM version WHERE environment = ?1) \
         AND NOT EXISTS (SELECT 1 FROM revision \
             WHERE revision.id >= step.first_revision AND revision.id < step.end_revision)",
        [environment.0],
    )?;
    // The names of a type, and those of an agent within a type, are ranges: `[` and `,` end them.
    tx.execute(
        "DELETE FROM resource_type WHERE environment = ?1 AND NOT EXISTS (\
             SELECT 1 FROM resource WHERE resource.environment = ?1 \
             AND resource.name >= resource_type.name || '[' \
             AND resource.name < resource_type.name || '\\')",
        [environment.0],
    )?;
    tx.execute(
        "DELETE FROM agent WHERE environment = ?1 AND NOT paused AND NOT EXISTS (\
             SELECT 1 FROM resource_type JOIN resource ON resource.environment = ?1 \
             AND resource.name >= resource_type.name || '[' || agent.name || ',' \
             AND resource.name < resource_type.name || '[' || agent.name || '-' \
             WHERE resource_type.environment = ?1)",
        [environment.0],
    )?;
    Ok(())
}
