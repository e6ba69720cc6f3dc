//! Storing a version: writes only differences from the newest version, many rows per statement.

use std::collections::BTreeSet;

use orrery_model::{Resource, VersionNumber};
use postgres::types::{ToSql, Type};
use rustc_hash::{FxHashMap, FxHashSet};

use super::compare::compare;
use super::leases::check_lease;
use super::pool::Pool;
use super::revisions::{NewRevisions, UnclaimedRevisions, delete_unclaimed, set_of};
use super::transaction::Tx;
use crate::backend::PutTarget;
use crate::encoding::{pack_keys, unsigned, version_number_from};
use crate::records::{bind_project, lock_environment, prepare, put_unknowns, reserve_version};
use crate::sql::{Row as _, RowExt as _};
use crate::version_delta::{SortedInput, VersionDelta, check_base, digest};
use crate::{EnvironmentKey, NewVersion, PutOutcome, PutScope, ResourceKey, Result, StoreError};

/// Rows per statement.
const CHUNK: usize = 5_000;

pub(super) fn put_version(
    tx: &mut Tx<'_>,
    pool: &Pool,
    target: PutTarget<'_>,
    new: &NewVersion<'_>,
    given: &SortedInput<'_>,
    files: &FxHashMap<String, i64>,
) -> Result<PutOutcome> {
    let (environment, change) = prepare(tx, target, new.made_at)?;
    lock_environment(tx, environment)?;
    if let Some(lease) = new.lease {
        check_lease(tx, lease)?;
    }
    if let Some(project) = new.project {
        bind_project(tx, environment, project, new.made_at)?;
    }
    let mut delta = compare(tx, environment, given, files, new.scope)?;
    delta.assert_disjoint(given);
    write_sources(tx, new.resources, files, &delta)?;
    let Previous { newest, has_unclaimed } = previous(tx, environment)?;
    check_base(new.base, newest.map(|(number, _)| number))?;
    if new.only_if_changed
        && let Some((number, total)) = newest
        && delta.is_same_version()
    {
        let keys = delta.keys.into_iter().map(ResourceKey).collect();
        let (added, changed, removed) = (0, 0, 0);
        return Ok(PutOutcome { number, created: false, keys, added, changed, removed, total });
    }

    if has_unclaimed {
        delete_unclaimed(tx, environment)?;
    }
    let number = choose_number(tx, environment, new.number)?;
    put_unknowns(tx, environment, number, new.unknowns)?;
    let added = delta.created.len() + delta.readded.len();
    let changed = delta.changed.len();
    let written = added + changed;
    let Numbers { step, revision: first, resource } =
        allocate_numbers(tx, written, delta.created.len())?;
    write_new_names(tx, environment, given, resource, &mut delta)?;
    let partial = matches!(new.scope, PutScope::Sets(_));
    let writer = RevisionWriter { environment, step, given, files, partial, delta: &delta };
    let unclaimed = writer.write(tx, pool, first)?;

    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let before = newest.map_or(0, |(_, total)| i64::try_from(total).unwrap_or(i64::MAX));
    let total = before + count(added) - count(delta.removed.len());
    delta.assert_complete(new.scope, total);
    tx.execute(
        "WITH claimed AS (DELETE FROM unclaimed WHERE environment = $1 AND step = $2), \
         put AS (INSERT INTO step (id, environment, first_revision, end_revision) \
         VALUES ($2, $1, $11, $12)) \
         INSERT INTO version (environment, step, number, made_at, released, info, total, added, \
         changed, removed) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        &[
            &environment.0,
            &step,
            &i64::from(number.0),
            &new.made_at.0,
            &i64::from(new.released),
            &new.info.to_string(),
            &total,
            &count(added),
            &count(changed),
            &count(delta.removed.len()),
            &first,
            &(first + count(written)),
        ],
    )?;
    if let Some(unclaimed) = unclaimed {
        unclaimed.claim();
    }
    if let Some(change) = change {
        change.finish(tx, number, new.made_at)?;
    }
    tx.record_change(environment, "version", &number.to_string());
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

/// What the puts before this one left.
struct Previous {
    /// The version that was put last, and its number of resources.
    newest: Option<(VersionNumber, u64)>,
    /// One of them failed, and left revisions behind.
    has_unclaimed: bool,
}

