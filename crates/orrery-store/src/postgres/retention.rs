//! Deletion of versions. A deleted version takes along the revisions that no other version has.

use orrery_model::VersionNumber;

use super::engine::processed_version;
use super::environments::lock_environment;
use super::read::{find_version, load_revisions, read_names, versions};
use super::release::newest_released;
use super::revisions::delete_unclaimed;
use super::transaction::Tx;
use crate::records::versions_subject;
use crate::version_delta::digest;
use crate::{EnvironmentKey, Result, StoreError};

/// Revisions that become the newest again, per statement.
const CHUNK: usize = 2_000;

fn is_in_use(tx: &mut Tx<'_>, environment: EnvironmentKey, number: VersionNumber) -> Result<bool> {
    let processed = processed_version(tx, environment)?;
    Ok(processed == Some(number) || newest_released(tx, environment)? == Some(number))
}

/// Locks out writers of versions, and the engine: the version that it processes must not be deleted
/// meanwhile.
fn lock_for_deletion(tx: &mut Tx<'_>, environment: EnvironmentKey) -> Result<()> {
    lock_environment(tx, environment)?;
    tx.execute("SELECT 1 FROM lease WHERE environment = $1 FOR UPDATE", &[&environment.0])?;
    tx.prefer_index_scans()?;
    delete_unclaimed(tx, environment)
}

pub(super) fn delete_version(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<()> {
    lock_for_deletion(tx, environment)?;
    let (_, step) = find_version(tx, environment, number)?;
    if is_in_use(tx, environment, number)? {
        return Err(StoreError::VersionInUse(number));
    }
    remove_version(tx, environment, number, step)?;
    delete_unreferenced(tx, environment)?;
    tx.record_change(environment, "version", &number.to_string());
    Ok(())
}

pub(super) fn retain_versions(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    keep: usize,
) -> Result<Vec<VersionNumber>> {
    lock_for_deletion(tx, environment)?;
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
        tx.record_change(environment, "version", &versions_subject(&deleted));
    }
    Ok(deleted)
}

