//! Storing a version: writes only differences from the newest version.

use orrery_model::{Resource, VersionNumber};
use rusqlite::{Connection, OptionalExtension, params};
use rustc_hash::{FxHashMap, FxHashSet};

use super::compare::compare;
use super::sql::SqliteTransaction;
use super::{allocate_numbers, leases, record_change};
use crate::backend::PutTarget;
use crate::encoding::{flags_code, pack_keys, unsigned};
use crate::records::{bind_project, prepare, put_unknowns, reserve_version};
use crate::version_delta::{SortedInput, VersionDelta, check_base, digest};
use crate::{EnvironmentKey, NewVersion, PutOutcome, PutScope, ResourceKey, Result, StoreError};

pub(super) fn put_version(
    tx: &Connection,
    target: PutTarget<'_>,
    new: &NewVersion<'_>,
) -> Result<PutOutcome> {
    if let Some(lease) = new.lease {
        leases::check_lease(tx, lease)?;
    }
    let (environment, change) = prepare(&mut SqliteTransaction(tx), target, new.made_at)?;
    if let Some(project) = new.project {
        bind_project(&mut SqliteTransaction(tx), environment, project, new.made_at)?;
    }
    let given = SortedInput::new(new.resources)?;
    let files = intern_files(tx, new.resources)?;
    let mut delta = compare(tx, environment, &given, &files, new.scope)?;
    delta.assert_disjoint(&given);
    write_sources(tx, environment, new.resources, &files, &delta.relocated)?;
    let newest = newest_version(tx, environment)?;
    check_base(new.base, newest.map(|(number, _)| number))?;
    if new.only_if_changed
        && let Some((number, total)) = newest
        && delta.is_same_version()
    {
        let keys = delta.keys.into_iter().map(ResourceKey).collect();
        let (added, changed, removed) = (0, 0, 0);
        return Ok(PutOutcome { number, created: false, keys, added, changed, removed, total });
    }

    let number = choose_number(tx, environment, new.number)?;
    let step = allocate_numbers(tx, "step", 1)?;
    let added = delta.created.len() + delta.readded.len();
    let changed = delta.changed.len();
    let revisions = allocate_numbers(tx, "revision", added + changed)?;
    write_new_names(tx, environment, &given, &mut delta)?;
    let writer = RevisionWriter {
        tx,
        environment,
        step,
        given: &given,
        files: &files,
        partial: matches!(new.scope, PutScope::Sets(_)),
    };
    let end = writer.write(&delta, revisions)?;

    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let before = newest.map_or(0, |(_, total)| i64::try_from(total).unwrap_or(i64::MAX));
    let total = before + count(added) - count(delta.removed.len());
    delta.assert_complete(new.scope, total);
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
            count(delta.removed.len()),
        ],
    )?;
    put_unknowns(&mut SqliteTransaction(tx), environment, number, new.unknowns)?;
    if let Some(change) = change {
        change.finish(&mut SqliteTransaction(tx), number, new.made_at)?;
    }
    record_change(tx, environment, "version", &number.to_string())?;
    Ok(PutOutcome {
        number,
        created: true,
        added: added as u64,
        changed: changed as u64,
        removed: delta.removed.len() as u64,
        total: unsigned(total)?,
        keys: delta.keys.into_iter().map(ResourceKey).collect(),
    })
}

/// The version that was put last, and its number of resources.
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
    let Some(number) = reserved else {
        return reserve_version(&mut SqliteTransaction(tx), environment);
    };
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
    let existing = tx.query_row(sql, params![environment.0, number.0], |_| Ok(())).optional()?;
    if existing.is_some() { Err(StoreError::VersionExists(number)) } else { Ok(number) }
}

