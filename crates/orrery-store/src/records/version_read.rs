//! Contents of versions: a whole one, the difference of two, the newest one of a resource.
//!
//! Large tables are read in pages by name, in the order in which resources are stored. So memory use
//! stays small, and the database never sorts a million rows.

use orrery_model::{Resource, ResourceId, Version, VersionNumber};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::records::release::find_version;
use crate::records::{Resources, Transactions as _, Versions};
use crate::resource_loader::{NameInterner, ResourceLoader, parse_id, to_resource};
use crate::rows::{REVISION_COLUMNS, SharedNames, resource_row};
use crate::sql::{Row, RowExt as _, Sql, SqlExt as _, SqlValue};
use crate::{
    EnvironmentKey, ResourceDiff, ResourceKey, ResourceRow, Result, StoreError, VersionInfo, values,
};

/// Rows per page.
pub(super) const PAGE: i64 = 5_000;

/// Resources or revisions looked up at a time.
const LOOKUP_BATCH: usize = 1_000;

pub(super) fn read_names(sql: &mut dyn Sql, environment: EnvironmentKey) -> Result<SharedNames> {
    let pair = |row: &dyn Row| Ok((row.int(0)?, row.string(1)?));
    let sets = "SELECT id, name FROM resource_set WHERE environment = ?1";
    let sets = sql.all(sets, values![environment.0], pair)?.into_iter().collect();
    let files = sql.all("SELECT id, path FROM source_file", &[], pair)?.into_iter().collect();
    Ok(SharedNames { sets, files })
}

