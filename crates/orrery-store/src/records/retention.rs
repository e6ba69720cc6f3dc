//! Deletion of versions. A deleted version takes along the revisions that no other version has.

use orrery_model::VersionNumber;

use crate::records::engine::processed_version;
use crate::records::environments::lock_environment;
use crate::records::release::{all_versions, find_version, newest_released, record_version_change};
use crate::records::version_read::{load_revisions, read_names};
use crate::records::{Transactions as _, Versions, versions_subject};
use crate::sql::ColumnType::{Blob, Integer};
use crate::sql::{RowExt as _, RowsStatement, Sql, SqlExt as _, SqlValue};
use crate::version_delta::digest;
use crate::{EnvironmentKey, Result, StoreError, values};

/// Revisions that become the newest again, or resources that are deleted, per statement.
const CHUNK: usize = 2_000;

/// Locks out writers of versions, and the engine: the version that it processes must not be deleted
/// meanwhile. Deleting takes long, so it waits for them instead of being repeated.
fn lock_for_deletion(sql: &mut dyn Sql, environment: EnvironmentKey) -> Result<()> {
    lock_environment(sql, environment)?;
    let lease = format!("SELECT 1 FROM lease WHERE environment = ?1{}", sql.row_lock());
    sql.first(&lease, values![environment.0], |_| Ok(()))?;
    sql.prefer_index_scans()?;
    sql.delete_unclaimed(environment)
}