/// Numbers of the source files, adding new ones.
fn intern_files(tx: &Connection, resources: &[Resource]) -> Result<FxHashMap<String, i64>> {
    let mut files = FxHashMap::default();
    let mut last: Option<&std::sync::Arc<str>> = None;
    for source in resources.iter().filter_map(|resource| resource.source.as_ref()) {
        // Neighbours mostly share the same allocation.
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

fn write_sources(
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
        let source = resource.source.as_ref();
        statement.execute(params![
            environment.0,
            resource.id.as_str(),
            source.and_then(|source| files.get(&*source.file)),
            source.map(|source| source.line),
            source.map(|source| source.column),
        ])?;
    }
    Ok(())
}

/// Assigns keys to new resources, and records their types and agents.
fn write_new_names(
    tx: &Connection,
    environment: EnvironmentKey,
    given: &SortedInput<'_>,
    delta: &mut VersionDelta,
) -> Result<()> {
    let first = allocate_numbers(tx, "resource", delta.created.len())?;
    let mut types: FxHashSet<&str> = FxHashSet::default();
    let mut agents: FxHashSet<&str> = FxHashSet::default();
    for (key, index) in (first..).zip(&delta.created) {
        delta.keys[*index] = key;
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
    given: &'a SortedInput<'a>,
    files: &'a FxHashMap<String, i64>,
    /// Requirements may refer to resources that were not given.
    partial: bool,
}

impl RevisionWriter<'_> {
    /// Writes revisions from the number `first` on, and returns the number after the last. Writes
    /// one table after the other, each in its own order.
    fn write(&self, delta: &VersionDelta, first: i64) -> Result<i64> {
        self.close_revisions(delta)?;
        let end = self.write_revisions(delta, first)?;
        self.write_heads(delta, first)?;
        Ok(end)
    }

    /// Ends replaced and removed revisions with this step.
    fn close_revisions(&self, delta: &VersionDelta) -> Result<()> {
        let mut close = self.tx.prepare_cached(
            "INSERT INTO ended (environment, until, revision, resource) VALUES (?1, ?2, ?3, ?4)",
        )?;
        let mut leave = self.tx.prepare_cached(
            "UPDATE resource SET head = NULL, digest = NULL, resource_set = 0 WHERE id = ?1",
        )?;
        for (key, head) in &delta.removed {
            close.execute([self.environment.0, self.step, *head, *key])?;
            leave.execute([*key])?;
        }
        for (index, head) in &delta.changed {
            close.execute([self.environment.0, self.step, *head, delta.keys[*index]])?;
        }
        Ok(())
    }

    fn write_revisions(&self, delta: &VersionDelta, first: i64) -> Result<i64> {
        let mut insert = self.tx.prepare_cached(
            "INSERT INTO revision (id, environment, resource, since, resource_set, flags, \
             hash, attributes, requires) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        let mut sets: FxHashMap<&str, i64> = FxHashMap::default();
        let mut requires = Vec::new();
        let mut revision = first;
        for index in delta.with_new_revision() {
            let resource = &self.given.resources[index];
            self.pack_requires(delta, resource, &mut requires)?;
            let set = self.set_of(resource, &mut sets)?;
            insert.execute(params![
                revision,
                self.environment.0,
                delta.keys[index],
                self.step,
                set,
                flags_code(resource.flags),
                &resource.hash.0[..],
                resource.attributes.as_str(),
                (!requires.is_empty()).then_some(&requires[..]),
            ])?;
            revision += 1;
        }
        Ok(revision)
    }

    /// Points resources to their new revisions.
    fn write_heads(&self, delta: &VersionDelta, first: i64) -> Result<()> {
        let mut insert = self.tx.prepare_cached(
            "INSERT INTO resource (environment, name, id, head, digest, source_file, source_line, \
             source_column, resource_set) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        let mut update = self.tx.prepare_cached(
            "UPDATE resource SET head = ?4, digest = ?5, source_file = ?6, source_line = ?7, \
             source_column = ?8, resource_set = ?9 WHERE environment = ?1 AND name = ?2 AND id = ?3",
        )?;
        let mut sets: FxHashMap<&str, i64> = FxHashMap::default();
        for (position, index) in delta.with_new_revision().enumerate() {
            let resource = &self.given.resources[index];
            let source = resource.source.as_ref();
            let statement = if position < delta.created.len() { &mut insert } else { &mut update };
            statement.execute(params![
                self.environment.0,
                resource.id.as_str(),
                delta.keys[index],
                first + i64::try_from(position).unwrap_or(i64::MAX),
                &digest(resource)[..],
                source.and_then(|source| self.files.get(&*source.file)),
                source.map(|source| source.line),
                source.map(|source| source.column),
                self.set_of(resource, &mut sets)?,
            ])?;
        }
        Ok(())
    }

    /// The number of a resource's set; the shared one is 0.
    fn set_of<'s>(&self, resource: &'s Resource, ids: &mut FxHashMap<&'s str, i64>) -> Result<i64> {
        match resource.set.as_deref() {
            None => Ok(0),
            Some(set) => self.intern_set(set, ids),
        }
    }

    fn intern_set<'s>(&self, set: &'s str, ids: &mut FxHashMap<&'s str, i64>) -> Result<i64> {
        if let Some(id) = ids.get(set) {
            return Ok(*id);
        }
        let sql = "INSERT OR IGNORE INTO resource_set (environment, name) VALUES (?1, ?2)";
        self.tx.execute(sql, params![self.environment.0, set])?;
        let sql = "SELECT id FROM resource_set WHERE environment = ?1 AND name = ?2";
        let id = self.tx.query_row(sql, params![self.environment.0, set], |row| row.get(0))?;
        ids.insert(set, id);
        Ok(id)
    }

    fn pack_requires(
        &self,
        delta: &VersionDelta,
        resource: &Resource,
        packed: &mut Vec<u8>,
    ) -> Result<()> {
        packed.clear();
        if resource.requires.is_empty() {
            return Ok(());
        }
        let mut keys = Vec::with_capacity(resource.requires.len());
        for required in &resource.requires {
            let key = match self.given.find(required.as_str()) {
                Some(index) => Some(delta.keys[index]),
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

    /// Key of a resource that stays from the newest version. Removed ones have no head any more.
    fn find_head(&self, name: &str) -> Result<Option<i64>> {
        let sql = "SELECT id FROM resource WHERE environment = ?1 AND name = ?2 \
             AND head IS NOT NULL";
        let mut statement = self.tx.prepare_cached(sql)?;
        let found = statement.query_row(params![self.environment.0, name], |row| row.get(0));
        Ok(found.optional()?)
    }
}
