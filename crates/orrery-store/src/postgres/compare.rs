//! Comparison of the given resources with the stored ones.
//!
//! Both are in the order of ids, so a whole version is compared in one pass over the table
//! `resource`, page by page. A put of some sets looks up just those.

use orrery_model::SetName;
use rustc_hash::{FxHashMap, FxHashSet};

use super::transaction::Tx;
use crate::sql::RowExt as _;
use crate::version_delta::{SortedInput, StoredResource, VersionDelta};
use crate::{EnvironmentKey, PutScope, Result};

/// Rows compared at a time.
const PAGE: i64 = 20_000;

/// Names looked up at a time.
const LOOKUP_BATCH: usize = 5_000;

const STORED: &str = "resource.name, resource.id, resource.head, resource.digest, \
     resource.source_file, resource.source_line, resource.source_column";

/// Computes the rows that a put has to write.
pub(super) fn compare(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    given: &SortedInput<'_>,
    files: &FxHashMap<String, i64>,
    scope: PutScope<'_>,
) -> Result<VersionDelta> {
    tx.prefer_index_scans()?;
    let mut delta =
        VersionDelta { keys: vec![0; given.resources.len()], ..VersionDelta::default() };
    match scope {
        PutScope::All => compare_all(tx, environment, given, files, &mut delta)?,
        PutScope::Sets(sets) if sets.contains(&None) => {
            compare_all(tx, environment, given, files, &mut delta)?;
            retain_other_sets(tx, environment, sets, &mut delta)?;
        }
        PutScope::Sets(sets) => compare_sets(tx, environment, given, files, sets, &mut delta)?,
    }
    Ok(delta)
}

/// Compares all stored resources with the given ones in one pass.
fn compare_all(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    given: &SortedInput<'_>,
    files: &FxHashMap<String, i64>,
    delta: &mut VersionDelta,
) -> Result<()> {
    let sql = format!(
        "SELECT {STORED} FROM resource WHERE environment = $1 AND name > $2 ORDER BY name LIMIT $3"
    );
    let (mut position, count) = (0, given.resources.len());
    let mut last = String::new();
    loop {
        let rows = tx.query(&sql, &[&environment.0, &last, &PAGE])?;
        for row in &rows {
            let name = row.str(0)?;
            let stored = StoredResource::from_row(row, 1)?;
            while position < count && given.at(position).id.as_str() < name {
                delta.created.push(given.index(position));
                position += 1;
            }
            if position < count && given.at(position).id.as_str() == name {
                delta.compare(given.index(position), given.at(position), &stored, files);
                position += 1;
            } else if let Some(head) = stored.head {
                delta.removed.push((stored.key, head));
            }
        }
        match rows.last() {
            Some(row) if rows.len() as i64 == PAGE => last = row.string(0)?,
            _ => break,
        }
    }
    delta.created.extend((position..count).map(|position| given.index(position)));
    Ok(())
}

/// Keeps resources that are not given unless their set is replaced.
fn retain_other_sets(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    sets: &[SetName],
    delta: &mut VersionDelta,
) -> Result<()> {
    let replaced = find_sets(tx, environment, sets)?;
    let mut going: FxHashSet<i64> = FxHashSet::default();
    for removed in delta.removed.chunks(LOOKUP_BATCH) {
        let heads: Vec<i64> = removed.iter().map(|(_, head)| *head).collect();
        let sql = "SELECT id FROM revision WHERE id = ANY($1) AND resource_set = ANY($2)";
        going.extend(tx.query(sql, &[&heads, &replaced])?.iter().map(|row| row.get::<_, i64>(0)));
    }
    delta.removed.retain(|(_, head)| going.contains(head));
    Ok(())
}

/// Looks up the given resources and the members of the replaced sets.
fn compare_sets(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    given: &SortedInput<'_>,
    files: &FxHashMap<String, i64>,
    sets: &[SetName],
    delta: &mut VersionDelta,
) -> Result<()> {
    let mut seen: FxHashSet<i64> = FxHashSet::default();
    let sql = format!("SELECT {STORED} FROM resource WHERE environment = $1 AND name = ANY($2)");
    let positions: Vec<usize> = (0..given.resources.len()).collect();
    for positions in positions.chunks(LOOKUP_BATCH) {
        let names: Vec<&str> =
            positions.iter().map(|position| given.at(*position).id.as_str()).collect();
        let rows = tx.query(&sql, &[&environment.0, &names])?;
        let found: FxHashMap<&str, &postgres::Row> =
            rows.iter().map(|row| (row.get(0), row)).collect();
        for position in positions {
            let (index, resource) = (given.index(*position), given.at(*position));
            match found.get(resource.id.as_str()) {
                Some(row) => {
                    delta.compare(index, resource, &StoredResource::from_row(*row, 1)?, files);
                }
                None => delta.created.push(index),
            }
            seen.insert(delta.keys[index]);
        }
    }
    let replaced = find_sets(tx, environment, sets)?;
    // Sorted here: with sorting disabled, the planner would scan all resources of all environments
    // for an ORDER BY.
    let sql = "SELECT id, head FROM resource WHERE resource_set = ANY($1) AND resource_set <> 0";
    for row in tx.query(sql, &[&replaced])? {
        if seen.insert(row.get(0)) {
            delta.removed.push((row.get(0), row.get(1)));
        }
    }
    delta.removed.sort_unstable_by_key(|(_, revision)| *revision);
    Ok(())
}

/// Numbers of sets; 0 is the shared one.
fn find_sets(tx: &mut Tx<'_>, environment: EnvironmentKey, sets: &[SetName]) -> Result<Vec<i64>> {
    let names: Vec<&str> = sets.iter().flatten().map(|name| &**name).collect();
    let sql = "SELECT id FROM resource_set WHERE environment = $1 AND name = ANY($2)";
    let mut found: Vec<i64> =
        tx.query(sql, &[&environment.0, &names])?.iter().map(|row| row.get(0)).collect();
    if sets.contains(&None) {
        found.push(0);
    }
    Ok(found)
}