/// Deletes a version. Its revisions are valid over a range of steps, so those that only this
/// version has lie between its neighbours.
fn remove_version(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    number: VersionNumber,
    step: i64,
) -> Result<()> {
    let number = i64::from(number.0);
    let key: [super::connection::Parameter<'_>; 2] = [&environment.0, &number];
    tx.execute("DELETE FROM version WHERE environment = $1 AND number = $2", &key)?;
    tx.execute("DELETE FROM unknown WHERE environment = $1 AND version = $2", &key)?;
    let sql = "SELECT coalesce(max(step) FILTER (WHERE step < $2), 0), \
         min(step) FILTER (WHERE step > $2) FROM version WHERE environment = $1";
    let neighbours = tx.query_one(sql, &[&environment.0, &step])?;
    let (before, after): (i64, Option<i64>) = (neighbours.get(0), neighbours.get(1));
    match after {
        Some(after) => {
            tx.execute(
                "WITH gone AS (DELETE FROM ended USING revision WHERE ended.environment = $1 \
                 AND ended.until > $2 AND ended.until <= $3 AND revision.id = ended.revision \
                 AND revision.since > $4 RETURNING ended.revision) \
                 DELETE FROM revision USING gone WHERE revision.id = gone.revision",
                &[&environment.0, &step, &after, &before],
            )?;
            Ok(())
        }
        None => undo_newest(tx, environment, before),
    }
}

/// Deletes the newest version: its additions and changes are deleted, and the revisions that it
/// replaced become the newest again.
fn undo_newest(tx: &mut Tx<'_>, environment: EnvironmentKey, before: i64) -> Result<()> {
    tx.execute(
        "WITH gone AS (DELETE FROM revision USING step WHERE step.environment = $1 \
         AND step.id > $2 AND revision.id >= step.first_revision \
         AND revision.id < step.end_revision RETURNING revision.id, revision.resource), \
         forgotten AS (DELETE FROM ended USING gone WHERE ended.resource = gone.resource \
         AND ended.revision = gone.id) \
         UPDATE resource SET head = NULL, digest = NULL, resource_set = 0, absent = true \
         FROM gone \
         WHERE resource.id = gone.resource AND resource.head = gone.id",
        &[&environment.0, &before],
    )?;
    let sql = "DELETE FROM ended WHERE environment = $1 AND until > $2 \
         RETURNING revision, resource";
    let reopened: Vec<(i64, i64)> = tx
        .query(sql, &[&environment.0, &before])?
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    let names = read_names(tx, environment)?;
    for reopened in reopened.chunks(CHUNK) {
        let revisions: Vec<i64> = reopened.iter().map(|(revision, _)| *revision).collect();
        let keys: Vec<i64> = reopened.iter().map(|(_, key)| *key).collect();
        let loaded = load_revisions(tx, &names, &revisions)?;
        let digests: Vec<Option<Vec<u8>>> = revisions
            .iter()
            .map(|revision| loaded.get(revision).map(|resource| digest(resource).to_vec()))
            .collect();
        tx.execute(
            "UPDATE resource SET head = r.head, digest = r.digest, \
             resource_set = revision.resource_set, absent = false \
             FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS r (id, head, digest) \
             JOIN revision ON revision.id = r.head WHERE resource.id = r.id",
            &[&keys, &revisions, &digests],
        )?;
    }
    Ok(())
}

/// Deletes resources without a version, except running ones. Their log stays until its own
/// retention ends.
fn delete_orphaned_resources(tx: &mut Tx<'_>, environment: EnvironmentKey) -> Result<()> {
    tx.execute(
        "WITH unused AS MATERIALIZED (SELECT id FROM resource \
             WHERE environment = $1 AND absent \
             AND NOT EXISTS (SELECT 1 FROM ended WHERE ended.resource = resource.id) \
             AND NOT EXISTS (SELECT 1 FROM running WHERE running.resource = resource.id)), \
         facts AS (DELETE FROM parameter WHERE environment = $1 \
             AND resource IN (SELECT id FROM unused)), \
         states AS (DELETE FROM state WHERE resource IN (SELECT id FROM unused)), \
         effects AS (DELETE FROM begun WHERE resource IN (SELECT id FROM unused)) \
         DELETE FROM resource WHERE id IN (SELECT id FROM unused)",
        &[&environment.0],
    )?;
    Ok(())
}

/// Deletes resources without a version, steps without revisions, and unused types and agents.
fn delete_unreferenced(tx: &mut Tx<'_>, environment: EnvironmentKey) -> Result<()> {
    delete_orphaned_resources(tx, environment)?;
    tx.execute(
        "DELETE FROM step WHERE environment = $1 \
         AND id NOT IN (SELECT step FROM version WHERE environment = $1) \
         AND NOT EXISTS (SELECT 1 FROM revision \
             WHERE revision.id >= step.first_revision AND revision.id < step.end_revision)",
        &[&environment.0],
    )?;
    // The names of a type, and those of an agent within a type, are ranges: `[` and `,` end them.
    tx.execute(
        "DELETE FROM resource_type WHERE environment = $1 AND NOT EXISTS (\
             SELECT 1 FROM resource WHERE resource.environment = $1 \
             AND resource.name >= resource_type.name || '[' \
             AND resource.name < resource_type.name || '\\')",
        &[&environment.0],
    )?;
    tx.execute(
        "DELETE FROM agent WHERE environment = $1 AND paused = 0 AND NOT EXISTS (\
             SELECT 1 FROM resource_type JOIN resource ON resource.environment = $1 \
             AND resource.name >= resource_type.name || '[' || agent.name || ',' \
             AND resource.name < resource_type.name || '[' || agent.name || '-' \
             WHERE resource_type.environment = $1)",
        &[&environment.0],
    )?;
    Ok(())
}
