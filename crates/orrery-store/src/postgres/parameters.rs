//! Parameters, facts, unknowns, and contents of files.

use orrery_model::{Fact, Timestamp, VersionNumber};
use rustc_hash::{FxHashMap, FxHashSet};

use super::transaction::Tx;
use crate::encoding::Code as _;
use crate::resource_loader::parse_id;
use crate::rows::{PARAMETER_COLUMNS, parameter_from};
use crate::sql::RowExt as _;
use crate::{
    ContentHash, EnvironmentKey, ParameterEffect, ParameterSource, ResourceKey, Result, StoreError,
    StoredParameter, UndefinedParameter,
};

const UPSERT: &str = "ON CONFLICT (environment, resource, name) DO UPDATE SET \
     value = excluded.value, source = excluded.source, updated = excluded.updated, \
     expires = excluded.expires, metadata = excluded.metadata";

/// Collects the changes of facts by a batch of results, in the order of the results, and writes
/// them together.
#[derive(Default)]
pub(super) struct FactWriter<'a> {
    steps: Vec<(ResourceKey, Step<'a>)>,
}

enum Step<'a> {
    Set(&'a [Fact], Timestamp),
    Delete,
}

impl<'a> FactWriter<'a> {
    pub(super) fn set(&mut self, key: ResourceKey, facts: &'a [Fact], now: Timestamp) {
        self.steps.push((key, Step::Set(facts, now)));
    }

    pub(super) fn delete(&mut self, key: ResourceKey) {
        self.steps.push((key, Step::Delete));
    }

    pub(super) fn write(
        self,
        tx: &mut Tx<'_>,
        environment: EnvironmentKey,
    ) -> Result<ParameterEffect> {
        let mut effect = ParameterEffect::default();
        if self.steps.is_empty() {
            return Ok(effect);
        }
        let keys: Vec<i64> = self.steps.iter().map(|(key, _)| key.0).collect();
        let sql = "SELECT resource, name, value FROM parameter \
             WHERE environment = $1 AND resource = ANY($2)";
        let mut values: FxHashMap<i64, FxHashMap<String, String>> = FxHashMap::default();
        for row in tx.query(sql, &[&environment.0, &keys])? {
            values.entry(row.get(0)).or_default().insert(row.get(1), row.get(2));
        }
        // The last value of each fact counts, and so do deletions in between.
        let mut newest: FxHashMap<(i64, &str), (&Fact, Timestamp)> = FxHashMap::default();
        let mut deleted: FxHashSet<i64> = FxHashSet::default();
        let mut new_facts: Vec<(i64, &str)> = Vec::new();
        for (key, step) in &self.steps {
            let current = values.entry(key.0).or_default();
            match step {
                Step::Delete => {
                    current.clear();
                    newest.retain(|(of, _), _| *of != key.0);
                    deleted.insert(key.0);
                }
                Step::Set(facts, now) => {
                    for fact in *facts {
                        let before = current.insert(fact.name.clone(), fact.value.clone());
                        effect.changed += usize::from(before.as_deref() != Some(&fact.value));
                        newest.insert((key.0, &fact.name), (fact, *now));
                        new_facts.push((key.0, &fact.name));
                    }
                }
            }
        }
        if !deleted.is_empty() {
            let deleted: Vec<i64> = deleted.into_iter().collect();
            let sql = "DELETE FROM parameter WHERE environment = $1 AND resource = ANY($2)";
            tx.execute(sql, &[&environment.0, &deleted])?;
        }
        write_facts(tx, environment, newest.into_iter().collect())?;
        effect.resolved = resolve_facts(tx, environment, &new_facts)?;
        Ok(effect)
    }
}

