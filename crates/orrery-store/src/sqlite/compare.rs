//! What has to be written for a version: the given resources beside the stored ones.
//!
//! Both are in the order of ids, so a whole version is compared in one walk over the table `resource`, without
//! looking anything up. A put of some sets looks up just those.

use md5::{Digest, Md5};
use orrery_model::{Resource, SetName};
use rusqlite::{Connection, OptionalExtension, Row, params};
use rustc_hash::{FxHashMap, FxHashSet};

use super::codes::{flags_code, text_from};
use crate::{EnvironmentKey, Result, Scope, StoreError};

/// Digest of all that makes a resource of one version equal to that of another: more than the intent, less
/// than the place in the source. Almost every resource has nothing but its intent.
pub(super) fn digest(resource: &Resource) -> [u8; 16] {
    let flags = flags_code(resource.flags);
    if flags == 0 && resource.set.is_none() && resource.requires.is_empty() {
        return resource.hash.0;
    }
    let mut digest = Md5::new();
    digest.update(resource.hash.0);
    digest.update(flags.to_le_bytes());
    let mut text = |text: &str| {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text.as_bytes());
    };
    // An empty name is a name, and differs from none.
    text(resource.set.as_deref().map_or("shared", |_| "named"));
    text(resource.set.as_deref().unwrap_or_default());
    resource.requires.iter().for_each(|required| text(required.as_str()));
    digest.finalize().into()
}

/// The given resources in the order of their ids.
pub(super) struct Given<'a> {
    pub(super) resources: &'a [Resource],
    /// Indexes in order, if the resources themselves are not.
    order: Option<Vec<u32>>,
}

impl<'a> Given<'a> {
    pub(super) fn new(resources: &'a [Resource]) -> Result<Self> {
        let count = u32::try_from(resources.len())
            .map_err(|_| StoreError::Unreadable("too many resources in one version".to_owned()))?;
        let given = if resources.is_sorted_by(|a, b| a.id <= b.id) {
            Given { resources, order: None }
        } else {
            let mut order: Vec<u32> = (0..count).collect();
            order
                .sort_unstable_by(|a, b| resources[*a as usize].id.cmp(&resources[*b as usize].id));
            Given { resources, order: Some(order) }
        };
        for place in 1..given.resources.len() {
            if given.at(place - 1).id == given.at(place).id {
                return Err(StoreError::DuplicateResource(given.at(place).id.to_string()));
            }
        }
        Ok(given)
    }

    fn index(&self, place: usize) -> usize {
        self.order.as_ref().map_or(place, |order| order[place] as usize)
    }

    fn at(&self, place: usize) -> &'a Resource {
        &self.resources[self.index(place)]
    }

    /// Index among the given resources.
    pub(super) fn find(&self, id: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.resources.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.at(middle).id.as_str().cmp(id) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(self.index(middle)),
            }
        }
        None
    }
}

/// What has to be written. Indexes are those of the given resources.
#[derive(Default)]
pub(super) struct Plan {
    /// Keys of the given resources; 0 where there is none yet.
    pub(super) keys: Vec<i64>,
    /// Not known at all, in the order of ids.
    pub(super) fresh: Vec<usize>,
    /// Known from earlier versions, but not in the newest.
    pub(super) back: Vec<usize>,
    /// Different from the newest version, with the revision that they replace.
    pub(super) changed: Vec<(usize, i64)>,
    /// In the newest version and not in this one: key and revision.
    pub(super) removed: Vec<(i64, i64)>,
    /// The same, but from another place in the source.
    pub(super) moved: Vec<usize>,
}

const STORED: &str = "resource.name, resource.id, resource.head, resource.digest, \
     resource.source_file, resource.source_line, resource.source_column";

impl Plan {
    /// Compares a given resource with the stored row of the same name.
    fn compare(
        &mut self,
        index: usize,
        resource: &Resource,
        row: &Row<'_>,
        files: &FxHashMap<String, i64>,
    ) -> Result<()> {
        self.keys[index] = row.get(1)?;
        let head: Option<i64> = row.get(2)?;
        let Some(head) = head else {
            self.back.push(index);
            return Ok(());
        };
        if row.get_ref(3)?.as_blob_or_null().ok().flatten() != Some(&digest(resource)[..]) {
            self.changed.push((index, head));
            return Ok(());
        }
        let place = resource.source.as_ref();
        let stored: (Option<i64>, Option<u32>, Option<u32>) =
            (row.get(4)?, row.get(5)?, row.get(6)?);
        let given = (
            place.and_then(|place| files.get(&*place.file).copied()),
            place.map(|place| place.line),
            place.map(|place| place.column),
        );
        if stored != given {
            self.moved.push(index);
        }
        Ok(())
    }