fn previous(tx: &mut Tx<'_>, environment: EnvironmentKey) -> Result<Previous> {
    let sql = "SELECT EXISTS (SELECT 1 FROM unclaimed WHERE environment = $1), number, total \
         FROM (VALUES (1)) AS one LEFT JOIN (SELECT number, total FROM version \
         WHERE environment = $1 ORDER BY step DESC LIMIT 1) AS newest ON true";
    let row = tx.query_one(sql, &[&environment.0])?;
    let newest = match row.integer(1)? {
        Some(number) => Some((version_number_from(number)?, unsigned(row.int(2)?)?)),
        None => None,
    };
    Ok(Previous { newest, has_unclaimed: row.flag(0)? })
}

/// First numbers of new rows.
struct Numbers {
    step: i64,
    revision: i64,
    resource: i64,
}

fn allocate_numbers(tx: &mut Tx<'_>, revisions: usize, resources: usize) -> Result<Numbers> {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let sql = "SELECT take_numbers('step_number', 1), take_numbers('revision_number', $1), \
         take_numbers('resource_number', $2)";
    let row = tx.query_one(sql, &[&count(revisions), &count(resources)])?;
    Ok(Numbers { step: row.int(0)?, revision: row.int(1)?, resource: row.int(2)? })
}

fn choose_number(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    reserved: Option<VersionNumber>,
) -> Result<VersionNumber> {
    let Some(number) = reserved else { return reserve_version(tx, environment) };
    let last = lock_environment(tx, environment)?;
    if number.0 == 0 || i64::from(number.0) > last {
        return Err(StoreError::VersionNotReserved(number));
    }
    let sql = "SELECT 1 FROM version WHERE environment = $1 AND number = $2";
    let existing = tx.first(sql, &[&environment.0, &i64::from(number.0)])?;
    if existing.is_some() { Err(StoreError::VersionExists(number)) } else { Ok(number) }
}

/// Numbers of the source files, adding new ones. Runs in a transaction of its own: all environments
/// share the numbers, and a large put must not block others.
pub(super) fn intern_files(
    tx: &mut Tx<'_>,
    resources: &[Resource],
) -> Result<FxHashMap<String, i64>> {
    let mut paths: FxHashSet<&str> = FxHashSet::default();
    let mut last: Option<&std::sync::Arc<str>> = None;
    for source in resources.iter().filter_map(|resource| resource.source.as_ref()) {
        // Neighbours mostly share the same allocation.
        if !last.is_some_and(|last| std::sync::Arc::ptr_eq(last, &source.file)) {
            paths.insert(&source.file);
        }
        last = Some(&source.file);
    }
    if paths.is_empty() {
        return Ok(FxHashMap::default());
    }
    let mut paths: Vec<&str> = paths.into_iter().collect();
    paths.sort_unstable();
    let find = "SELECT path, id FROM source_file WHERE path = ANY($1)";
    let mut rows = tx.query(find, &[&paths])?;
    if rows.len() < paths.len() {
        let sql = "INSERT INTO source_file (path) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING";
        tx.execute(sql, &[&paths])?;
        rows = tx.query(find, &[&paths])?;
    }
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Source locations of resources, column by column.
#[derive(Default)]
struct SourceColumns {
    files: Vec<Option<i64>>,
    lines: Vec<Option<i64>>,
    columns: Vec<Option<i64>>,
}

impl SourceColumns {
    fn add(&mut self, resource: &Resource, files: &FxHashMap<String, i64>) {
        let (file, line, column) = source_columns(resource, files);
        self.files.push(file);
        self.lines.push(line);
        self.columns.push(column);
    }
}

/// The number of the file, the line and the column.
fn source_columns(
    resource: &Resource,
    files: &FxHashMap<String, i64>,
) -> (Option<i64>, Option<i64>, Option<i64>) {
    let source = resource.source.as_ref();
    (
        source.and_then(|source| files.get(&*source.file).copied()),
        source.map(|source| source.line.into()),
        source.map(|source| source.column.into()),
    )
}

fn write_sources(
    tx: &mut Tx<'_>,
    resources: &[Resource],
    files: &FxHashMap<String, i64>,
    delta: &VersionDelta,
) -> Result<()> {
    for moved in delta.relocated.chunks(CHUNK) {
        let keys: Vec<i64> = moved.iter().map(|index| delta.keys[*index]).collect();
        let mut places = SourceColumns::default();
        moved.iter().for_each(|index| places.add(&resources[*index], files));
        tx.execute(
            "UPDATE resource SET source_file = p.file, source_line = p.line, \
             source_column = p.col \
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) \
             AS p (id, file, line, col) WHERE resource.id = p.id",
            &[&keys, &places.files, &places.lines, &places.columns],
        )?;
    }
    Ok(())
}

/// Assigns keys to new resources, from the number `first` on, and records their types and agents.
fn write_new_names(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    given: &SortedInput<'_>,
    first: i64,
    delta: &mut VersionDelta,
) -> Result<()> {
    if delta.created.is_empty() {
        return Ok(());
    }
    let mut types: BTreeSet<&str> = BTreeSet::new();
    let mut agents: BTreeSet<&str> = BTreeSet::new();
    for (key, index) in (first..).zip(&delta.created) {
        delta.keys[*index] = key;
        let id = &given.resources[*index].id;
        types.insert(id.entity());
        agents.insert(id.agent());
    }
    let types: Vec<&str> = types.into_iter().collect();
    let agents: Vec<&str> = agents.into_iter().collect();
    let sql = "WITH types AS (INSERT INTO resource_type (environment, name) \
         SELECT $1, unnest($2::text[]) ON CONFLICT DO NOTHING) \
         INSERT INTO agent (environment, name) SELECT $1, unnest($3::text[]) ON CONFLICT DO NOTHING";
    tx.execute(sql, &[&environment.0, &types, &agents])?;
    Ok(())
}

struct RevisionWriter<'a> {
    environment: EnvironmentKey,
    step: i64,
    given: &'a SortedInput<'a>,
    files: &'a FxHashMap<String, i64>,
    /// Requirements may refer to resources that were not given.
    partial: bool,
    delta: &'a VersionDelta,
}

