//! Reading versions: a whole one, the difference of two, and the list of them.
//!
//! Large tables are read in pages by name, each in the one order in which resources are stored. So
//! memory use stays small, and the database never sorts a million rows.

use orrery_model::{Resource, ResourceId, VersionNumber};
use postgres::Row;
use rustc_hash::{FxHashMap, FxHashSet};

use super::transaction::Tx;
use crate::resource_loader::{NameInterner, parse_id, to_resource};
use crate::rows::{REVISION_COLUMNS, SharedNames, VERSION_COLUMNS, resource_row, version_from};
use crate::sql::{Row as _, RowExt as _};
use crate::{
    EnvironmentKey, ResourceDiff, ResourceKey, ResourceRow, Result, StoreError, VersionInfo,
};

/// Rows per page.
pub(super) const PAGE: i64 = 5_000;

/// Differences loaded at a time.
const LOAD_BATCH: usize = 1_000;

pub(super) fn versions(tx: &mut Tx<'_>, environment: EnvironmentKey) -> Result<Vec<VersionInfo>> {
    let sql =
        format!("SELECT {VERSION_COLUMNS} FROM version WHERE environment = $1 ORDER BY number");
    let rows = tx.query(&sql, &[&environment.0])?;
    rows.iter().map(|row| Ok(version_from(row)?.0)).collect()
}

/// A version and its step.
pub(super) fn find_version(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<(VersionInfo, i64)> {
    let sql =
        format!("SELECT {VERSION_COLUMNS} FROM version WHERE environment = $1 AND number = $2");
    let row = tx.first(&sql, &[&environment.0, &i64::from(number.0)])?;
    row.as_ref().map_or(Err(StoreError::NoVersion(number)), version_from)
}

pub(super) fn read_names(tx: &mut Tx<'_>, environment: EnvironmentKey) -> Result<SharedNames> {
    let pairs = |rows: Vec<Row>| rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let sql = "SELECT id, name FROM resource_set WHERE environment = $1";
    let sets = pairs(tx.query(sql, &[&environment.0])?);
    let files = pairs(tx.query("SELECT id, path FROM source_file", &[])?);
    Ok(SharedNames { sets, files })
}

/// Visits all resources by name. Where the newest revision is too new, the former one is looked up,
/// so the cost grows with the size of the version and the number of later changes.
pub(super) fn read_version(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    number: VersionNumber,
    visit: &mut dyn FnMut(ResourceRow<'_>),
) -> Result<VersionInfo> {
    tx.prefer_index_scans()?;
    let (info, step) = find_version(tx, environment, number)?;
    let names = read_names(tx, environment)?;
    let sql = "SELECT resource.name, resource.id, resource.source_file, resource.source_line, \
         resource.source_column, coalesce(head.hash, past.hash), coalesce(head.flags, past.flags), \
         coalesce(head.resource_set, past.resource_set), \
         coalesce(head.attributes, past.attributes), coalesce(head.requires, past.requires) \
         FROM (SELECT * FROM resource WHERE environment = $1 AND name > $2 \
             ORDER BY name LIMIT $3) AS resource \
         LEFT JOIN revision AS head ON head.id = resource.head AND head.since <= $4 \
         LEFT JOIN (ended JOIN revision AS past ON past.id = ended.revision) \
             ON head.id IS NULL AND ended.resource = resource.id \
             AND past.since <= $4 AND ended.until > $4 \
         ORDER BY resource.name";
    let mut requires = Vec::new();
    let mut last = String::new();
    loop {
        let rows = tx.query(sql, &[&environment.0, &last, &PAGE, &step])?;
        let Some(end) = rows.last() else { return Ok(info) };
        last = end.string(0)?;
        for row in &rows {
            if row.blob(5)?.is_none() {
                continue;
            }
            let id = (row.int(1)?, row.str(0)?);
            let source = names.source(row, 2)?;
            visit(resource_row(row, 5, id, source, &names, &mut requires)?);
        }
    }
}

/// Revisions of one resource on the two sides of a difference.
#[derive(Clone, Copy, Default)]
struct Sides {
    before: Option<i64>,
    after: Option<i64>,
}

/// Reads only rows that were written or replaced between the two versions.
pub(super) fn diff_versions(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    from: VersionNumber,
    to: VersionNumber,
    visit: &mut dyn FnMut(ResourceDiff),
) -> Result<()> {
    let (_, from) = find_version(tx, environment, from)?;
    let (_, to) = find_version(tx, environment, to)?;
    let (low, high) = (from.min(to), from.max(to));
    tx.prefer_index_scans()?;

    let mut sides: FxHashMap<i64, Sides> = FxHashMap::default();
    let mut passing: FxHashSet<i64> = FxHashSet::default();
    let sql = "SELECT ended.resource, ended.revision, revision.since FROM ended \
         JOIN revision ON revision.id = ended.revision \
         WHERE ended.environment = $1 AND ended.until > $2 AND ended.until <= $3";
    for row in tx.query(sql, &[&environment.0, &low, &high])? {
        if row.get::<_, i64>(2) <= low {
            sides.entry(row.get(0)).or_default().before = Some(row.get(1));
        } else {
            passing.insert(row.get(1));
        }
    }
    let sql = "SELECT revision.resource, revision.id FROM step JOIN revision \
         ON revision.id >= step.first_revision AND revision.id < step.end_revision \
         WHERE step.environment = $1 AND step.id > $2 AND step.id <= $3";
    for row in tx.query(sql, &[&environment.0, &low, &high])? {
        let revision: i64 = row.get(1);
        if !passing.contains(&revision) {
            sides.entry(row.get(0)).or_default().after = Some(revision);
        }
    }

    let mut sides: Vec<(i64, Sides)> = sides.into_iter().collect();
    sides.sort_unstable_by_key(|(key, _)| *key);
    let keys: Vec<i64> = sides.iter().map(|(key, _)| *key).collect();
    let ids = read_ids(tx, &keys)?;
    let mut found: Vec<(ResourceId, i64, Sides)> = Vec::with_capacity(sides.len());
    for (key, sides) in sides {
        found.push((id_of(&ids, key)?, key, sides));
    }
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let names = read_names(tx, environment)?;
    for found in found.chunks(LOAD_BATCH) {
        let revisions: Vec<i64> =
            found.iter().flat_map(|(_, _, sides)| [sides.before, sides.after]).flatten().collect();
        let mut loaded = load_revisions(tx, &names, &revisions)?;
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
                let key = ResourceKey(*key);
                visit(ResourceDiff { key, id: id.clone(), before, after });
            }
        }
    }
    Ok(())
}

