//! Views of versions, and the base of a put of some sets.

use orrery_model::{AttributeHash, VersionNumber};

use crate::backend::PutTarget;
use crate::encoding::{flags_from_code, hash_from, unpack_keys, version_number_from};
use crate::records::{Transactions as _, Versions};
use crate::rows::ranges;
use crate::sql::{RowExt as _, Sql, SqlExt as _};
use crate::{
    EnvironmentKey, NewVersion, PutOutcome, ResourceFilter, ResourceKey, Result, StoreError, values,
};

/// Rows scanned per page.
const SCAN_MAX: usize = 10_000;

/// Revision of a resource in the newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestRevision {
    /// `None` for the shared set.
    pub set: Option<String>,
    pub hash: AttributeHash,
    pub requires: Vec<String>,
}

/// A resource of one version.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionEntry {
    pub id: String,
    pub set: Option<String>,
    /// Canonical text.
    pub attributes: String,
    pub requires: Vec<String>,
    pub undefined: bool,
}

fn set_name(sql: &mut dyn Sql, set: i64) -> Result<Option<String>> {
    if set == 0 {
        return Ok(None);
    }
    let select = "SELECT name FROM resource_set WHERE id = ?1";
    sql.first(select, values![set], |row| row.string(0))
}

fn names(sql: &mut dyn Sql, keys: &[ResourceKey]) -> Result<Vec<String>> {
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let select = "SELECT name FROM resource WHERE id = ?1 AND head IS NOT NULL";
        found.extend(sql.first(select, values![key.0], |row| row.string(0))?);
    }
    Ok(found)
}

impl Versions<'_> {
    /// The version that was stored last: the base of a put of some sets.
    ///
    /// # Errors
    /// Database errors.
    pub fn newest(&self, environment: EnvironmentKey) -> Result<Option<VersionNumber>> {
        let select = "SELECT number FROM version WHERE environment = ?1 ORDER BY step DESC LIMIT 1";
        self.query(|sql| {
            sql.first(select, values![environment.0], |row| version_number_from(row.int(0)?))
        })
    }

    /// True if an environment has a version that is or was released.
    ///
    /// # Errors
    /// Database errors.
    pub fn has_release(&self, environment: EnvironmentKey) -> Result<bool> {
        let select = "SELECT number FROM version WHERE environment = ?1 AND released = 1 LIMIT 1";
        let found =
            self.query(|sql| sql.first(select, values![environment.0], |row| row.int(0)))?;
        Ok(found.is_some())
    }

    /// Environments with a version that is or was released.
    ///
    /// # Errors
    /// Database errors.
    pub fn environments_with_release(&self) -> Result<Vec<EnvironmentKey>> {
        let select = "SELECT id FROM environment WHERE EXISTS (SELECT 1 FROM version \
             WHERE version.environment = environment.id AND version.released = 1)";
        self.query(|sql| sql.all(select, &[], |row| Ok(EnvironmentKey(row.int(0)?))))
    }

    /// Newest revisions of resources, in the given order; `None` for those that the newest version
    /// does not have.
    ///
    /// # Errors
    /// Database errors.
    pub fn newest_revisions(
        &self,
        environment: EnvironmentKey,
        ids: &[&str],
    ) -> Result<Vec<Option<NewestRevision>>> {
        let select = "SELECT revision.resource_set, revision.hash, revision.requires \
             FROM resource JOIN revision ON revision.id = resource.head \
             WHERE resource.environment = ?1 AND resource.name = ?2";
        self.query(|sql| {
            let mut found = Vec::with_capacity(ids.len());
            for id in ids {
                let row = sql.first(select, values![environment.0, *id], |row| {
                    let mut keys = Vec::new();
                    unpack_keys(row.blob(2)?, &mut keys)?;
                    Ok((row.int(0)?, hash_from(row.blob(1)?)?, keys))
                })?;
                found.push(match row {
                    None => None,
                    Some((set, hash, keys)) => Some(NewestRevision {
                        set: set_name(sql, set)?,
                        hash,
                        requires: names(sql, &keys)?,
                    }),
                });
            }
            Ok(found)
        })
    }

    /// Resources of a version in the order of their ids, after one. Returns the cursor of the next
    /// page.
    ///
    /// # Errors
    /// `NoVersion`.
    pub fn resources(
        &self,
        environment: EnvironmentKey,
        version: VersionNumber,
        filter: &ResourceFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<VersionEntry>, Option<String>)> {
        self.query(|sql| {
            let find = "SELECT step FROM version WHERE environment = ?1 AND number = ?2";
            let number = i64::from(version.0);
            let step = sql.first(find, values![environment.0, number], |row| row.int(0))?;
            let step = step.ok_or(StoreError::NoVersion(version))?;
            let types = "SELECT name FROM resource_type WHERE environment = ?1";
            let types = sql.all(types, values![environment.0], |row| row.string(0))?;
            let mut found = Vec::new();
            let mut looked_at = 0;
            for (begin, end) in ranges(filter, &types) {
                let mut low = match after {
                    Some(after) if after > begin.as_str() => after.to_owned(),
                    _ => begin,
                };
                while low < end {
                    let chunk = read_chunk(sql, environment, step, (&low, &end))?;
                    let read = chunk.len();
                    for (name, content) in chunk {
                        low.clone_from(&name);
                        let Some((set, flags, attributes, keys)) = content else { continue };
                        if !matches_value(filter, &name) {
                            continue;
                        }
                        if found.len() == limit {
                            let last = found.last().map(|last: &VersionEntry| last.id.clone());
                            return Ok((found, last));
                        }
                        found.push(VersionEntry {
                            id: name,
                            set: set_name(sql, set)?,
                            attributes,
                            requires: names(sql, &keys)?,
                            undefined: flags_from_code(flags).undefined,
                        });
                    }
                    looked_at += read;
                    if read < CHUNK {
                        break;
                    }
                    if looked_at >= SCAN_MAX {
                        return Ok((found, Some(low)));
                    }
                }
            }
            Ok((found, None))
        })
    }
}

