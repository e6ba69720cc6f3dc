//! Reading versions: a whole one, the difference of two, and the list of them.

use std::collections::BTreeMap;

use orrery_model::{Resource, ResourceId, VersionNumber};
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use rustc_hash::{FxHashMap, FxHashSet};

use super::text_from;
use crate::resource_loader::{NameInterner, parse_id, to_resource};
use crate::rows::{REVISION_COLUMNS, SharedNames, VERSION_COLUMNS, resource_row, version_from};
use crate::{
    EnvironmentKey, ResourceDiff, ResourceKey, ResourceRow, Result, StoreError, VersionInfo,
};

pub(super) fn versions(tx: &Connection, environment: EnvironmentKey) -> Result<Vec<VersionInfo>> {
    let sql =
        format!("SELECT {VERSION_COLUMNS} FROM version WHERE environment = ?1 ORDER BY number");
    let mut statement = tx.prepare_cached(&sql)?;
    let mut rows = statement.query([environment.0])?;
    let mut versions = Vec::new();
    while let Some(row) = rows.next()? {
        versions.push(version_from(row)?.0);
    }
    Ok(versions)
}

/// A version and its step.
pub(super) fn find_version(
    tx: &Connection,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<(VersionInfo, i64)> {
    let sql =
        format!("SELECT {VERSION_COLUMNS} FROM version WHERE environment = ?1 AND number = ?2");
    let mut statement = tx.prepare_cached(&sql)?;
    let mut rows = statement.query(params![environment.0, number.0])?;
    rows.next()?.map_or(Err(StoreError::NoVersion(number)), version_from)
}

pub(super) fn read_names(tx: &Connection, environment: EnvironmentKey) -> Result<SharedNames> {
    let mut statement =
        tx.prepare_cached("SELECT id, name FROM resource_set WHERE environment = ?1")?;
    let sets = statement.query_map([environment.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let sets = sets.collect::<rusqlite::Result<_>>()?;
    let mut statement = tx.prepare_cached("SELECT id, path FROM source_file")?;
    let files = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let files = files.collect::<rusqlite::Result<_>>()?;
    Ok(SharedNames { sets, files })
}

/// Visits all resources by name. Where the newest revision is too new, the former one is looked up,
/// so the cost grows with the size of the version and the number of later changes.
pub(super) fn read_version(
    tx: &Connection,
    environment: EnvironmentKey,
    number: VersionNumber,
    visit: &mut dyn FnMut(ResourceRow<'_>),
) -> Result<VersionInfo> {
    let (info, step) = find_version(tx, environment, number)?;
    let names = read_names(tx, environment)?;
    let sql = format!(
        "SELECT resource.name, resource.id, resource.source_file, resource.source_line, \
         resource.source_column, revision.since, {REVISION_COLUMNS} \
         FROM resource LEFT JOIN revision ON revision.id = resource.head \
         WHERE resource.environment = ?1 ORDER BY resource.environment, resource.name"
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let sql = format!(
        "SELECT {REVISION_COLUMNS} FROM ended CROSS JOIN revision ON revision.id = ended.revision \
         WHERE ended.resource = ?1 AND ended.until > ?2 AND revision.since <= ?2"
    );
    let mut past = tx.prepare_cached(&sql)?;
    let mut requires = Vec::new();
    let mut rows = statement.query([environment.0])?;
    while let Some(row) = rows.next()? {
        let id = (row.get(1)?, text_from(row.get_ref(0)?)?);
        let source = names.source(row, 2)?;
        let is_of_this_version = match row.get_ref(5)? {
            ValueRef::Integer(since) => since <= step,
            _ => false,
        };
        if is_of_this_version {
            visit(resource_row(row, 6, id, source, &names, &mut requires)?);
        } else {
            let mut rows = past.query([id.0, step])?;
            if let Some(row) = rows.next()? {
                visit(resource_row(row, 0, id, source, &names, &mut requires)?);
            }
        }
    }
    Ok(info)
}

/// Revisions of one resource on the two sides of a difference.
#[derive(Clone, Copy, Default)]
struct Sides {
    before: Option<i64>,
    after: Option<i64>,
}

/// Reads only rows that were written or replaced between the two versions.
pub(super) fn diff_versions(
    tx: &Connection,
    environment: EnvironmentKey,
    from: VersionNumber,
    to: VersionNumber,
    visit: &mut dyn FnMut(ResourceDiff),
) -> Result<()> {
    let (_, from) = find_version(tx, environment, from)?;
    let (_, to) = find_version(tx, environment, to)?;
    let (low, high) = (from.min(to), from.max(to));

    let mut sides: FxHashMap<i64, Sides> = FxHashMap::default();
    let mut statement = tx.prepare_cached(
        "SELECT ended.resource, ended.revision, revision.since FROM ended \
         CROSS JOIN revision ON revision.id = ended.revision \
         WHERE ended.environment = ?1 AND ended.until > ?2 AND ended.until <= ?3",
    )?;
    let mut passing: FxHashSet<i64> = FxHashSet::default();
    let mut rows = statement.query([environment.0, low, high])?;
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(2)? <= low {
            sides.entry(row.get(0)?).or_default().before = Some(row.get(1)?);
        } else {
            passing.insert(row.get(1)?);
        }
    }
    let mut statement = tx.prepare_cached(
        "SELECT revision.resource, revision.id FROM step CROSS JOIN revision \
         ON revision.id >= step.first_revision AND revision.id < step.end_revision \
         WHERE step.environment = ?1 AND step.id > ?2 AND step.id <= ?3",
    )?;
    let mut rows = statement.query([environment.0, low, high])?;
    while let Some(row) = rows.next()? {
        let revision: i64 = row.get(1)?;
        if !passing.contains(&revision) {
            sides.entry(row.get(0)?).or_default().after = Some(revision);
        }
    }

    let mut reader = ResourceReader::new(tx, environment)?;
    let mut found: Vec<(ResourceId, i64, Sides)> = Vec::with_capacity(sides.len());
    let mut keys: Vec<(i64, Sides)> = sides.into_iter().collect();
    keys.sort_unstable_by_key(|(key, _)| *key);
    for (key, sides) in keys {
        found.push((reader.id(key)?, key, sides));
    }
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    for (id, key, sides) in found {
        let before =
            sides.before.map(|revision| reader.resource(&id, key, revision)).transpose()?;
        let after = sides.after.map(|revision| reader.resource(&id, key, revision)).transpose()?;
        // A resource may have been removed and added again unchanged.
        if before != after {
            let (before, after) = if from <= to { (before, after) } else { (after, before) };
            visit(ResourceDiff { key: ResourceKey(key), id, before, after });
        }
    }
    Ok(())
}

/// Desired state of a resource in the newest version that has it.
pub(super) fn read_resource(
    tx: &Connection,
    environment: EnvironmentKey,
    name: &str,
) -> Result<Option<Resource>> {
    let sql = "SELECT resource.id, coalesce(resource.head, (SELECT max(ended.revision) FROM ended \
         WHERE ended.resource = resource.id)) \
         FROM resource WHERE resource.environment = ?1 AND resource.name = ?2";
    let found = tx.query_row(sql, params![environment.0, name], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?))
    });
    let Some((key, Some(revision))) = found.optional()? else { return Ok(None) };
    let id = parse_id(name)?;
    ResourceReader::new(tx, environment)?.resource(&id, key, revision).map(Some)
}

/// Reads single revisions as owned resources.
pub(super) struct ResourceReader<'a> {
    names: SharedNames,
    shared: NameInterner,
    ids: BTreeMap<i64, ResourceId>,
    name: CachedStatement<'a>,
    revision: CachedStatement<'a>,
}