impl RevisionWriter<'_> {
    /// Writes revisions from the number `first` on. Those that it returns are not part of the
    /// version yet.
    fn write<'p>(
        &self,
        tx: &mut Tx<'_>,
        pool: &'p Pool,
        first: i64,
    ) -> Result<Option<UnclaimedRevisions<'p>>> {
        self.write_removed(tx)?;
        let sets = &self.intern_sets(tx)?;
        let staying = self.find_retained(tx)?;
        let indexes: Vec<usize> = self.delta.with_new_revision().collect();
        let requires: Vec<Option<Vec<u8>>> = indexes
            .iter()
            .map(|index| self.pack_requires(&self.given.resources[*index], &staying))
            .collect::<Result<_>>()?;
        let revisions = NewRevisions {
            environment: self.environment,
            step: self.step,
            first,
            resources: self.given.resources,
            indexes: &indexes,
            keys: &self.delta.keys,
            sets,
            requires: &requires,
            ended: &self.ended_revisions(),
        };
        revisions.copy_beside(tx, pool, |tx| {
            let (created, existing) = indexes.split_at(self.delta.created.len());
            self.write_names(tx, created, first, sets)?;
            let mut revision = first + i64::try_from(created.len()).unwrap_or(i64::MAX);
            for existing in existing.chunks(CHUNK) {
                self.write_heads(tx, existing, revision, sets)?;
                revision += i64::try_from(existing.len()).unwrap_or(i64::MAX);
            }
            Ok(())
        })
    }

    /// Replaced and removed revisions with their resources, in the order of the table's key.
    fn ended_revisions(&self) -> Vec<(i64, i64)> {
        let replaced =
            self.delta.changed.iter().map(|(index, head)| (*head, self.delta.keys[*index]));
        let removed = self.delta.removed.iter().map(|(key, head)| (*head, *key));
        let mut ended: Vec<(i64, i64)> = removed.chain(replaced).collect();
        ended.sort_unstable_by_key(|(revision, _)| *revision);
        ended
    }

    /// Takes the revision from removed resources.
    fn write_removed(&self, tx: &mut Tx<'_>) -> Result<()> {
        for removed in self.delta.removed.chunks(CHUNK) {
            let keys: Vec<i64> = removed.iter().map(|(key, _)| *key).collect();
            let sql = "UPDATE resource SET head = NULL, digest = NULL, resource_set = 0, \
                 absent = true WHERE id = ANY($1)";
            tx.execute(sql, &[&keys])?;
        }
        Ok(())
    }

    /// Numbers of the sets that are written to.
    fn intern_sets(&self, tx: &mut Tx<'_>) -> Result<FxHashMap<String, i64>> {
        let written = self.delta.with_new_revision().map(|index| &self.given.resources[index]);
        let names: FxHashSet<&str> =
            written.filter_map(|resource| resource.set.as_deref()).collect();
        if names.is_empty() {
            return Ok(FxHashMap::default());
        }
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        let sql = "INSERT INTO resource_set (environment, name) SELECT $1, unnest($2::text[]) \
             ON CONFLICT DO NOTHING";
        tx.execute(sql, &[&self.environment.0, &names])?;
        let sql = "SELECT name, id FROM resource_set WHERE environment = $1 AND name = ANY($2)";
        let rows = tx.query(sql, &[&self.environment.0, &names])?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Keys of required resources that stay from the newest version. Removed ones have no head any
    /// more.
    fn find_retained(&self, tx: &mut Tx<'_>) -> Result<FxHashMap<String, i64>> {
        let mut staying = FxHashMap::default();
        if !self.partial {
            return Ok(staying);
        }
        let written = self.delta.with_new_revision().map(|index| &self.given.resources[index]);
        let mut names: Vec<&str> = written
            .flat_map(|resource| &resource.requires)
            .map(|required| required.as_str())
            .filter(|required| self.given.find(required).is_none())
            .collect();
        names.sort_unstable();
        names.dedup();
        for names in names.chunks(CHUNK) {
            let sql = "SELECT name, id FROM resource WHERE environment = $1 AND name = ANY($2) \
                 AND head IS NOT NULL";
            let rows = tx.query(sql, &[&self.environment.0, &names])?;
            staying.extend(rows.iter().map(|row| (row.get(0), row.get(1))));
        }
        Ok(staying)
    }

    /// Inserts new resources with their revisions.
    fn write_names(
        &self,
        tx: &mut Tx<'_>,
        indexes: &[usize],
        first: i64,
        sets: &FxHashMap<String, i64>,
    ) -> Result<()> {
        if indexes.is_empty() {
            return Ok(());
        }
        tx.copy(
            "resource (environment, name, id, head, digest, source_file, source_line, \
             source_column, resource_set)",
            &[
                Type::INT8,
                Type::TEXT,
                Type::INT8,
                Type::INT8,
                Type::BYTEA,
                Type::INT8,
                Type::INT8,
                Type::INT8,
                Type::INT8,
            ],
            |rows| {
                for (revision, index) in (first..).zip(indexes) {
                    let resource = &self.given.resources[*index];
                    let (file, line, column) = source_columns(resource, self.files);
                    rows.write(&[
                        &self.environment.0,
                        &resource.id.as_str(),
                        &self.delta.keys[*index],
                        &revision,
                        &&digest(resource)[..],
                        &file,
                        &line,
                        &column,
                        &set_of(resource, sets),
                    ])?;
                }
                Ok(())
            },
        )
    }

    /// Points existing resources to their new revisions.
    fn write_heads(
        &self,
        tx: &mut Tx<'_>,
        indexes: &[usize],
        first: i64,
        sets: &FxHashMap<String, i64>,
    ) -> Result<()> {
        let resources = || indexes.iter().map(|index| &self.given.resources[*index]);
        let keys: Vec<i64> = indexes.iter().map(|index| self.delta.keys[*index]).collect();
        let digests: Vec<[u8; 16]> = resources().map(digest).collect();
        let digests: Vec<&[u8]> = digests.iter().map(|digest| &digest[..]).collect();
        let mut places = SourceColumns::default();
        resources().for_each(|resource| places.add(resource, self.files));
        let sql = "UPDATE resource SET head = $1::bigint - 1 + r.place, digest = r.digest, \
             source_file = r.file, source_line = r.line, source_column = r.col, \
             resource_set = r.resource_set, absent = false \
             FROM unnest($2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], \
             $7::bigint[]) WITH ORDINALITY \
             AS r (id, digest, file, line, col, resource_set, place) WHERE resource.id = r.id";
        let sets: Vec<Option<i64>> = resources().map(|resource| set_of(resource, sets)).collect();
        let values: [&(dyn ToSql + Sync); 7] =
            [&first, &keys, &digests, &places.files, &places.lines, &places.columns, &sets];
        tx.execute(sql, &values)?;
        Ok(())
    }

    fn pack_requires(
        &self,
        resource: &Resource,
        staying: &FxHashMap<String, i64>,
    ) -> Result<Option<Vec<u8>>> {
        if resource.requires.is_empty() {
            return Ok(None);
        }
        let mut keys = Vec::with_capacity(resource.requires.len());
        for required in &resource.requires {
            let key = match self.given.find(required.as_str()) {
                Some(index) => Some(self.delta.keys[index]),
                None => staying.get(required.as_str()).copied(),
            };
            keys.push(key.ok_or_else(|| StoreError::DanglingRequires {
                resource: resource.id.to_string(),
                requires: required.to_string(),
            })?);
        }
        let mut packed = Vec::new();
        pack_keys(keys, &mut packed);
        Ok(Some(packed))
    }
}