const CHUNK: usize = 500;

/// Set, flags, attributes and requirements of one resource in a version.
type Content = (i64, i64, String, Vec<ResourceKey>);

/// The next names of a range, each with its desired state in a version.
fn read_chunk(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    step: i64,
    (low, high): (&str, &str),
) -> Result<Vec<(String, Option<Content>)>> {
    let columns = "revision.resource_set, revision.flags, revision.attributes, revision.requires";
    let select = format!(
        "SELECT {columns}, resource.name, resource.id, revision.since FROM resource \
         LEFT JOIN revision ON revision.id = resource.head \
         WHERE resource.environment = ?1 AND resource.name > ?2 AND resource.name < ?3 \
         ORDER BY resource.environment, resource.name LIMIT ?4"
    );
    let content = |row: &dyn crate::sql::Row| -> Result<Content> {
        let mut keys = Vec::new();
        unpack_keys(row.blob(3)?, &mut keys)?;
        Ok((row.int(0)?, row.int(1)?, row.string(2)?, keys))
    };
    let count = i64::try_from(CHUNK).unwrap_or(i64::MAX);
    let rows = sql.all(&select, values![environment.0, low, high, count], |row| {
        let is_current = row.integer(6)?.is_some_and(|since| since <= step);
        let current = if is_current { Some(content(row)?) } else { None };
        Ok((row.string(4)?, row.int(5)?, current))
    })?;
    let past = format!(
        "SELECT {columns} FROM ended JOIN revision ON revision.id = ended.revision \
         WHERE ended.resource = ?1 AND ended.until > ?2 AND revision.since <= ?2"
    );
    let mut found = Vec::with_capacity(rows.len());
    for (name, key, current) in rows {
        let content = match current {
            Some(content) => Some(content),
            None => sql.first(&past, values![key, step], content)?,
        };
        found.push((name, content));
    }
    Ok(found)
}

pub(super) fn matches_value(filter: &ResourceFilter, name: &str) -> bool {
    let Some(pattern) = &filter.value else { return true };
    crate::resource_loader::parse_id(name).is_ok_and(|id| pattern.matches_value(&id))
}

impl Versions<'_> {
    /// Stores a version. Resources that equal those of the newest version are shared with it.
    ///
    /// # Errors
    /// `DuplicateResource`, `DanglingRequires`, `BaseChanged`, `OtherProject`, `VersionExists`,
    /// `VersionNotReserved`; `StaleEpoch` under a lease that is not the current one.
    pub fn put(&self, environment: EnvironmentKey, version: &NewVersion<'_>) -> Result<PutOutcome> {
        self.backend().put_version(PutTarget::Environment(environment), version)
    }
}
