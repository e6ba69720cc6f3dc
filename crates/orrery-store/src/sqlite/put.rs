//! Storing a version: what is the same as in the newest version is found, and only the rest is written.
//!
//! Given and stored resources are both in the order of ids, so a whole version is compared in one walk over
//! the table `resource`, without looking anything up. A put of some sets looks up just those.

use md5::{Digest, Md5};
use orrery_model::{Resource, SetName, VersionNumber};
use rusqlite::{Connection, OptionalExtension, Row, params};
use rustc_hash::{FxHashMap, FxHashSet};

use super::codes::{flags_code, pack_keys, text_from, unsigned};
use super::{engine, parameters, take_numbers};
use crate::{EnvironmentKey, NewVersion, PutVersion, ResourceKey, Result, Scope, StoreError};

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
struct Given<'a> {
    resources: &'a [Resource],
    /// Indexes in order, if the resources themselves are not.
    order: Option<Vec<u32>>,
}

impl<'a> Given<'a> {
    fn new(resources: &'a [Resource]) -> Result<Self> {
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
    fn find(&self, id: &str) -> Option<usize> {
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
struct Plan {
    /// Keys of the given resources; 0 where there is none yet.
    keys: Vec<i64>,
    /// Not known at all, in the order of ids.
    fresh: Vec<usize>,
    /// Known from earlier versions, but not in the newest.
    back: Vec<usize>,
    /// Different from the newest version, with the revision that they replace.
    changed: Vec<(usize, i64)>,
    /// In the newest version and not in this one: key and revision.
    removed: Vec<(i64, i64)>,
    /// The same, but from another place in the source.
    moved: Vec<usize>,
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

    fn is_same_version(&self) -> bool {
        self.fresh.is_empty()
            && self.back.is_empty()
            && self.changed.is_empty()
            && self.removed.is_empty()
    }
}

pub(super) fn put_version(
    tx: &Connection,
    environment: EnvironmentKey,
    new: &NewVersion<'_>,
) -> Result<PutVersion> {
    if let Some(lease) = new.lease {
        engine::check_lease(tx, lease)?;
    }
    let given = Given::new(new.resources)?;
    let files = intern_files(tx, new.resources)?;
    let mut plan = Plan { keys: vec![0; new.resources.len()], ..Plan::default() };
    match new.scope {
        Scope::All => compare_all(tx, environment, &given, &files, None, &mut plan)?,
        Scope::Sets(sets) if sets.contains(&None) => {
            compare_all(tx, environment, &given, &files, Some(sets), &mut plan)?;
        }
        Scope::Sets(sets) => compare_sets(tx, environment, &given, &files, sets, &mut plan)?,
    }

    write_places(tx, environment, new.resources, &files, &plan.moved)?;
    let newest = newest_version(tx, environment)?;
    if new.only_if_changed
        && let Some((number, total)) = newest
        && plan.is_same_version()
    {
        let keys = plan.keys.into_iter().map(ResourceKey).collect();
        let (added, changed, removed) = (0, 0, 0);
        return Ok(PutVersion { number, created: false, keys, added, changed, removed, total });
    }

    let number = choose_number(tx, environment, new.number)?;
    let step = take_numbers(tx, "step", 1)?;
    let added = plan.fresh.len() + plan.back.len();
    let changed = plan.changed.len();
    let revisions = take_numbers(tx, "revision", added + changed)?;
    write_new_names(tx, environment, &given, &mut plan)?;
    let writer = RevisionWriter {
        tx,
        environment,
        step,
        given: &given,
        files: &files,
        partial: matches!(new.scope, Scope::Sets(_)),
    };
    let end = writer.write(&plan, revisions)?;

    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let before = newest.map_or(0, |(_, total)| i64::try_from(total).unwrap_or(i64::MAX));
    let total = before + count(added) - count(plan.removed.len());
    tx.execute(
        "INSERT INTO step (id, environment, first_revision, end_revision) VALUES (?1, ?2, ?3, ?4)",
        params![step, environment.0, revisions, end],
    )?;
    tx.execute(
        "INSERT INTO version (environment, number, step, made_at, released, info, total, added, \
         changed, removed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            environment.0,
            number.0,
            step,
            new.made_at.0,
            new.released,
            new.info.to_string(),
            total,
            count(added),
            count(changed),
            count(plan.removed.len()),
        ],
    )?;
    parameters::put_unknowns(tx, environment, number, new.unknowns)?;
    Ok(PutVersion {
        number,
        created: true,
        added: added as u64,
        changed: changed as u64,
        removed: plan.removed.len() as u64,
        total: unsigned(total)?,
        keys: plan.keys.into_iter().map(ResourceKey).collect(),
    })
}

/// The version that was put last, and how many resources it has.
fn newest_version(
    tx: &Connection,
    environment: EnvironmentKey,
) -> Result<Option<(VersionNumber, u64)>> {
    let sql = "SELECT number, total FROM version WHERE environment = ?1 ORDER BY step DESC LIMIT 1";
    let found = tx.query_row(sql, [environment.0], |row| Ok((row.get(0)?, row.get(1)?)));
    let found: Option<(u32, i64)> = found.optional()?;
    found.map(|(number, total)| Ok((VersionNumber(number), unsigned(total)?))).transpose()
}

fn choose_number(
    tx: &Connection,
    environment: EnvironmentKey,
    reserved: Option<VersionNumber>,
) -> Result<VersionNumber> {
    let Some(number) = reserved else { return reserve_version(tx, environment) };
    let last: u32 = tx
        .query_row("SELECT last_version FROM environment WHERE id = ?1", [environment.0], |row| {
            row.get(0)
        })
        .optional()?
        .unwrap_or(0);
    if number.0 == 0 || number.0 > last {
        return Err(StoreError::VersionNotReserved(number));
    }
    let sql = "SELECT 1 FROM version WHERE environment = ?1 AND number = ?2";
    let taken = tx.query_row(sql, params![environment.0, number.0], |_| Ok(())).optional()?;
    if taken.is_some() { Err(StoreError::VersionExists(number)) } else { Ok(number) }
}

pub(super) fn reserve_version(
    tx: &Connection,
    environment: EnvironmentKey,
) -> Result<VersionNumber> {
    let sql = "UPDATE environment SET last_version = last_version + 1 WHERE id = ?1 \
         RETURNING last_version";
    let number = tx.query_row(sql, [environment.0], |row| row.get(0)).optional()?;
    number
        .map(VersionNumber)
        .ok_or_else(|| StoreError::NoEnvironment(format!("number {}", environment.0)))
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

/// Numbers of the source files, new ones included.
fn intern_files(tx: &Connection, resources: &[Resource]) -> Result<FxHashMap<String, i64>> {
    let mut files = FxHashMap::default();
    let mut last: Option<&std::sync::Arc<str>> = None;
    for source in resources.iter().filter_map(|resource| resource.source.as_ref()) {
        // Neighbours mostly share the very same text.
        if last.is_some_and(|last| std::sync::Arc::ptr_eq(last, &source.file)) {
            continue;
        }
        last = Some(&source.file);
        if files.contains_key(&*source.file) {
            continue;
        }
        tx.execute("INSERT OR IGNORE INTO source_file (path) VALUES (?1)", [&*source.file])?;
        let sql = "SELECT id FROM source_file WHERE path = ?1";
        let id: i64 = tx.query_row(sql, [&*source.file], |row| row.get(0))?;
        files.insert((*source.file).to_owned(), id);
    }
    Ok(files)
}

fn write_places(
    tx: &Connection,
    environment: EnvironmentKey,
    resources: &[Resource],
    files: &FxHashMap<String, i64>,
    moved: &[usize],
) -> Result<()> {
    let mut statement = tx.prepare_cached(
        "UPDATE resource SET source_file = ?3, source_line = ?4, source_column = ?5 \
         WHERE environment = ?1 AND name = ?2",
    )?;
    for index in moved {
        let resource = &resources[*index];
        let place = resource.source.as_ref();
        statement.execute(params![
            environment.0,
            resource.id.as_str(),
            place.and_then(|place| files.get(&*place.file)),
            place.map(|place| place.line),
            place.map(|place| place.column),
        ])?;
    }
    Ok(())
}

/// Gives keys to resources that were never seen, and notes their types and agents.
fn write_new_names(
    tx: &Connection,
    environment: EnvironmentKey,
    given: &Given<'_>,
    plan: &mut Plan,
) -> Result<()> {
    let first = take_numbers(tx, "resource", plan.fresh.len())?;
    let mut types: FxHashSet<&str> = FxHashSet::default();
    let mut agents: FxHashSet<&str> = FxHashSet::default();
    for (key, index) in (first..).zip(&plan.fresh) {
        plan.keys[*index] = key;
        let id = &given.resources[*index].id;
        types.insert(id.entity());
        agents.insert(id.agent());
    }
    let insert = |table: &str, names: FxHashSet<&str>| -> Result<()> {
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        let sql = format!("INSERT OR IGNORE INTO {table} (environment, name) VALUES (?1, ?2)");
        let mut statement = tx.prepare_cached(&sql)?;
        for name in names {
            statement.execute(params![environment.0, name])?;
        }
        Ok(())
    };
    insert("resource_type", types)?;
    insert("agent", agents)
}

struct RevisionWriter<'a> {
    tx: &'a Connection,
    environment: EnvironmentKey,
    step: i64,
    given: &'a Given<'a>,
    files: &'a FxHashMap<String, i64>,
    /// Requirements may be met by resources that were not given.
    partial: bool,
}

impl RevisionWriter<'_> {
    /// Writes revisions from the number `revision` on, and answers the number after the last.
    fn write(&self, plan: &Plan, mut revision: i64) -> Result<i64> {
        let tx = self.tx;
        let mut close = tx.prepare_cached("UPDATE revision SET until = ?2 WHERE id = ?1")?;
        let mut leave =
            tx.prepare_cached("UPDATE resource SET head = NULL, digest = NULL WHERE id = ?1")?;
        for (key, head) in &plan.removed {
            close.execute([*head, self.step])?;
            leave.execute([*key])?;
        }
        for (_, head) in &plan.changed {
            close.execute([*head, self.step])?;
        }
        let mut name = tx.prepare_cached(
            "INSERT INTO resource (environment, name, id, head, digest, source_file, source_line, \
             source_column) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?;
        let mut rename = tx.prepare_cached(
            "UPDATE resource SET head = ?4, digest = ?5, source_file = ?6, source_line = ?7, \
             source_column = ?8 WHERE environment = ?1 AND name = ?2 AND id = ?3",
        )?;
        let mut insert = tx.prepare_cached(
            "INSERT INTO revision (id, environment, resource, since, until, resource_set, flags, \
             hash, attributes, requires) VALUES (?1, ?2, ?3, ?4, NULL, ?5, ?6, ?7, ?8, ?9)",
        )?;
        let mut sets: FxHashMap<&str, i64> = FxHashMap::default();
        let mut requires = Vec::new();
        let known = plan.back.iter().chain(plan.changed.iter().map(|(index, _)| index));
        let fresh = plan.fresh.iter().map(|index| (index, true));
        for (index, is_fresh) in fresh.chain(known.map(|index| (index, false))) {
            let resource = &self.given.resources[*index];
            let key = plan.keys[*index];
            self.pack_requires(plan, resource, &mut requires)?;
            let set = match resource.set.as_deref() {
                None => 0,
                Some(set) => self.intern_set(set, &mut sets)?,
            };
            insert.execute(params![
                revision,
                self.environment.0,
                key,
                self.step,
                set,
                flags_code(resource.flags),
                &resource.hash.0[..],
                resource.attributes.as_str(),
                (!requires.is_empty()).then_some(&requires[..]),
            ])?;
            let place = resource.source.as_ref();
            let statement = if is_fresh { &mut name } else { &mut rename };
            statement.execute(params![
                self.environment.0,
                resource.id.as_str(),
                key,
                revision,
                &digest(resource)[..],
                place.and_then(|place| self.files.get(&*place.file)),
                place.map(|place| place.line),
                place.map(|place| place.column),
            ])?;
            revision += 1;
        }
        Ok(revision)
    }

    fn intern_set<'s>(&self, set: &'s str, known: &mut FxHashMap<&'s str, i64>) -> Result<i64> {
        if let Some(id) = known.get(set) {
            return Ok(*id);
        }
        let sql = "INSERT OR IGNORE INTO resource_set (environment, name) VALUES (?1, ?2)";
        self.tx.execute(sql, params![self.environment.0, set])?;
        let sql = "SELECT id FROM resource_set WHERE environment = ?1 AND name = ?2";
        let id = self.tx.query_row(sql, params![self.environment.0, set], |row| row.get(0))?;
        known.insert(set, id);
        Ok(id)
    }

    fn pack_requires(&self, plan: &Plan, resource: &Resource, packed: &mut Vec<u8>) -> Result<()> {
        packed.clear();
        if resource.requires.is_empty() {
            return Ok(());
        }
        let mut keys = Vec::with_capacity(resource.requires.len());
        for required in &resource.requires {
            let key = match self.given.find(required.as_str()) {
                Some(index) => Some(plan.keys[index]),
                None if self.partial => self.find_head(required.as_str())?,
                None => None,
            };
            keys.push(key.ok_or_else(|| StoreError::DanglingRequires {
                resource: resource.id.to_string(),
                requires: required.to_string(),
            })?);
        }
        pack_keys(keys, packed);
        Ok(())
    }

    /// Key of a resource that stays from the newest version. Those that go have no head any more.
    fn find_head(&self, name: &str) -> Result<Option<i64>> {
        let sql = "SELECT id FROM resource WHERE environment = ?1 AND name = ?2 \
             AND head IS NOT NULL";
        let mut statement = self.tx.prepare_cached(sql)?;
        let found = statement.query_row(params![self.environment.0, name], |row| row.get(0));
        Ok(found.optional()?)
    }
}