/// Desired state of a resource in the newest version that has it.
pub(super) fn read_resource(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    name: &str,
) -> Result<Option<Resource>> {
    let sql = "SELECT coalesce(resource.head, (SELECT max(ended.revision) FROM ended \
         WHERE ended.resource = resource.id)) \
         FROM resource WHERE resource.environment = $1 AND resource.name = $2";
    let Some(row) = tx.first(sql, &[&environment.0, &name])? else { return Ok(None) };
    let Some(revision) = row.integer(0)? else { return Ok(None) };
    let names = read_names(tx, environment)?;
    Ok(load_revisions(tx, &names, &[revision])?.remove(&revision))
}

/// Ids of resources by their keys.
fn read_ids(tx: &mut Tx<'_>, keys: &[i64]) -> Result<FxHashMap<i64, ResourceId>> {
    let rows = tx.query("SELECT id, name FROM resource WHERE id = ANY($1)", &[&keys])?;
    rows.iter().map(|row| Ok((row.int(0)?, parse_id(row.str(1)?)?))).collect()
}

fn id_of(ids: &FxHashMap<i64, ResourceId>, key: i64) -> Result<ResourceId> {
    ids.get(&key).cloned().ok_or_else(|| {
        StoreError::Unreadable(format!("there is no name for the resource number {key}"))
    })
}

/// Reads revisions as owned resources, by their numbers.
pub(super) fn load_revisions(
    tx: &mut Tx<'_>,
    names: &SharedNames,
    revisions: &[i64],
) -> Result<FxHashMap<i64, Resource>> {
    let sql = format!(
        "SELECT revision.id, resource.id, resource.name, resource.source_file, \
         resource.source_line, resource.source_column, {REVISION_COLUMNS} \
         FROM revision JOIN resource ON resource.id = revision.resource \
         WHERE revision.id = ANY($1)"
    );
    let rows = tx.query(&sql, &[&revisions])?;
    let mut shared = NameInterner::default();
    let mut loaded: Vec<(i64, Resource, Vec<ResourceKey>)> = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut requires = Vec::new();
        let id = (row.int(1)?, row.str(2)?);
        let source = names.source(row, 3)?;
        let resource =
            to_resource(&resource_row(row, 6, id, source, names, &mut requires)?, &mut shared)?;
        loaded.push((row.int(0)?, resource, requires));
    }
    let mut required: Vec<i64> =
        loaded.iter().flat_map(|(_, _, requires)| requires).map(|key| key.0).collect();
    required.sort_unstable();
    required.dedup();
    let ids = if required.is_empty() { FxHashMap::default() } else { read_ids(tx, &required)? };
    let mut resources = FxHashMap::default();
    for (number, mut resource, requires) in loaded {
        resource.requires = requires.iter().map(|key| id_of(&ids, key.0)).collect::<Result<_>>()?;
        resources.insert(number, resource);
    }
    Ok(resources)
}