type NewFact<'a> = ((i64, &'a str), (&'a Fact, Timestamp));

fn write_facts(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    mut facts: Vec<NewFact<'_>>,
) -> Result<()> {
    if facts.is_empty() {
        return Ok(());
    }
    facts.sort_unstable_by_key(|(key, _)| *key);
    let keys: Vec<i64> = facts.iter().map(|((key, _), _)| *key).collect();
    let names: Vec<&str> = facts.iter().map(|((_, name), _)| *name).collect();
    let values: Vec<&str> = facts.iter().map(|(_, (fact, _))| &*fact.value).collect();
    let times: Vec<i64> = facts.iter().map(|(_, (_, now))| now.0).collect();
    let expires: Vec<i64> = facts.iter().map(|(_, (fact, _))| fact.expires.into()).collect();
    let sql = format!(
        "INSERT INTO parameter (environment, resource, name, value, source, updated, expires) \
         SELECT $1, f.key, f.name, f.value, $2, f.updated, f.expires \
         FROM unnest($3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[]) \
         AS f (key, name, value, updated, expires) {UPSERT}"
    );
    let source = ParameterSource::Fact.code();
    tx.execute(&sql, &[&environment.0, &source, &keys, &names, &values, &times, &expires])?;
    Ok(())
}

fn resolve_facts(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    facts: &[(i64, &str)],
) -> Result<usize> {
    if facts.is_empty() {
        return Ok(0);
    }
    let keys: Vec<i64> = facts.iter().map(|(key, _)| *key).collect();
    let names: Vec<&str> = facts.iter().map(|(_, name)| *name).collect();
    let sql = "UPDATE unknown SET resolved = 1 FROM unnest($2::bigint[], $3::text[]) AS f (key, name) \
         JOIN resource ON resource.id = f.key \
         WHERE unknown.environment = $1 AND unknown.resource = resource.name \
         AND unknown.name = f.name AND unknown.resolved = 0";
    Ok(usize::try_from(tx.execute(sql, &[&environment.0, &keys, &names])?).unwrap_or(usize::MAX))
}

pub(super) fn set_parameter(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    name: &str,
    value: &str,
    source: ParameterSource,
    now: Timestamp,
) -> Result<ParameterEffect> {
    let sql = "SELECT value FROM parameter WHERE environment = $1 AND resource = 0 AND name = $2 \
         FOR UPDATE";
    let before = tx.first(sql, &[&environment.0, &name])?;
    let is_same = before.is_some_and(|row| row.get::<_, &str>(0) == value);
    let sql = format!(
        "INSERT INTO parameter (environment, resource, name, value, source, updated, expires) \
         VALUES ($1, 0, $2, $3, $4, $5, 0) {UPSERT}"
    );
    tx.execute(&sql, &[&environment.0, &name, &value, &source.code(), &now.0])?;
    let sql = "UPDATE unknown SET resolved = 1 \
         WHERE environment = $1 AND resource = '' AND name = $2 AND resolved = 0";
    let resolved = tx.execute(sql, &[&environment.0, &name])?;
    tx.record_change(environment, "parameter", name);
    let resolved = usize::try_from(resolved).unwrap_or(usize::MAX);
    Ok(ParameterEffect { changed: usize::from(!is_same), resolved })
}

pub(super) fn parameters(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
) -> Result<Vec<StoredParameter>> {
    let sql = format!(
        "SELECT {PARAMETER_COLUMNS} FROM parameter WHERE environment = $1 AND resource = 0 \
         ORDER BY name"
    );
    let rows = tx.query(&sql, &[&environment.0])?;
    rows.iter().map(|row| parameter_from(row, None)).collect()
}

pub(super) fn facts(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    id: &str,
) -> Result<Vec<StoredParameter>> {
    let sql = format!(
        "SELECT {PARAMETER_COLUMNS} FROM resource JOIN parameter ON parameter.environment = $1 \
         AND parameter.resource = resource.id \
         WHERE resource.environment = $1 AND resource.name = $2 ORDER BY parameter.name"
    );
    let rows = tx.query(&sql, &[&environment.0, &id])?;
    rows.iter().map(|row| parameter_from(row, Some(id))).collect()
}

pub(super) fn put_unknowns(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    number: VersionNumber,
    unknowns: &[UndefinedParameter],
) -> Result<()> {
    if unknowns.is_empty() {
        return Ok(());
    }
    // The last value of a name counts.
    let mut newest: FxHashMap<(&str, &str), &str> = FxHashMap::default();
    for unknown in unknowns {
        let resource = unknown.resource.as_ref().map_or("", |id| id.as_str());
        newest.insert((resource, &unknown.name), &unknown.source);
    }
    let newest: Vec<((&str, &str), &str)> = newest.into_iter().collect();
    let resources: Vec<&str> = newest.iter().map(|((resource, _), _)| *resource).collect();
    let names: Vec<&str> = newest.iter().map(|((_, name), _)| *name).collect();
    let sources: Vec<&str> = newest.iter().map(|(_, source)| *source).collect();
    tx.execute(
        "INSERT INTO unknown (environment, version, resource, name, source, resolved) \
         SELECT $1, $2, u.resource, u.name, u.source, 0 \
         FROM unnest($3::text[], $4::text[], $5::text[]) AS u (resource, name, source)",
        &[&environment.0, &i64::from(number.0), &resources, &names, &sources],
    )?;
    Ok(())
}

pub(super) fn unknowns(
    tx: &mut Tx<'_>,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<Vec<(UndefinedParameter, bool)>> {
    let sql = "SELECT name, resource, source, resolved FROM unknown \
         WHERE environment = $1 AND version = $2 ORDER BY resource, name";
    let rows = tx.query(sql, &[&environment.0, &i64::from(number.0)])?;
    rows.iter()
        .map(|row| {
            let resource = match row.str(1)? {
                "" => None,
                id => Some(parse_id(id)?),
            };
            let unknown =
                UndefinedParameter { name: row.string(0)?, resource, source: row.string(2)? };
            Ok((unknown, row.flag(3)?))
        })
        .collect()
}

pub(super) fn missing_files(tx: &mut Tx<'_>, hashes: &[ContentHash]) -> Result<Vec<ContentHash>> {
    let bytes: Vec<&[u8]> = hashes.iter().map(|hash| &hash.0[..]).collect();
    let rows = tx.query("SELECT hash FROM file_content WHERE hash = ANY($1)", &[&bytes])?;
    let stored: FxHashSet<&[u8]> = rows.iter().map(|row| row.get(0)).collect();
    Ok(hashes.iter().filter(|hash| !stored.contains(&hash.0[..])).copied().collect())
}

/// Stores files in the order of their hashes, so that concurrent writers of the same files wait but
/// cannot deadlock.
pub(super) fn put_files(tx: &mut Tx<'_>, files: &[(ContentHash, &[u8])]) -> Result<()> {
    let mut files: Vec<&(ContentHash, &[u8])> = files.iter().collect();
    files.sort_unstable_by_key(|(hash, _)| *hash);
    for (hash, content) in files {
        let values: [&(dyn postgres::types::ToSql + Sync); 2] = [&&hash.0[..], content];
        let put = tx.execute(
            "INSERT INTO file_content (hash, content) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            &values,
        )?;
        let same = "SELECT 1 FROM file_content WHERE hash = $1 AND content = $2";
        if put == 0 && tx.first(same, &values)?.is_none() {
            return Err(StoreError::ContentCollision(hash.to_hex()));
        }
    }
    Ok(())
}

pub(super) fn file(tx: &mut Tx<'_>, hash: &ContentHash) -> Result<Option<Vec<u8>>> {
    let row = tx.first("SELECT content FROM file_content WHERE hash = $1", &[&&hash.0[..]])?;
    Ok(row.map(|row| row.get(0)))
}