fn is_in_use(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<bool> {
    let processed = processed_version(sql, environment)?;
    Ok(processed == Some(number) || newest_released(sql, environment)? == Some(number))
}

/// Deletes a version. Its revisions are valid over a range of steps, so those that only this
/// version has lie between its neighbours.
fn remove_version(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    number: VersionNumber,
    step: i64,
) -> Result<()> {
    let key = values![environment.0, i64::from(number.0)];
    sql.run("DELETE FROM version WHERE environment = ?1 AND number = ?2", key)?;
    sql.run("DELETE FROM unknown WHERE environment = ?1 AND version = ?2", key)?;
    let mut neighbour = |select: &str| -> Result<Option<i64>> {
        Ok(sql.first(select, values![environment.0, step], |row| row.integer(0))?.flatten())
    };
    let before = neighbour("SELECT max(step) FROM version WHERE environment = ?1 AND step < ?2")?;
    let after = neighbour("SELECT min(step) FROM version WHERE environment = ?1 AND step > ?2")?;
    let before = before.unwrap_or(0);
    let Some(after) = after else { return undo_newest(sql, environment, before) };
    let revisions = "DELETE FROM revision WHERE since > ?4 AND id IN \
         (SELECT ended.revision FROM ended \
         WHERE ended.environment = ?1 AND ended.until > ?2 AND ended.until <= ?3)";
    sql.run(revisions, values![environment.0, step, after, before])?;
    let ends = "DELETE FROM ended WHERE environment = ?1 AND until > ?2 AND until <= ?3 \
         AND NOT EXISTS (SELECT 1 FROM revision WHERE revision.id = ended.revision)";
    sql.run(ends, values![environment.0, step, after]).map(drop)
}

/// Revisions that were written after a step. SQLite keeps the order of a CROSS JOIN; by itself, it
/// would scan all revisions.
const LATER_REVISIONS: &str = "FROM step CROSS JOIN revision \
     WHERE revision.id >= step.first_revision AND revision.id < step.end_revision \
     AND step.environment = ?1 AND step.id > ?2";

/// Deletes the newest version: its additions and changes are deleted, and the revisions that it
/// replaced become the newest again.
fn undo_newest(sql: &mut dyn Sql, environment: EnvironmentKey, before: i64) -> Result<()> {
    let later = values![environment.0, before];
    let leave = format!(
        "UPDATE resource SET head = NULL, digest = NULL, resource_set = 0{} \
         WHERE id IN (SELECT revision.resource {LATER_REVISIONS}) AND EXISTS \
         (SELECT 1 FROM revision AS head WHERE head.id = resource.head AND head.since > ?2)",
        sql.set_absent(true)
    );
    sql.run(&leave, later)?;
    let reopened = "SELECT ended.resource, ended.revision FROM ended \
         CROSS JOIN revision WHERE revision.id = ended.revision \
         AND ended.environment = ?1 AND ended.until > ?2 AND revision.since <= ?2";
    let reopened = sql.all(reopened, later, |row| Ok((row.int(0)?, row.int(1)?)))?;
    sql.run("DELETE FROM ended WHERE environment = ?1 AND until > ?2", later)?;
    let delete = format!("DELETE FROM revision WHERE id IN (SELECT revision.id {LATER_REVISIONS})");
    sql.run(&delete, later)?;
    let reopen = format!(
        "UPDATE resource SET head = new.head, digest = new.digest, \
         resource_set = (SELECT resource_set FROM revision WHERE revision.id = new.head){} \
         FROM {{rows}} WHERE resource.id = new.id",
        sql.set_absent(false)
    );
    let columns = &[("id", Integer), ("head", Integer), ("digest", Blob)];
    let reopen = RowsStatement { text: &reopen, columns };
    let names = read_names(sql, environment)?;
    for reopened in reopened.chunks(CHUNK) {
        let revisions: Vec<i64> = reopened.iter().map(|(_, revision)| *revision).collect();
        let loaded = load_revisions(sql, &names, &revisions)?;
        let digests: Vec<Option<[u8; 16]>> =
            revisions.iter().map(|revision| loaded.get(revision).map(digest)).collect();
        let mut cells = Vec::with_capacity(reopened.len() * columns.len());
        for ((key, revision), digest) in reopened.iter().zip(&digests) {
            cells.extend_from_slice(values![*key, *revision, digest.as_ref()]);
        }
        sql.run_rows(&reopen, &[], &cells)?;
    }
    Ok(())
}

/// Deletes resources without a version, except running ones. Their log stays until its own
/// retention ends.
fn delete_orphaned_resources(sql: &mut dyn Sql, environment: EnvironmentKey) -> Result<()> {
    let select = format!(
        "SELECT id FROM {} AND environment = ?1 \
         AND NOT EXISTS (SELECT 1 FROM ended WHERE ended.resource = resource.id) \
         AND NOT EXISTS (SELECT 1 FROM running WHERE running.resource = resource.id)",
        sql.absent_resources()
    );
    let unused = sql.all(&select, values![environment.0], |row| row.int(0))?;
    for unused in unused.chunks(CHUNK) {
        let values = &[SqlValue::Integers(unused)];
        for (table, column) in [("state", "resource"), ("begun", "resource"), ("resource", "id")] {
            let is_unused = sql.in_integers("?1");
            sql.run(&format!("DELETE FROM {table} WHERE {column} {is_unused}"), values)?;
        }
        let facts = format!(
            "DELETE FROM parameter WHERE environment = ?1 AND resource {}",
            sql.in_integers("?2")
        );
        sql.run(&facts, &[environment.0.into(), SqlValue::Integers(unused)])?;
    }
    Ok(())
}

/// Deletes resources without a version, steps without revisions, and unused types and agents.
fn delete_unreferenced(sql: &mut dyn Sql, environment: EnvironmentKey) -> Result<()> {
    delete_orphaned_resources(sql, environment)?;
    let steps = "DELETE FROM step WHERE environment = ?1 \
         AND id NOT IN (SELECT step FROM version WHERE environment = ?1) \
         AND NOT EXISTS (SELECT 1 FROM revision \
             WHERE revision.id >= step.first_revision AND revision.id < step.end_revision)";
    // The names of a type, and those of an agent within a type, are ranges: `[` and `,` end them.
    let types = "DELETE FROM resource_type WHERE environment = ?1 AND NOT EXISTS (\
             SELECT 1 FROM resource WHERE resource.environment = ?1 \
             AND resource.name >= resource_type.name || '[' \
             AND resource.name < resource_type.name || '\\')";
    let agents = "DELETE FROM agent WHERE environment = ?1 AND paused = 0 AND NOT EXISTS (\
             SELECT 1 FROM resource_type JOIN resource ON resource.environment = ?1 \
             AND resource.name >= resource_type.name || '[' || agent.name || ',' \
             AND resource.name < resource_type.name || '[' || agent.name || '-' \
             WHERE resource_type.environment = ?1)";
    for delete in [steps, types, agents] {
        sql.run(delete, values![environment.0])?;
    }
    Ok(())
}

impl Versions<'_> {
    /// Deletes a version and everything that only it refers to.
    ///
    /// # Errors
    /// `NoVersion`; refuses the processed version and the newest released one.
    pub fn delete(&self, environment: EnvironmentKey, number: VersionNumber) -> Result<()> {
        self.transact_locked(|sql| {
            lock_for_deletion(sql, environment)?;
            let (_, step) = find_version(sql, environment, number)?;
            if is_in_use(sql, environment, number)? {
                return Err(StoreError::VersionInUse(number));
            }
            remove_version(sql, environment, number, step)?;
            delete_unreferenced(sql, environment)?;
            record_version_change(sql, environment, &number.to_string())
        })
    }

    /// Deletes the oldest versions until `keep` are left, except those in use. Returns the deleted
    /// ones.
    ///
    /// # Errors
    /// Database errors.
    pub fn retain(&self, environment: EnvironmentKey, keep: usize) -> Result<Vec<VersionNumber>> {
        self.transact_locked(|sql| {
            lock_for_deletion(sql, environment)?;
            let mut deleted = Vec::new();
            let all = all_versions(sql, environment)?;
            let surplus = all.len().saturating_sub(keep);
            for (version, step) in all {
                if deleted.len() == surplus {
                    break;
                }
                if is_in_use(sql, environment, version.number)? {
                    continue;
                }
                remove_version(sql, environment, version.number, step)?;
                deleted.push(version.number);
            }
            if !deleted.is_empty() {
                delete_unreferenced(sql, environment)?;
                record_version_change(sql, environment, &versions_subject(&deleted))?;
            }
            Ok(deleted)
        })
    }
}
