//! Parameters, facts, unknowns, and contents of files.

use orrery_model::{Fact, Timestamp, VersionNumber};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::{record_change, text_from};
use crate::encoding::Code;
use crate::resource_loader::parse_id;
use crate::rows::{PARAMETER_COLUMNS, parameter_from};
use crate::{
    ContentHash, EnvironmentKey, ParameterEffect, ParameterSource, ResourceKey, Result, StoreError,
    StoredParameter, UndefinedParameter,
};

/// Sets a value, new or not.
const SET: &str = "INSERT INTO parameter (environment, resource, name, value, source, updated, \
     expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (environment, resource, name) \
     DO UPDATE SET value = excluded.value, source = excluded.source, updated = excluded.updated, \
     expires = excluded.expires, metadata = excluded.metadata";
const CURRENT: &str =
    "SELECT value FROM parameter WHERE environment = ?1 AND resource = ?2 AND name = ?3";
const RESOLVE: &str = "UPDATE unknown SET resolved = 1 \
     WHERE environment = ?1 AND resource = ?2 AND name = ?3 AND resolved = 0";

/// Stores facts of resources.
pub(super) struct FactWriter<'a> {
    environment: EnvironmentKey,
    tx: &'a Connection,
    delete: CachedStatement<'a>,
}

impl<'a> FactWriter<'a> {
    pub(super) fn new(tx: &'a Connection, environment: EnvironmentKey) -> Result<Self> {
        let delete =
            tx.prepare_cached("DELETE FROM parameter WHERE environment = ?1 AND resource = ?2")?;
        Ok(FactWriter { environment, tx, delete })
    }

    pub(super) fn write(
        &mut self,
        key: ResourceKey,
        facts: &[Fact],
        now: Timestamp,
    ) -> Result<ParameterEffect> {
        let mut name_of = self.tx.prepare_cached("SELECT name FROM resource WHERE id = ?1")?;
        let id: Option<String> = name_of.query_row([key.0], |row| row.get(0)).optional()?;
        let mut effect = ParameterEffect::default();
        for fact in facts {
            let value = NewValue {
                resource: (key.0, id.as_deref().unwrap_or_default()),
                name: &fact.name,
                value: &fact.value,
                source: ParameterSource::Fact,
                now,
                expires: fact.expires,
            };
            effect += set(self.tx, self.environment, &value)?;
        }
        Ok(effect)
    }

    pub(super) fn delete(&mut self, key: ResourceKey) -> Result<()> {
        self.delete.execute([self.environment.0, key.0])?;
        Ok(())
    }
}

struct NewValue<'a> {
    /// Key and text of the id; 0 and empty for a parameter.
    resource: (i64, &'a str),
    name: &'a str,
    value: &'a str,
    source: ParameterSource,
    now: Timestamp,
    expires: bool,
}

fn set(
    tx: &Connection,
    environment: EnvironmentKey,
    new: &NewValue<'_>,
) -> Result<ParameterEffect> {
    let (key, id) = new.resource;
    let mut current = tx.prepare_cached(CURRENT)?;
    let before: Option<String> =
        current.query_row(params![environment.0, key, new.name], |row| row.get(0)).optional()?;
    tx.prepare_cached(SET)?.execute(params![
        environment.0,
        key,
        new.name,
        new.value,
        new.source.code(),
        new.now.0,
        new.expires,
    ])?;
    let resolved = tx.prepare_cached(RESOLVE)?.execute(params![environment.0, id, new.name])?;
    let changed = usize::from(before.as_deref() != Some(new.value));
    Ok(ParameterEffect { changed, resolved })
}

pub(super) fn set_parameter(
    tx: &Connection,
    environment: EnvironmentKey,
    name: &str,
    value: &str,
    source: ParameterSource,
    now: Timestamp,
) -> Result<ParameterEffect> {
    let new = NewValue { resource: (0, ""), name, value, source, now, expires: false };
    let effect = set(tx, environment, &new)?;
    record_change(tx, environment, "parameter", name)?;
    Ok(effect)
}