impl<'a> ResourceReader<'a> {
    pub(super) fn new(tx: &'a Connection, environment: EnvironmentKey) -> Result<Self> {
        let sql = format!(
            "SELECT {REVISION_COLUMNS}, resource.source_file, resource.source_line, resource.source_column \
             FROM revision JOIN resource ON resource.id = revision.resource WHERE revision.id = ?1"
        );
        Ok(ResourceReader {
            names: read_names(tx, environment)?,
            shared: NameInterner::default(),
            ids: BTreeMap::new(),
            name: tx.prepare_cached("SELECT name FROM resource WHERE id = ?1")?,
            revision: tx.prepare_cached(&sql)?,
        })
    }

    pub(super) fn id(&mut self, key: i64) -> Result<ResourceId> {
        if let Some(id) = self.ids.get(&key) {
            return Ok(id.clone());
        }
        let mut rows = self.name.query([key])?;
        let row = rows.next()?.ok_or_else(|| {
            StoreError::Unreadable(format!("there is no name for the resource number {key}"))
        })?;
        let id = parse_id(text_from(row.get_ref(0)?)?)?;
        self.ids.insert(key, id.clone());
        Ok(id)
    }

    pub(super) fn resource(
        &mut self,
        id: &ResourceId,
        key: i64,
        revision: i64,
    ) -> Result<Resource> {
        let mut requires = Vec::new();
        let mut resource = {
            let mut rows = self.revision.query([revision])?;
            let row = rows.next()?.ok_or_else(|| {
                StoreError::Unreadable(format!("there is no revision number {revision}"))
            })?;
            let source = self.names.source(row, 5)?;
            let row = resource_row(row, 0, (key, id.as_str()), source, &self.names, &mut requires)?;
            to_resource(&row, &mut self.shared)?
        };
        resource.id = id.clone();
        for required in requires {
            let id = self.id(required.0)?;
            resource.requires.push(id);
        }
        Ok(resource)
    }
}
