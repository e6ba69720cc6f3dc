//! What is known of one resource: its line in lists, its history, what requires it.

use orrery_model::{AttributeHash, Status, Timestamp, VersionNumber};

use crate::codes::{hash_from, number_from, pack_keys, unpack_keys};
use crate::records::Records;
use crate::records::resource_list::{ResourceLine, ResourceQuery, draft_of, finish, select};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _, Value};
use crate::{EnvironmentKey, ResourceKey, Result, StoreError, values};

/// What was wanted of a resource from one version on.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryEntry {
    pub version: VersionNumber,
    pub at: Timestamp,
    pub hash: AttributeHash,
    /// Canonical text.
    pub attributes: String,
    pub requires: Vec<String>,
}

/// Among so many resources those that require one are looked for at first. What many require is found there; for what few do, all have to be looked
/// through, and the fewer statements the better.
const FIRST_LOOK: i64 = 1_000;

impl Records<'_> {
    /// One resource, wanted or orphaned.
    ///
    /// # Errors
    /// `NoResource` if there is none.
    pub fn resource_line(&self, environment: EnvironmentKey, id: &str) -> Result<ResourceLine> {
        let statement =
            format!("{} WHERE resource.environment = ?1 AND resource.name = ?2", select());
        let query = ResourceQuery { statuses: Status::ALL.to_vec(), ..ResourceQuery::default() };
        self.look(|sql| {
            let mut found = None;
            sql.visit(&statement, values![environment.0, id], &mut |row| {
                found = draft_of(row, &query, None)?;
                Ok(())
            })?;
            let lines = finish(sql, found.into_iter().collect())?;
            lines.into_iter().next().ok_or_else(|| StoreError::NoResource(id.to_owned()))
        })
    }

    /// What was wanted of a resource, latest first. Versions in which its attributes did not change are one entry, which
    /// has the first of them.
    ///
    /// # Errors
    /// `NoResource` if there is none.
    pub fn resource_history(
        &self,
        environment: EnvironmentKey,
        id: &str,
    ) -> Result<Vec<HistoryEntry>> {
        self.look(|sql| {
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
                let version = sql
                    .first(version, values, |row| Ok((number_from(row.int(0)?)?, row.time(1)?)))?;
                // No version that has it is kept.
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

    /// Resources that require one, in the newest version, by id. No index leads there: the database looks through requirements, until so many are
    /// found.
    ///
    /// # Errors
    /// `NoResource` if there is none.
    pub fn dependents(
        &self,
        environment: EnvironmentKey,
        id: &str,
        limit: usize,
    ) -> Result<Vec<ResourceKey>> {
        let found = self.dependents_after(environment, id, "", limit)?;
        Ok(found.into_iter().map(|(key, _)| key).collect())
    }

    /// As `dependents`, by id after one, each with its own.
    ///
    /// # Errors
    /// `NoResource` if there is none.
    pub fn dependents_after(
        &self,
        environment: EnvironmentKey,
        id: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(ResourceKey, String)>> {
        self.look(|sql| {
            let find = "SELECT id FROM resource WHERE environment = ?1 AND name = ?2";
            let key = sql.first(find, values![environment.0, id], |row| row.int(0))?;
            let key = key.ok_or_else(|| StoreError::NoResource(id.to_owned()))?;
            let mut packed = Vec::new();
            pack_keys([key], &mut packed);
            let nth = "SELECT name FROM resource WHERE environment = ?1 AND name > ?2 \
                 AND head IS NOT NULL ORDER BY name LIMIT 1 OFFSET ?3";
            // The end of a greater number looks like a smaller one: which are meant is decided here.
            let select = |until: &str, position: &str| {
                format!(
                    "SELECT resource.id, revision.requires, resource.name FROM resource \
                     JOIN revision ON revision.id = resource.head WHERE resource.environment = ?1 \
                     AND resource.name > ?2 AND {position}(revision.requires, ?3) > 0 {until} \
                     ORDER BY resource.name"
                )
            };
            let (to_there, to_the_end) =
                (select("AND resource.name <= ?4", sql.position()), select("", sql.position()));
            let (mut found, mut keys) = (Vec::new(), Vec::new());
            let mut after = after.to_owned();
            let mut together = i64::try_from(limit).unwrap_or(i64::MAX).max(FIRST_LOOK);
            loop {
                let until =
                    sql.first(nth, values![environment.0, &after, together], |row| row.string(0))?;
                let mut values =
                    vec![Value::from(environment.0), Value::from(&after), Value::from(&packed[..])];
                values.extend(until.as_ref().map(Value::from));
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
