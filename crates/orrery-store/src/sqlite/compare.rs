//! Comparison of the given resources with the stored ones.
//!
//! Both are in the order of ids, so a whole version is compared in one pass over the table
//! `resource`, without lookups. A put of some sets looks up just those.

use orrery_model::SetName;
use rusqlite::{Connection, OptionalExtension, params};
use rustc_hash::{FxHashMap, FxHashSet};

use super::text_from;
use crate::version_delta::{SortedInput, StoredResource, VersionDelta};
use crate::{EnvironmentKey, PutScope, Result};

const STORED: &str = "resource.name, resource.id, resource.head, resource.digest, \
     resource.source_file, resource.source_line, resource.source_column";

/// Computes the rows that a put has to write.
pub(super) fn compare(
    tx: &Connection,
    environment: EnvironmentKey,
    given: &SortedInput<'_>,
    files: &FxHashMap<String, i64>,
    scope: PutScope<'_>,
) -> Result<VersionDelta> {
    let mut delta =
        VersionDelta { keys: vec![0; given.resources.len()], ..VersionDelta::default() };
    match scope {
        PutScope::All => compare_all(tx, environment, given, files, None, &mut delta)?,
        PutScope::Sets(sets) if sets.contains(&None) => {
            compare_all(tx, environment, given, files, Some(sets), &mut delta)?;
        }
        PutScope::Sets(sets) => compare_sets(tx, environment, given, files, sets, &mut delta)?,
    }
    Ok(delta)
}

/// Compares all stored resources with the given ones in one pass. With `sets`, resources of other
/// sets stay.
fn compare_all(
    tx: &Connection,
    environment: EnvironmentKey,
    given: &SortedInput<'_>,
    files: &FxHashMap<String, i64>,
    sets: Option<&[SetName]>,
    delta: &mut VersionDelta,
) -> Result<()> {
    let mut replaced: FxHashSet<i64> = FxHashSet::default();
    for set in sets.unwrap_or_default() {
        replaced.extend(find_set(tx, environment, set)?);
    }
    let mut set_of_revision =
        tx.prepare_cached("SELECT resource_set FROM revision WHERE id = ?1")?;
    let sql =
        format!("SELECT {STORED} FROM resource WHERE environment = ?1 ORDER BY environment, name");
    let mut statement = tx.prepare_cached(&sql)?;
    let mut rows = statement.query([environment.0])?;
    let (mut position, count) = (0, given.resources.len());
    while let Some(row) = rows.next()? {
        let name = text_from(row.get_ref(0)?)?;
        while position < count && given.at(position).id.as_str() < name {
            delta.created.push(given.index(position));
            position += 1;
        }
        if position < count && given.at(position).id.as_str() == name {
            let stored = StoredResource::from_row(row, 1)?;
            delta.compare(given.index(position), given.at(position), &stored, files);
            position += 1;
        } else if let Some(head) = row.get::<_, Option<i64>>(2)? {
            let goes = sets.is_none()
                || replaced.contains(&set_of_revision.query_row([head], |row| row.get(0))?);
            if goes {
                delta.removed.push((row.get(1)?, head));
            }
        }
    }
    delta.created.extend((position..count).map(|position| given.index(position)));
    Ok(())
}

/// Looks up the given resources and the members of the replaced sets.
fn compare_sets(
    tx: &Connection,
    environment: EnvironmentKey,
    given: &SortedInput<'_>,
    files: &FxHashMap<String, i64>,
    sets: &[SetName],
    delta: &mut VersionDelta,
) -> Result<()> {
    let mut seen: FxHashSet<i64> = FxHashSet::default();
    let sql = format!("SELECT {STORED} FROM resource WHERE environment = ?1 AND name = ?2");
    let mut statement = tx.prepare_cached(&sql)?;
    for position in 0..given.resources.len() {
        let (index, resource) = (given.index(position), given.at(position));
        let mut rows = statement.query(params![environment.0, resource.id.as_str()])?;
        match rows.next()? {
            Some(row) => delta.compare(index, resource, &StoredResource::from_row(row, 1)?, files),
            None => delta.created.push(index),
        }
        seen.insert(delta.keys[index]);
    }
    let mut members = tx.prepare_cached(
        "SELECT id, head FROM resource WHERE resource_set = ?1 AND resource_set <> 0 \
         ORDER BY head",
    )?;
    for set in sets {
        let Some(set) = find_set(tx, environment, set)? else { continue };
        let mut rows = members.query([set])?;
        while let Some(row) = rows.next()? {
            let key: i64 = row.get(0)?;
            // A set may be named twice.
            if seen.insert(key) {
                delta.removed.push((key, row.get(1)?));
            }
        }
    }
    Ok(())
}

fn find_set(tx: &Connection, environment: EnvironmentKey, set: &SetName) -> Result<Option<i64>> {
    let Some(name) = set else { return Ok(Some(0)) };
    let sql = "SELECT id FROM resource_set WHERE environment = ?1 AND name = ?2";
    let found = tx.query_row(sql, params![environment.0, name], |row| row.get(0));
    Ok(found.optional()?)
}
