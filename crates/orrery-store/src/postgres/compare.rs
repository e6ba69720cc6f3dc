//! What has to be written for a version: the given resources beside the stored ones.
//!
//! Both are in the order of ids, so a whole version is compared in one walk over the table `resource`, page by page. A put of some
//! sets looks up just those.

use orrery_model::SetName;
use rustc_hash::{FxHashMap, FxHashSet};

use super::transaction::Tx;
use crate::plan::{Given, Plan, Stored};
use crate::sql::RowExt as _;
use crate::{EnvironmentKey, Result, Scope};

/// Rows that are compared at a time.
const PAGE: i64 = 20_000;

/// Names that are looked up at a time.
const LOOKED_UP: usize = 5_000;

const STORED: &str = "resource.name, resource.id, resource.head, resource.digest, \
     resource.source_file, resource.source_line, resource.source_column";

/// Finds what a put has to write.
pub(super) fn compare(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    given: &Given<'_>,
    files: &FxHashMap<String, i64>,
    scope: Scope<'_>,
) -> Result<Plan> {
    tx.walk()?;
    let mut plan = Plan { keys: vec![0; given.resources.len()], ..Plan::default() };
    match scope {
        Scope::All => compare_all(tx, environment, given, files, &mut plan)?,
        Scope::Sets(sets) if sets.contains(&None) => {
            compare_all(tx, environment, given, files, &mut plan)?;
            keep_other_sets(tx, environment, sets, &mut plan)?;
        }
        Scope::Sets(sets) => compare_sets(tx, environment, given, files, sets, &mut plan)?,
    }
    Ok(plan)
}

/// Walks all stored resources beside the given ones.
fn compare_all(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    given: &Given<'_>,
    files: &FxHashMap<String, i64>,
    plan: &mut Plan,
) -> Result<()> {
    let sql = format!(
        "SELECT {STORED} FROM resource WHERE environment = $1 AND name > $2 ORDER BY name LIMIT $3"
    );
    let (mut place, count) = (0, given.resources.len());
    let mut last = String::new();
    loop {
        let rows = tx.query(&sql, &[&environment.0, &last, &PAGE])?;
        for row in &rows {
            let name = row.str(0)?;
            let stored = Stored::from_row(row, 1)?;
            while place < count && given.at(place).id.as_str() < name {
                plan.fresh.push(given.index(place));
                place += 1;
            }
            if place < count && given.at(place).id.as_str() == name {
                plan.compare(given.index(place), given.at(place), &stored, files);
                place += 1;
            } else if let Some(head) = stored.head {
                plan.removed.push((stored.key, head));
            }
        }
        match rows.last() {
            Some(row) if rows.len() as i64 == PAGE => last = row.string(0)?,
            _ => break,
        }
    }
    plan.fresh.extend((place..count).map(|place| given.index(place)));
    Ok(())
}

/// What is not given goes only if its set is replaced.
fn keep_other_sets(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    sets: &[SetName],
    plan: &mut Plan,
) -> Result<()> {
    let replaced = find_sets(tx, environment, sets)?;
    let mut going: FxHashSet<i64> = FxHashSet::default();
    for removed in plan.removed.chunks(LOOKED_UP) {
        let heads: Vec<i64> = removed.iter().map(|(_, head)| *head).collect();
        let sql = "SELECT id FROM revision WHERE id = ANY($1) AND resource_set = ANY($2)";
        going.extend(tx.query(sql, &[&heads, &replaced])?.iter().map(|row| row.get::<_, i64>(0)));
    }
    plan.removed.retain(|(_, head)| going.contains(head));
    Ok(())
}

/// Looks up the given resources and the members of the replaced sets.
fn compare_sets(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    given: &Given<'_>,
    files: &FxHashMap<String, i64>,
    sets: &[SetName],
    plan: &mut Plan,
) -> Result<()> {
    let mut kept: FxHashSet<i64> = FxHashSet::default();
    let sql = format!("SELECT {STORED} FROM resource WHERE environment = $1 AND name = ANY($2)");
    let places: Vec<usize> = (0..given.resources.len()).collect();
    for places in places.chunks(LOOKED_UP) {
        let names: Vec<&str> = places.iter().map(|place| given.at(*place).id.as_str()).collect();
        let rows = tx.query(&sql, &[&environment.0, &names])?;
        let found: FxHashMap<&str, &postgres::Row> =
            rows.iter().map(|row| (row.get(0), row)).collect();
        for place in places {
            let (index, resource) = (given.index(*place), given.at(*place));
            match found.get(resource.id.as_str()) {
                Some(row) => plan.compare(index, resource, &Stored::from_row(*row, 1)?, files),
                None => plan.fresh.push(index),
            }
            kept.insert(plan.keys[index]);
        }
    }
    let replaced = find_sets(tx, environment, sets)?;
    // Put in order here: asked to do it, a planner that must not sort walks along all resources of all environments instead.
    let sql = "SELECT id, head FROM resource WHERE resource_set = ANY($1) AND resource_set <> 0";
    for row in tx.query(sql, &[&replaced])? {
        if kept.insert(row.get(0)) {
            plan.removed.push((row.get(0), row.get(1)));
        }
    }
    plan.removed.sort_unstable_by_key(|(_, revision)| *revision);
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