pub(super) fn parameters(
    tx: &Connection,
    environment: EnvironmentKey,
) -> Result<Vec<StoredParameter>> {
    let sql = format!(
        "SELECT {PARAMETER_COLUMNS} FROM parameter WHERE environment = ?1 AND resource = 0 ORDER BY name"
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let mut rows = statement.query([environment.0])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(parameter_from(row, None)?);
    }
    Ok(found)
}

pub(super) fn facts(
    tx: &Connection,
    environment: EnvironmentKey,
    id: &str,
) -> Result<Vec<StoredParameter>> {
    let sql = format!(
        "SELECT {PARAMETER_COLUMNS} FROM resource JOIN parameter ON parameter.environment = ?1 \
         AND parameter.resource = resource.id \
         WHERE resource.environment = ?1 AND resource.name = ?2 ORDER BY parameter.name"
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let mut rows = statement.query(params![environment.0, id])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(parameter_from(row, Some(id))?);
    }
    Ok(found)
}

pub(super) fn put_unknowns(
    tx: &Connection,
    environment: EnvironmentKey,
    number: VersionNumber,
    unknowns: &[UndefinedParameter],
) -> Result<()> {
    let mut statement = tx.prepare_cached(
        "INSERT OR REPLACE INTO unknown (environment, version, resource, name, source, resolved) \
         VALUES (?1, ?2, ?3, ?4, ?5, 0)",
    )?;
    for unknown in unknowns {
        let resource = unknown.resource.as_ref().map_or("", |id| id.as_str());
        statement.execute(params![
            environment.0,
            number.0,
            resource,
            unknown.name,
            unknown.source,
        ])?;
    }
    Ok(())
}

pub(super) fn unknowns(
    tx: &Connection,
    environment: EnvironmentKey,
    number: VersionNumber,
) -> Result<Vec<(UndefinedParameter, bool)>> {
    let mut statement = tx.prepare_cached(
        "SELECT name, resource, source, resolved FROM unknown \
         WHERE environment = ?1 AND version = ?2 ORDER BY resource, name",
    )?;
    let mut rows = statement.query(params![environment.0, number.0])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let resource = match text_from(row.get_ref(1)?)? {
            "" => None,
            id => Some(parse_id(id)?),
        };
        let unknown = UndefinedParameter { name: row.get(0)?, resource, source: row.get(2)? };
        found.push((unknown, row.get(3)?));
    }
    Ok(found)
}

pub(super) fn missing_files(tx: &Connection, hashes: &[ContentHash]) -> Result<Vec<ContentHash>> {
    let mut statement = tx.prepare_cached("SELECT 1 FROM file_content WHERE hash = ?1")?;
    let mut missing = Vec::new();
    for hash in hashes {
        if !statement.exists([&hash.0[..]])? {
            missing.push(*hash);
        }
    }
    Ok(missing)
}

pub(super) fn put_files(tx: &Connection, files: &[(ContentHash, &[u8])]) -> Result<()> {
    let mut statement =
        tx.prepare_cached("INSERT OR IGNORE INTO file_content (hash, content) VALUES (?1, ?2)")?;
    let mut same =
        tx.prepare_cached("SELECT 1 FROM file_content WHERE hash = ?1 AND content = ?2")?;
    for (hash, content) in files {
        let values = params![&hash.0[..], content];
        if statement.execute(values)? == 0 && !same.exists(values)? {
            return Err(StoreError::ContentCollision(hash.to_hex()));
        }
    }
    Ok(())
}

pub(super) fn file(tx: &Connection, hash: &ContentHash) -> Result<Option<Vec<u8>>> {
    let mut statement = tx.prepare_cached("SELECT content FROM file_content WHERE hash = ?1")?;
    Ok(statement.query_row([&hash.0[..]], |row| row.get(0)).optional()?)
}