    /// Indexes of the resources that get a new revision: first those that are not known.
    pub(super) fn written(&self) -> impl Iterator<Item = usize> {
        let changed = self.changed.iter().map(|(index, _)| *index);
        self.fresh.iter().chain(&self.back).copied().chain(changed)
    }

    pub(super) fn is_same_version(&self) -> bool {
        self.fresh.is_empty()
            && self.back.is_empty()
            && self.changed.is_empty()
            && self.removed.is_empty()
    }
}

/// Finds what a put has to write.
pub(super) fn compare(
    tx: &Connection,
    environment: EnvironmentKey,
    given: &Given<'_>,
    files: &FxHashMap<String, i64>,
    scope: Scope<'_>,
) -> Result<Plan> {
    let mut plan = Plan { keys: vec![0; given.resources.len()], ..Plan::default() };
    match scope {
        Scope::All => compare_all(tx, environment, given, files, None, &mut plan)?,
        Scope::Sets(sets) if sets.contains(&None) => {
            compare_all(tx, environment, given, files, Some(sets), &mut plan)?;
        }
        Scope::Sets(sets) => compare_sets(tx, environment, given, files, sets, &mut plan)?,
    }
    Ok(plan)
}

/// Walks all stored resources beside the given ones. With `sets`, those of other sets stay.
fn compare_all(
    tx: &Connection,
    environment: EnvironmentKey,
    given: &Given<'_>,
    files: &FxHashMap<String, i64>,
    sets: Option<&[SetName]>,
    plan: &mut Plan,
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
    let (mut place, count) = (0, given.resources.len());
    while let Some(row) = rows.next()? {
        let name = text_from(row.get_ref(0)?)?;
        while place < count && given.at(place).id.as_str() < name {
            plan.fresh.push(given.index(place));
            place += 1;
        }
        if place < count && given.at(place).id.as_str() == name {
            plan.compare(given.index(place), given.at(place), row, files)?;
            place += 1;
        } else if let Some(head) = row.get::<_, Option<i64>>(2)? {
            let goes = sets.is_none()
                || replaced.contains(&set_of_revision.query_row([head], |row| row.get(0))?);
            if goes {
                plan.removed.push((row.get(1)?, head));
            }
        }
    }
    plan.fresh.extend((place..count).map(|place| given.index(place)));
    Ok(())
}

/// Looks up the given resources and the members of the replaced sets.
fn compare_sets(
    tx: &Connection,
    environment: EnvironmentKey,
    given: &Given<'_>,
    files: &FxHashMap<String, i64>,
    sets: &[SetName],
    plan: &mut Plan,
) -> Result<()> {
    let mut kept: FxHashSet<i64> = FxHashSet::default();
    let sql = format!("SELECT {STORED} FROM resource WHERE environment = ?1 AND name = ?2");
    let mut statement = tx.prepare_cached(&sql)?;
    for place in 0..given.resources.len() {
        let (index, resource) = (given.index(place), given.at(place));
        let mut rows = statement.query(params![environment.0, resource.id.as_str()])?;
        match rows.next()? {
            Some(row) => plan.compare(index, resource, row, files)?,
            None => plan.fresh.push(index),
        }
        kept.insert(plan.keys[index]);
    }
    let mut members = tx.prepare_cached(
        "SELECT resource, id FROM revision WHERE resource_set = ?1 AND resource_set <> 0 \
         AND until IS NULL ORDER BY id",
    )?;
    for set in sets {
        let Some(set) = find_set(tx, environment, set)? else { continue };
        let mut rows = members.query([set])?;
        while let Some(row) = rows.next()? {
            let key: i64 = row.get(0)?;
            // A set may be named twice.
            if kept.insert(key) {
                plan.removed.push((key, row.get(1)?));
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