/// Visits all resources by name. Where the newest revision is too new, the one that was valid is
/// looked up, so the cost grows with the size of the version and the number of later changes.
fn read_version(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    number: VersionNumber,
    visit: &mut dyn FnMut(ResourceRow<'_>),
) -> Result<VersionInfo> {
    /// First columns of the two revisions.
    const HEAD: usize = 5;
    const PAST: usize = 10;
    sql.prefer_index_scans()?;
    let (info, step) = find_version(sql, environment, number)?;
    let names = read_names(sql, environment)?;
    let newest = "SELECT max(step) FROM version WHERE environment = ?1";
    let newest = sql.first(newest, values![environment.0], |row| row.integer(0))?.flatten();
    // Every head belongs to the newest version.
    let has_past = newest != Some(step);
    let (past_columns, past) = if has_past {
        let columns = ", past.hash, past.flags, past.resource_set, past.attributes, past.requires";
        let join = "LEFT JOIN revision AS past ON past.since <= ?4 \
             AND past.id = CASE WHEN head.id IS NULL \
                 THEN (SELECT ended.revision FROM ended WHERE ended.resource = resource.id \
                     AND ended.until > ?4 ORDER BY ended.until LIMIT 1) END";
        (columns, join)
    } else {
        ("", "")
    };
    let select = format!(
        "SELECT resource.name, resource.id, resource.source_file, resource.source_line, \
         resource.source_column, head.hash, head.flags, head.resource_set, head.attributes, \
         head.requires{past_columns} FROM resource \
         LEFT JOIN revision AS head ON head.id = resource.head AND head.since <= ?4 {past} \
         WHERE resource.environment = ?1 AND resource.name > ?2 \
         ORDER BY resource.environment, resource.name LIMIT ?3"
    );
    let mut requires = Vec::new();
    for_each_page(sql, &select, values![environment.0, "", PAGE, step], 0, &mut |row| {
        let revision = if row.blob(HEAD)?.is_some() {
            HEAD
        } else if has_past && row.blob(PAST)?.is_some() {
            PAST
        } else {
            return Ok(());
        };
        let id = (row.int(1)?, row.str(0)?);
        let source = names.source(row, 2)?;
        visit(resource_row(row, revision, id, source, &names, &mut requires)?);
        Ok(())
    })?;
    Ok(info)
}

/// Visits the rows of a query page by page. Its second parameter is the name after which a page
/// begins, its third the number of rows; `name_column` has the name of a row.
pub(super) fn for_each_page(
    sql: &mut dyn Sql,
    select: &str,
    values: &[SqlValue<'_>],
    name_column: usize,
    visit: &mut dyn FnMut(&dyn Row) -> Result<()>,
) -> Result<()> {
    let mut last = String::new();
    loop {
        let mut next = String::new();
        let mut count = 0;
        let mut values = values.to_vec();
        values[1] = SqlValue::Text(&last);
        sql.visit(select, &values, &mut |row| {
            count += 1;
            if count == PAGE {
                next = row.string(name_column)?;
            }
            visit(row)
        })?;
        if count < PAGE {
            return Ok(());
        }
        last = next;
    }
}

/// Revisions of one resource on the two sides of a difference.
#[derive(Clone, Copy, Default)]
struct Sides {
    before: Option<i64>,
    after: Option<i64>,
}

/// Revisions that differ between two steps, by resource. Reads only rows that were written or
/// replaced between the two.
fn differing_revisions(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    (low, high): (i64, i64),
) -> Result<Vec<(i64, Sides)>> {
    // SQLite keeps the order of a CROSS JOIN; by itself, it would scan all revisions.
    let mut sides: FxHashMap<i64, Sides> = FxHashMap::default();
    let mut passing: FxHashSet<i64> = FxHashSet::default();
    let span = values![environment.0, low, high];
    let ended = "SELECT ended.resource, ended.revision, revision.since FROM ended \
         CROSS JOIN revision WHERE revision.id = ended.revision \
         AND ended.environment = ?1 AND ended.until > ?2 AND ended.until <= ?3";
    sql.visit(ended, span, &mut |row| {
        if row.int(2)? <= low {
            sides.entry(row.int(0)?).or_default().before = Some(row.int(1)?);
        } else {
            passing.insert(row.int(1)?);
        }
        Ok(())
    })?;
    let written = "SELECT revision.resource, revision.id FROM step CROSS JOIN revision \
         WHERE revision.id >= step.first_revision AND revision.id < step.end_revision \
         AND step.environment = ?1 AND step.id > ?2 AND step.id <= ?3";
    sql.visit(written, span, &mut |row| {
        let revision = row.int(1)?;
        if !passing.contains(&revision) {
            sides.entry(row.int(0)?).or_default().after = Some(revision);
        }
        Ok(())
    })?;
    let mut sides: Vec<(i64, Sides)> = sides.into_iter().collect();
    sides.sort_unstable_by_key(|(key, _)| *key);
    Ok(sides)
}

fn diff_versions(
    sql: &mut dyn Sql,
    environment: EnvironmentKey,
    from: VersionNumber,
    to: VersionNumber,
    visit: &mut dyn FnMut(ResourceDiff),
) -> Result<()> {
    let (_, from) = find_version(sql, environment, from)?;
    let (_, to) = find_version(sql, environment, to)?;
    sql.prefer_index_scans()?;
    let sides = differing_revisions(sql, environment, (from.min(to), from.max(to)))?;
    let keys: Vec<i64> = sides.iter().map(|(key, _)| *key).collect();
    let ids = read_ids(sql, &keys)?;
    let mut found: Vec<(ResourceId, i64, Sides)> = Vec::with_capacity(sides.len());
    for (key, sides) in sides {
        found.push((id_of(&ids, key)?, key, sides));
    }
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let names = read_names(sql, environment)?;
    for found in found.chunks(LOOKUP_BATCH) {
        let revisions: Vec<i64> =
            found.iter().flat_map(|(_, _, sides)| [sides.before, sides.after]).flatten().collect();
        let mut loaded = load_revisions(sql, &names, &revisions)?;
        let mut take = |revision: Option<i64>| -> Result<Option<Resource>> {
            let Some(number) = revision else { return Ok(None) };
            let resource = loaded.remove(&number);
            resource.map(Some).ok_or_else(|| {
                StoreError::Unreadable(format!("there is no revision number {number}"))
            })
        };
        for (id, key, sides) in found {
            let (before, after) = (take(sides.before)?, take(sides.after)?);
            // A resource may have been removed and added again unchanged.
            if before != after {
                let (before, after) = if from <= to { (before, after) } else { (after, before) };
                visit(ResourceDiff { key: ResourceKey(*key), id: id.clone(), before, after });
            }
        }
    }
    Ok(())
}

/// Ids of resources by their keys.
fn read_ids(sql: &mut dyn Sql, keys: &[i64]) -> Result<FxHashMap<i64, ResourceId>> {
    let select = format!("SELECT id, name FROM resource WHERE id {}", sql.in_integers("?1"));
    let mut ids = FxHashMap::default();
    for keys in keys.chunks(LOOKUP_BATCH) {
        sql.visit(&select, &[SqlValue::Integers(keys)], &mut |row| {
            ids.insert(row.int(0)?, parse_id(row.str(1)?)?);
            Ok(())
        })?;
    }
    Ok(ids)
}

fn id_of(ids: &FxHashMap<i64, ResourceId>, key: i64) -> Result<ResourceId> {
    ids.get(&key).cloned().ok_or_else(|| {
        StoreError::Unreadable(format!("there is no name for the resource number {key}"))
    })
}

/// Reads revisions as owned resources, by their numbers.
pub(super) fn load_revisions(
    sql: &mut dyn Sql,
    names: &SharedNames,
    revisions: &[i64],
) -> Result<FxHashMap<i64, Resource>> {
    let select = format!(
        "SELECT revision.id, resource.id, resource.name, resource.source_file, \
         resource.source_line, resource.source_column, {REVISION_COLUMNS} \
         FROM revision JOIN resource ON resource.id = revision.resource WHERE revision.id {}",
        sql.in_integers("?1")
    );
    let mut shared = NameInterner::default();
    let loaded = sql.all(&select, &[SqlValue::Integers(revisions)], |row| {
        let mut requires = Vec::new();
        let id = (row.int(1)?, row.str(2)?);
        let source = names.source(row, 3)?;
        let resource = resource_row(row, 6, id, source, names, &mut requires)?;
        let resource = to_resource(&resource, &mut shared)?;
        Ok((row.int(0)?, resource, requires))
    })?;
    let mut required: Vec<i64> =
        loaded.iter().flat_map(|(_, _, requires)| requires).map(|key| key.0).collect();
    required.sort_unstable();
    required.dedup();
    let ids = read_ids(sql, &required)?;
    let mut resources = FxHashMap::default();
    for (number, mut resource, requires) in loaded {
        resource.requires = requires.iter().map(|key| id_of(&ids, key.0)).collect::<Result<_>>()?;
        resources.insert(number, resource);
    }
    Ok(resources)
}

impl Versions<'_> {
    /// Visits the resources of a version in the order of their ids. The visitor must not call the
    /// store, which may hold its only connection meanwhile.
    ///
    /// # Errors
    /// `NoVersion`.
    pub fn read(
        &self,
        environment: EnvironmentKey,
        number: VersionNumber,
        visit: &mut dyn FnMut(ResourceRow<'_>),
    ) -> Result<VersionInfo> {
        self.scan(|sql| read_version(sql, environment, number, visit))
    }

    /// Reads a whole version into memory.
    ///
    /// # Errors
    /// `NoVersion`.
    pub fn load(&self, environment: EnvironmentKey, number: VersionNumber) -> Result<Version> {
        let mut loader = ResourceLoader::default();
        let info = self.read(environment, number, &mut |row| loader.add(row))?;
        Ok(Version { number, made_at: info.made_at, info: info.info, resources: loader.finish()? })
    }

    /// Visits the differences in the order of ids. Source locations do not count.
    ///
    /// # Errors
    /// `NoVersion`.
    pub fn diff(
        &self,
        environment: EnvironmentKey,
        from: VersionNumber,
        to: VersionNumber,
        visit: &mut dyn FnMut(ResourceDiff),
    ) -> Result<()> {
        self.scan(|sql| diff_versions(sql, environment, from, to, visit))
    }
}

impl Resources<'_> {
    /// Desired state of a resource in the newest version that has it.
    ///
    /// # Errors
    /// Database errors.
    pub fn read(&self, environment: EnvironmentKey, id: &str) -> Result<Option<Resource>> {
        let select = "SELECT coalesce(resource.head, (SELECT max(ended.revision) FROM ended \
             WHERE ended.resource = resource.id)) \
             FROM resource WHERE resource.environment = ?1 AND resource.name = ?2";
        self.query(|sql| {
            let found = sql.first(select, values![environment.0, id], |row| row.integer(0))?;
            let Some(revision) = found.flatten() else { return Ok(None) };
            let names = read_names(sql, environment)?;
            Ok(load_revisions(sql, &names, &[revision])?.remove(&revision))
        })
    }
}
