//! Views of one resource: its line in lists, its history, its dependents.

use std::collections::BTreeMap;

use orrery_model::{AttributeHash, Status, Timestamp, VersionNumber};

use crate::encoding::{hash_from, pack_keys, unpack_keys, version_number_from};
use crate::records::resource_line::ResourceLine;
use crate::records::resource_list::{select, unresolved_line};
use crate::records::resource_query::ResourceQuery;
use crate::records::{Resources, Transactions as _};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _, SqlValue};
use crate::{EnvironmentKey, ResourceKey, ResourceOverview, Result, StoreError, values};

/// Desired state of a resource from one version on.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryEntry {
    pub version: VersionNumber,
    pub at: Timestamp,
    pub hash: AttributeHash,
    /// Canonical text.
    pub attributes: String,
    pub requires: Vec<String>,
}

/// Resources in the first search for dependents. Frequent requirements are found there; rare ones
/// need a full scan, for which fewer statements are better.
const FIRST_SCAN: i64 = 1_000;

impl Resources<'_> {
    /// One resource, managed or orphaned.
    ///
    /// # Errors
    /// `NoResource` if it does not exist.
    pub fn line(&self, environment: EnvironmentKey, id: &str) -> Result<ResourceLine> {
        let statement =
            format!("{} WHERE resource.environment = ?1 AND resource.name = ?2", select());
        let query = ResourceQuery { statuses: Status::ALL.to_vec(), ..ResourceQuery::default() };
        let found = self.query(|sql| {
            let mut found = None;
            sql.visit(&statement, values![environment.0, id], &mut |row| {
                found = unresolved_line(row, &query, None)?;
                Ok(())
            })?;
            Ok(found)
        })?;
        let mut lines = self.resolve_lines(environment, found.into_iter().collect())?;
        lines.pop().ok_or_else(|| StoreError::NoResource(id.to_owned()))
    }

    /// Desired states of a resource, latest first. Successive versions with the same attributes are
    /// one entry, with the first of them.
    ///
    /// # Errors
    /// `NoResource` if it does not exist.
    pub fn history(&self, environment: EnvironmentKey, id: &str) -> Result<Vec<HistoryEntry>> {
        self.query(|sql| {
            let find = "SELECT id, head FROM resource WHERE environment = ?1 AND name = ?2";
            let found = sql.first(find, values![environment.0, id], |row| {
                Ok((row.int(0)?, row.integer(1)?))
            })?;
            let (key, head) = found.ok_or_else(|| StoreError::NoResource(id.to_owned()))?;
            let content = "revision.hash, revision.attributes, revision.requires";
            let read = |row: &dyn Row| {
                let mut requires = Vec::new();
                unpack_keys(row.blob(4)?, &mut requires)?;
                let until = row.integer(1)?.unwrap_or(i64::MAX);
                Ok((row.int(0)?, until, hash_from(row.blob(2)?)?, row.string(3)?, requires))
            };
            let past = format!(
                "SELECT revision.since, ended.until, {content} FROM ended \
                 JOIN revision ON revision.id = ended.revision WHERE ended.resource = ?1"
            );
            let mut revisions = sql.all(&past, values![key], read)?;
            let current = format!(
                "SELECT revision.since, CAST(NULL AS BIGINT), {content} FROM revision WHERE id = ?1"
            );
            revisions.extend(sql.first(&current, values![head.unwrap_or(0)], read)?);
            revisions.sort_unstable_by_key(|revision| revision.0);
            let mut entries: Vec<HistoryEntry> = Vec::new();
            for (since, until, hash, attributes, keys) in revisions {
                let version = "SELECT number, made_at FROM version \
                     WHERE environment = ?1 AND step >= ?2 AND step < ?3 ORDER BY step LIMIT 1";
                let values = values![environment.0, since, until];
                let version = sql.first(version, values, |row| {
                    Ok((version_number_from(row.int(0)?)?, row.time(1)?))
                })?;
                // All versions that have it are deleted.
                let Some((version, at)) = version else { continue };
                if entries.last().is_some_and(|last| last.hash == hash) {
                    continue;
                }
                let requires = names_of(sql, &keys)?;
                entries.push(HistoryEntry { version, at, hash, attributes, requires });
            }
            entries.reverse();
            Ok(entries)
        })
    }

    /// Resources of the newest version that require one, by id after one, each with its id. There is
    /// no index: the database scans requirements until `limit` are found.
    ///
    /// # Errors
    /// `NoResource` if it does not exist.
    pub fn dependents_after(
        &self,
        environment: EnvironmentKey,
        id: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(ResourceKey, String)>> {
        self.query(|sql| {
            let find = "SELECT id FROM resource WHERE environment = ?1 AND name = ?2";
            let key = sql.first(find, values![environment.0, id], |row| row.int(0))?;
            let key = key.ok_or_else(|| StoreError::NoResource(id.to_owned()))?;
            let mut packed = Vec::new();
            pack_keys([key], &mut packed);
            let nth = "SELECT name FROM resource WHERE environment = ?1 AND name > ?2 \
                 AND head IS NOT NULL ORDER BY name LIMIT 1 OFFSET ?3";
            // The packed bytes of a smaller number can be the end of a greater one: matches are
            // verified here.
            let select = |until: &str, position: &str| {
                format!(
                    "SELECT resource.id, revision.requires, resource.name FROM resource \
                     JOIN revision ON revision.id = resource.head WHERE resource.environment = ?1 \
                     AND resource.name > ?2 AND {position}(revision.requires, ?3) > 0 {until} \
                     ORDER BY resource.name"
                )
            };
            let (to_there, to_the_end) = (
                select("AND resource.name <= ?4", sql.position_function()),
                select("", sql.position_function()),
            );
            let (mut found, mut keys) = (Vec::new(), Vec::new());
            let mut after = after.to_owned();
            let mut together = i64::try_from(limit).unwrap_or(i64::MAX).max(FIRST_SCAN);
            loop {
                let until =
                    sql.first(nth, values![environment.0, &after, together], |row| row.string(0))?;
                let mut values = vec![
                    SqlValue::from(environment.0),
                    SqlValue::from(&after),
                    SqlValue::from(&packed[..]),
                ];
                values.extend(until.as_ref().map(SqlValue::from));
                let select = if until.is_some() { &to_there } else { &to_the_end };
                sql.visit(select, &values, &mut |row| {
                    unpack_keys(row.blob(1)?, &mut keys)?;
                    if found.len() < limit && keys.contains(&ResourceKey(key)) {
                        found.push((ResourceKey(row.int(0)?), row.string(2)?));
                    }
                    Ok(())
                })?;
                let Some(until) = until.filter(|_| found.len() < limit) else { break };
                after = until;
                together = together.saturating_mul(8);
            }
            Ok(found)
        })
    }
}

fn names_of(sql: &mut dyn Sql, keys: &[ResourceKey]) -> Result<Vec<String>> {
    let mut names = Vec::with_capacity(keys.len());
    for key in keys {
        let select = "SELECT name FROM resource WHERE id = ?1";
        names.extend(sql.first(select, values![key.0], |row| row.string(0))?);
    }
    names.sort_unstable();
    Ok(names)
}

impl Resources<'_> {
    /// One resource, if it exists.
    ///
    /// # Errors
    /// Database errors.
    pub fn find(&self, environment: EnvironmentKey, id: &str) -> Result<Option<ResourceOverview>> {
        match self.line(environment, id) {
            Ok(line) => Ok(Some(line.summary)),
            Err(StoreError::NoResource(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Number of resources by status.
    ///
    /// # Errors
    /// Database errors.
    pub fn count_statuses(&self, environment: EnvironmentKey) -> Result<BTreeMap<Status, u64>> {
        let mut counts = BTreeMap::new();
        for count in self.count(environment)? {
            *counts.entry(count.status).or_default() += count.count;
        }
        Ok(counts)
    }
}
