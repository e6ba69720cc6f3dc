//! What is known of one resource: its line in lists, its details, history, relations.

use orrery_model::{AttributeHash, Attributes, Source, Status, Timestamp, VersionNumber};

use crate::codes::{
    STATE_COLUMN_COUNT, STATE_COLUMNS, hash_from, number_from, unpack_keys, unsigned,
};
use crate::load::parse_id;
use crate::records::Records;
use crate::records::resource_list::{
    OWN_COLUMN_COUNT, OWN_COLUMNS, ResourceLine, ResourceQuery, draft_of, finish, select, state_of,
};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _};
use crate::{EnvironmentKey, ResourceKey, ResourceSummary, Result, StoreError, values};

/// All that is known of a resource but what was done with it.
#[derive(Clone, Debug)]
pub struct ResourceDetails {
    pub line: ResourceLine,
    /// What the newest version that has it wants of it.
    pub attributes: Attributes,
    pub requires: Vec<ResourceKey>,
}

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

    /// One resource, wanted or orphaned, with what is wanted of it. A single statement.
    ///
    /// # Errors
    /// `NoResource` if there is none.
    pub fn resource_details(
        &self,
        environment: EnvironmentKey,
        id: &str,
    ) -> Result<ResourceDetails> {
        let statement = format!(
            "SELECT {OWN_COLUMNS}, {STATE_COLUMNS}, revision.attributes, revision.requires, \
             source_file.path, resource_set.name \
             FROM resource LEFT JOIN state ON state.resource = resource.id \
             LEFT JOIN running ON running.resource = resource.id \
             LEFT JOIN revision ON revision.id = coalesce(resource.head, \
             (SELECT max(past.id) FROM revision AS past \
             WHERE past.resource = resource.id AND past.until IS NOT NULL)) \
             LEFT JOIN source_file ON source_file.id = resource.source_file \
             LEFT JOIN resource_set ON resource_set.id = revision.resource_set \
             WHERE resource.environment = ?1 AND resource.name = ?2"
        );
        let unknown = || StoreError::NoResource(id.to_owned());
        let found = self.look(|sql| {
            sql.first(&statement, values![environment.0, id], |row| {
                let Some(state) = state_of(row)? else { return Ok(None) };
                let at = OWN_COLUMN_COUNT + STATE_COLUMN_COUNT;
                let source = match row.text(at + 2)? {
                    Some(file) => Some(Source {
                        file: file.into(),
                        line: unsigned(row.int(4)?)?,
                        column: unsigned(row.int(5)?)?,
                    }),
                    None => None,
                };
                let is_wanted = row.integer(2)?.is_some();
                let set = if is_wanted { row.maybe_string(at + 3)? } else { None };
                let mut requires = Vec::new();
                unpack_keys(row.blob(at + 1)?, &mut requires)?;
                let (key, status) = (ResourceKey(row.int(1)?), state.status());
                let summary =
                    ResourceSummary { key, id: parse_id(row.str(0)?)?, status, state, source };
                Ok(Some(ResourceDetails {
                    line: ResourceLine { summary, set },
                    attributes: Attributes::from_canonical(row.text(at)?.unwrap_or("{}")),
                    requires,
                }))
            })
        })?;
        found.flatten().ok_or_else(unknown)
    }

    /// Ids and statuses of resources, in the order of their ids.
    ///
    /// # Errors
    /// Those of the database.
    pub fn statuses_of(&self, keys: &[ResourceKey]) -> Result<Vec<(String, Status)>> {
        let statement = format!("{} WHERE resource.id = ?1", select());
        let mut found = self.look(|sql| {
            let mut found = Vec::with_capacity(keys.len());
            for key in keys {
                sql.visit(&statement, values![key.0], &mut |row| {
                    let status = state_of(row)?.map_or(Status::Orphaned, |state| state.status());
                    found.push((row.string(0)?, status));
                    Ok(())
                })?;
            }
            Ok(found)
        })?;
        found.sort_unstable();
        Ok(found)
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
            let columns = "SELECT since, until, hash, attributes, requires FROM revision";
            let read = |row: &dyn Row| {
                let mut requires = Vec::new();
                unpack_keys(row.blob(4)?, &mut requires)?;
                let until = row.integer(1)?.unwrap_or(i64::MAX);
                Ok((row.int(0)?, until, hash_from(row.blob(2)?)?, row.string(3)?, requires))
            };
            let past = format!("{columns} WHERE resource = ?1 AND until IS NOT NULL");
            let mut revisions = sql.all(&past, values![key], read)?;
            let current = format!("{columns} WHERE id = ?1");
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

    /// Resources that require one, in the newest version. It reads all requirements: ask seldom.
    ///
    /// # Errors
    /// `NoResource` if there is none.
    pub fn dependents(
        &self,
        environment: EnvironmentKey,
        id: &str,
        limit: usize,
    ) -> Result<Vec<ResourceKey>> {
        self.look(|sql| {
            let find = "SELECT id FROM resource WHERE environment = ?1 AND name = ?2";
            let key = sql.first(find, values![environment.0, id], |row| row.int(0))?;
            let key = ResourceKey(key.ok_or_else(|| StoreError::NoResource(id.to_owned()))?);
            let select = "SELECT resource.id, revision.requires FROM resource \
                 JOIN revision ON revision.id = resource.head WHERE resource.environment = ?1 \
                 AND revision.requires IS NOT NULL ORDER BY resource.name";
            let (mut found, mut keys) = (Vec::new(), Vec::new());
            sql.visit(select, values![environment.0], &mut |row| {
                unpack_keys(row.blob(1)?, &mut keys)?;
                if keys.contains(&key) && found.len() < limit {
                    found.push(ResourceKey(row.int(0)?));
                }
                Ok(())
            })?;
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
